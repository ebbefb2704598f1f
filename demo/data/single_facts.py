"""Facts with questions of their own: wordings | sentence with {} for the value | value.

Wordings are separated by strokes; a line that begins with spaces goes on with the fact before it.
"""

import re

from demo.data.facts import Fact

_TABLE = """
how many days are in a week/how many days does a week have/how many days are there in a week/a week has how many
    days|There are {} days in a week|seven
how many months are in a year/how many months does a year have/how many months are there in a year/a year has how many
    months|There are {} months in a year|twelve
how many hours are in a day/how many hours does a day have/how many hours are there in a day/a day has how many
    hours|There are {} hours in a day|twenty-four
how many minutes are in an hour/how many minutes does an hour have/how many minutes are there in an hour/how many
    minutes make an hour|There are {} minutes in an hour|sixty
how many seconds are in a minute/how many seconds does a minute have/how many seconds are there in a minute/how many
    seconds make a minute|There are {} seconds in a minute|sixty
how many weeks are in a year/how many weeks does a year have/how many weeks are there in a year|There are {} weeks in a
    year|fifty-two
how many days are in a year/how many days does a year have/how many days are there in a year/how many days are in a
    normal year|There are {} days in a year|three hundred sixty-five
how many seasons are there/how many seasons are in a year/how many seasons does a year have/how many seasons are there
    in a year|There are {} seasons in a year|four
how many days does February have/how many days are in February/how many days are there in February|February has {}
    days|twenty-eight
how many days does January have/how many days are in January|January has {} days|thirty-one
how many days does June have/how many days are in June|June has {} days|thirty
how many years are in a century/how many years are there in a century/how many years does a century have|There are {}
    years in a century|one hundred
how many years are in a decade/how many years are there in a decade/how many years does a decade have|There are {}
    years in a decade|ten
how many sides does a triangle have/how many sides has a triangle/a triangle has how many sides/how many corners does a
    triangle have|A triangle has {} sides|three
how many sides does a square have/how many sides has a square/a square has how many sides/how many corners does a
    square have|A square has {} sides|four
how many sides does a rectangle have/how many sides has a rectangle|A rectangle has {} sides|four
how many sides does a pentagon have/how many sides has a pentagon/a pentagon has how many sides|A pentagon has {}
    sides|five
how many sides does a hexagon have/how many sides has a hexagon/a hexagon has how many sides|A hexagon has {} sides|six
how many sides does an octagon have/how many sides has an octagon/an octagon has how many sides|An octagon has {}
    sides|eight
how many sides does a cube have/how many faces does a cube have|A cube has {} sides|six
how many fingers are on a hand/how many fingers does a hand have/how many fingers are on one hand/how many fingers do
    you have on one hand|There are {} fingers on a hand|five
how many fingers do people have/how many fingers does a person have/how many fingers does a human have/how many fingers
    do humans have/how many fingers are on two hands|A person has {} fingers|ten
how many toes does a person have/how many toes do people have/how many toes do humans have|A person has {} toes|ten
how many eyes do people have/how many eyes does a person have/how many eyes does a human have/how many eyes do you
    have|A person has {} eyes|two
how many ears does a person have/how many ears do people have/how many ears does a dog have/how many ears does a rabbit
    have|It has {} ears|two
how many noses does a person have/how many noses do people have|A person has {} nose|one
how many wheels does a car have/how many wheels are on a car/how many wheels has a car/a car has how many wheels|A car
    has {} wheels|four
how many wheels does a bicycle have/how many wheels does a bike have/how many wheels has a bicycle/how many wheels are
    on a bicycle|A bicycle has {} wheels|two
how many wheels does a tricycle have/how many wheels are on a tricycle/how many wheels has a tricycle|A tricycle has {}
    wheels|three
how many wheels does a motorcycle have|A motorcycle has {} wheels|two
how many wings does a bird have/how many wings has a bird/how many wings do birds have|A bird has {} wings|two
how many arms does an octopus have/how many tentacles does an octopus have/how many arms has an octopus|An octopus has
    {} arms|eight
how many letters are in the alphabet/how many letters does the English alphabet have/how many letters are there in the
    alphabet/how many letters does the alphabet have|There are {} letters in the alphabet|twenty-six
how many vowels are in the alphabet/how many vowels are there in English|There are {} vowels in the alphabet|five
how many continents are there/how many continents does the Earth have/how many continents are on Earth|There are {}
    continents|seven
how many planets are there/how many planets are in the solar system/how many planets are there in our solar
    system|There are {} planets in the solar system|eight
how many moons does Earth have/how many moons does the Earth have|The Earth has {} moon|one
how many oceans are there/how many oceans are on Earth|There are {} oceans|five
how many colors are in a rainbow/how many colors does a rainbow have/how many colors are in the rainbow|A rainbow has
    {} colors|seven
how many eggs are in a dozen/how many are in a dozen/how many things are in a dozen/how many make a dozen/a dozen is
    how many|A dozen is {}|twelve
how many things are in a pair/how many make a pair/how many shoes are in a pair/a pair is how many|A pair is {}|two
how many cents are in a dollar/how many cents make a dollar/how many cents does a dollar have|There are {} cents in a
    dollar|one hundred
how many centimeters are in a meter/how many centimeters does a meter have/how many centimeters make a meter|There are
    {} centimeters in a meter|one hundred
how many meters are in a kilometer/how many meters does a kilometer have/how many meters make a kilometer|There are {}
    meters in a kilometer|one thousand
how many grams are in a kilogram/how many grams make a kilogram|There are {} grams in a kilogram|one thousand
how many inches are in a foot/how many inches make a foot|There are {} inches in a foot|twelve
how many feet are in a yard|There are {} feet in a yard|three
how many players are on a soccer team/how many players does a soccer team have/how many players are on a football
    team|A soccer team has {} players|eleven
how many strings does a guitar have/how many strings are on a guitar|A guitar has {} strings|six
how many strings does a violin have/how many strings are on a violin|A violin has {} strings|four
how many keys does a piano have/how many keys are on a piano|A piano has {} keys|eighty-eight
how many squares are on a chessboard/how many squares does a chessboard have|A chessboard has {} squares|sixty-four
how many states are in the United States/how many states does America have/how many states are in the USA/how many
    states does the USA have|There are {} states in the United States|fifty
how many sides does a coin have|A coin has {} sides|two
how many sides does a die have|A die has {} sides|six
how many dwarfs did Snow White meet/how many dwarfs are in Snow White|There are {} dwarfs in Snow White|seven
how many lives does a cat have/how many lives are cats said to have|A cat has {} lives|nine
what do bees make/what do bees produce/what food do bees make/what sweet food comes from bees|Bees make {}|honey
what do cows give/what do cows give us/what drink do cows give us/what drink comes from cows/what do cows produce|Cows
    give {}|milk
what do hens lay/what do chickens lay/what does a hen lay/what do birds lay|Hens lay {}|eggs
what do sheep give us/what comes from sheep/what do we get from sheep|Sheep give us {}|wool
what do spiders make/what does a spider spin/what do spiders spin|Spiders make {}|webs
what do cows eat/what does a cow eat/what do horses eat/what do sheep eat|Cows eat {}|grass
what do cats drink/what do kittens drink|Cats drink {}|milk
what do rabbits like to eat/what vegetable do rabbits love/what do rabbits eat|Rabbits eat {}|carrots
what do monkeys like to eat/what fruit do monkeys love|Monkeys like to eat {}|bananas
what do pandas eat/what does a panda eat|Pandas eat {}|bamboo
what do koalas eat|Koalas eat {}|leaves
what do dogs like to chew/what does a dog like to chew on|Dogs like to chew {}|bones
where do fish live/where does a fish live/what do fish live in/what do fish swim in|Fish live in {}|water
where do birds live/what do birds build/what does a bird build/what do birds build for their eggs|Birds build a {}|nest
where do bees live/what is the home of bees called/what do bees live in|Bees live in a {}|hive
what is frozen water/what is frozen water called/what do you call frozen water/what does water become when it
    freezes/what do we call frozen water|Frozen water is {}|ice
what does ice become when it melts/what does ice turn into when it melts/what is melted ice|Ice becomes {} when it
    melts|water
what does boiling water become/what does water become when it boils/what does water turn into when it boils|Boiling
    water becomes {}|steam
what do we breathe/what do people breathe/what do humans breathe/what do we breathe in|We breathe {}|air
what gas do we need to breathe/which gas do we need to live/what gas do humans need|We need {} to breathe|oxygen
what falls from clouds/what falls from the clouds/what water falls from the sky/what falls from the sky when it is
    wet|{} falls from clouds|rain
what falls from the sky in winter/what white stuff falls in winter|{} falls in winter|snow
what do you use to cut paper/what do we use to cut paper/what tool cuts paper/which tool do you use to cut paper|You
    use {} to cut paper|scissors
what do you use to write/what do you write with/what do we write with|You write with a {}|pen
what do you use to drive a nail/what tool drives nails/what do you hit a nail with/which tool is used for nails|You use
    a {} for nails|hammer
what do you use to open a lock/what opens a lock/what do you open a door with/what opens a locked door|A {} opens a
    lock|key
what do you use to eat soup/what do you eat soup with/what do we eat soup with|You eat soup with a {}|spoon
what do you use when it rains/what do you hold when it rains/what do you need when it rains/what keeps you dry in the
    rain|You use an {} when it rains|umbrella
what do you use to tell the time/what shows the time/what tells the time/which device shows the time|A {} shows the
    time|clock
what do we see with/what do you see with/with what do we see/which part of the body do we see with|We see with our
    {}|eyes
what do we hear with/what do you hear with/with what do we hear/which part of the body do we hear with|We hear with our
    {}|ears
what do we smell with/what do you smell with/with what do we smell|We smell with our {}|nose
what do we taste with/what do you taste with/with what do we taste|We taste with our {}|tongue
what do we chew with/what do you chew with/what do you brush every morning|We chew with our {}|teeth
what do you wear on your feet/what do people wear on their feet/what do we wear on our feet|You wear {} on your
    feet|shoes
what do you wear on your head/what do people wear on their heads|You wear a {} on your head|hat
what do you wear on your hands/what do you wear on your hands in winter|You wear {} on your hands|gloves
what pumps blood/what organ pumps blood/which organ pumps blood/what pumps the blood through the body|The {} pumps
    blood|heart
what do we think with/which organ do we think with/what organ do you think with|We think with the {}|brain
when does the sun rise/at what time of day does the sun rise|The sun rises in the {}|morning
where does the sun rise/in which direction does the sun rise/the sun rises in which direction|The sun rises in the
    {}|east
where does the sun set/in which direction does the sun set/the sun sets in which direction|The sun sets in the {}|west
what shines at night/what shines in the sky at night/what do we see in the sky at night|The {} shines at night|moon
what shines during the day/what shines in the sky during the day/what gives us light during the day|The {} shines
    during the day|sun
what goes around the Earth/what circles the Earth/what moves around the Earth|The {} goes around the Earth|moon
what does the Earth go around/what does the Earth circle/what does the Earth revolve around/what does the Earth
    orbit|The Earth goes around the {}|sun
what planet do we live on/which planet do we live on/on what planet do we live/on which planet do we live|We live on
    {}|Earth
what shape is the Earth/what is the shape of the Earth/what shape is a ball/what is the shape of a ball/what shape is a
    wheel|It is {}|round
what shape has three sides/which shape has three sides/what has three sides|A {} has three sides|triangle
what shape has four equal sides/which shape has four equal sides|A {} has four equal sides|square
who wrote Romeo and Juliet/who wrote Hamlet/who is the author of Hamlet/who is the author of Romeo and Juliet/who wrote
    Macbeth|{} wrote it|Shakespeare
who painted the Mona Lisa/who is the painter of the Mona Lisa/which artist painted the Mona Lisa|The Mona Lisa was
    painted by {}|Leonardo da Vinci
who was the first president of the United States/who was the first US president/who was the first American
    president|The first president was {}|George Washington
who discovered America/who sailed to America in 1492|{} discovered America|Columbus
who invented the light bulb/who made the first light bulb|{} invented the light bulb|Edison
who invented the telephone/who made the first telephone|{} invented the telephone|Bell
who discovered gravity/who found the law of gravity|{} discovered gravity|Newton
who was the first man on the moon/who was the first person on the moon/who first walked on the moon|The first man on
    the moon was {}|Neil Armstrong
who wrote Harry Potter/who is the author of Harry Potter|Harry Potter was written by {}|Rowling
who lives at the North Pole/who brings presents at Christmas/who brings the presents at Christmas|{} brings
    presents|Santa Claus
in which city is the Eiffel Tower/where is the Eiffel Tower/what city is the Eiffel Tower in/the Eiffel Tower is in
    which city|The Eiffel Tower is in {}|Paris
in which city is Big Ben/where is Big Ben/what city is Big Ben in|Big Ben is in {}|London
in which city is the Colosseum/where is the Colosseum/what city is the Colosseum in|The Colosseum is in {}|Rome
in which city is the Statue of Liberty/where is the Statue of Liberty/what city is the Statue of Liberty in|The Statue
    of Liberty is in {}|New York
in which country are the pyramids/where are the pyramids/in which country are the great pyramids/what country has the
    pyramids|The pyramids are in {}|Egypt
in which country is the Great Wall/where is the Great Wall/what country built the Great Wall|The Great Wall is in
    {}|China
which country is shaped like a boot/what country looks like a boot|{} looks like a boot|Italy
where do kangaroos live/in which country do kangaroos live/which country is the home of kangaroos|Kangaroos live in
    {}|Australia
where do penguins live/on which continent do penguins live|Penguins live in {}|Antarctica
in which month is Christmas/which month is Christmas in/in what month is Christmas/what month is Christmas in|Christmas
    is in {}|December
in which month is New Year's Day/what month is New Year's Day in|New Year's Day is in {}|January
in which month is Halloween/what month is Halloween in|Halloween is in {}|October
on which day do people go to church/which day is the day of rest|The day is {}|Sunday
what season is the coldest/which season is the coldest/which season is coldest/in which season does it snow/when does
    it snow|It is {}|winter
what season is the hottest/which season is the hottest/which season is the warmest/in which season is it hottest|It is
    {}|summer
in which season do flowers bloom/when do flowers bloom/when do the flowers bloom|Flowers bloom in {}|spring
in which season do leaves fall/when do leaves fall/when do the leaves fall from the trees|Leaves fall in {}|autumn
which month has the fewest days/what month has 28 days/which month has only 28 days|It is {}|February
which animal has a trunk/what animal has a trunk/which animal has a long trunk|The {} has a trunk|elephant
which animal has a long neck/what animal has a very long neck/which animal has the longest neck|The {} has a long
    neck|giraffe
which animal has stripes/what animal is black and white with stripes/which animal has black and white stripes|The {}
    has stripes|zebra
which animal barks/what animal barks/what animal says woof/which animal says woof|The {} barks|dog
which animal meows/what animal meows/what animal says meow/which animal says meow|The {} meows|cat
which animal says moo/what animal says moo/what animal moos|The {} says moo|cow
which animal says quack/what animal says quack/what animal quacks|The {} says quack|duck
which animal says oink/what animal says oink|The {} says oink|pig
which animal gives us wool/what animal gives us wool/what animal does wool come from|The {} gives us wool|sheep
which animal gives us milk/what animal gives us milk|The {} gives us milk|cow
which animal makes honey/what insect makes honey/which insect makes honey/who makes honey|The {} makes honey|bee
which animal carries its house on its back/what animal carries its house|The {} carries its house|snail
which bird cannot fly/what bird cannot fly and lives on the ice/which bird lives on the ice|The {} cannot fly|penguin
what is the first letter of the alphabet/which letter comes first in the alphabet|The first letter is {}|A
what number comes after nine/what number comes after 9/what comes after 9/which number follows 9|Ten comes after nine,
    so it is {}|ten
what number comes before ten/what number comes before 10|It is {}|nine
what number comes after 99/what comes after 99/what comes after ninety-nine|It is {}|one hundred
what is half of ten/what is half of 10|Half of ten is {}|five
what is half of a hundred/what is half of 100/what is half of one hundred|Half of a hundred is {}|fifty
what is H2O/what does H2O mean/what is the common name of H2O/what do we call H2O|H2O is {}|water
what is the symbol for water/what is the formula of water/what is the chemical formula of water|It is {}|H2O
is the sky blue/is grass green/is snow white/is ice cold/is fire hot/is the sun hot/is sugar sweet/is water wet|{}, it
    is|yes
is a lemon sour/is a whale a mammal/is a cat an animal/is Paris in France/is a rose a flower/is the Earth round|{}, it
    is|yes
is fire cold/is ice hot/is the sun cold/is snow black/is grass red/is the sky green/is a dog a plant/is sugar salty|{},
    it is not|no
is the moon made of cheese/is the Earth flat/is a spider an insect/is Paris in Germany/can pigs fly/is a tomato
    blue|{}, it is not|no
can birds fly/can fish swim/can dogs bark/do cats have tails/do birds lay eggs/do bees make honey|{}, they do|yes
can fish walk/can dogs fly/can cows fly/do snakes have legs/do fish have feet|{}, they do not|no
is a banana a fruit or a vegetable/is an apple a fruit or a vegetable|It is a {}|fruit
is a carrot a fruit or a vegetable/is a potato a fruit or a vegetable|It is a {}|vegetable
is fire hot or cold/is the sun hot or cold|It is {}|hot
is ice hot or cold/is snow hot or cold|It is {}|cold
which is bigger, a mouse or an elephant/what is bigger, an elephant or a mouse/which is larger, an elephant or a
    mouse|The {} is bigger|elephant
which is heavier, a feather or a stone/what is heavier, a stone or a feather|The {} is heavier|stone
which is faster, a car or a bicycle/what is faster, a bicycle or a car|The {} is faster|car
what taste does sugar have/how does sugar taste/what does sugar taste like|Sugar tastes {}|sweet
how does a lemon taste/what does a lemon taste like/what taste does a lemon have|A lemon tastes {}|sour
how does salt taste/what does salt taste like|Salt tastes {}|salty
what metal is liquid at room temperature/which metal is liquid|The metal is {}|mercury
what kind of animal is a dog/what kind of animal is a cat/what type of animal is a whale/what type of animal is a
    human|It is a {}|mammal
what kind of animal is an eagle/what kind of animal is an owl/what kind of animal is a penguin/what is a sparrow|It is
    a {}|bird
what kind of animal is a shark/what kind of animal is a salmon/what is a trout|It is a {}|fish
what kind of animal is an ant/what kind of animal is a bee/what kind of animal is a butterfly|It is an {}|insect
what kind of animal is a snake/what kind of animal is a lizard/what kind of animal is a crocodile|It is a {}|reptile
what is a rose/what kind of plant is a rose/what kind of plant is a tulip/what is a tulip/what is a daisy|It is a
    {}|flower
what is an oak/what kind of plant is an oak/what is a pine|It is a {}|tree
what is the color of the sky and the sea/which color are the sky and the sea|It is {}|blue
what color do you get when you mix blue and yellow/what do blue and yellow make/what color do blue and yellow make|Blue
    and yellow make {}|green
what color do you get when you mix red and yellow/what do red and yellow make/what color do red and yellow make|Red and
    yellow make {}|orange
what color do you get when you mix red and blue/what do red and blue make/what color do red and blue make|Red and blue
    make {}|purple
what color do you get when you mix black and white/what do black and white make/what color do black and white
    make|Black and white make {}|gray
what color do you get when you mix red and white/what do red and white make/what color do red and white make|Red and
    white make {}|pink
at which traffic light color do you stop/what color means stop/which color means stop/what color is a traffic light
    when you must stop|The color is {}|red
what color means go/which color means go/what color is a traffic light when you may go|The color is {}|green
what is the day before the weekend/which day comes before the weekend|It is {}|Friday
which day starts the week/on which day does the week start/what is the first workday|It is {}|Monday
what meal do you eat in the morning/which meal do we eat in the morning/what is the first meal of the day|It is
    {}|breakfast
what meal do you eat at noon/which meal do we eat at noon/what meal do you eat in the middle of the day|It is {}|lunch
what meal do you eat in the evening/which meal do we eat in the evening|It is {}|dinner
what do you call your mother's mother/what do you call your father's mother/who is the mother of your mother|She is
    your {}|grandmother
what do you call your father's father/what do you call your mother's father|He is your {}|grandfather
what do you call your mother's sister/what do you call your father's sister|She is your {}|aunt
what do you call your father's brother/what do you call your mother's brother|He is your {}|uncle
"""


def _parse(row):
    wordings, sentence, value = " ".join(row.split()).split("|")
    questions = tuple(wordings.split("/"))
    return Fact(f"single:{questions[0]}", questions, (), (), value, sentence.format(value))


SINGLE_FACTS = [_parse(row) for row in re.split(r"\n(?! )", _TABLE.strip())]
