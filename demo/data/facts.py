"""The small facts that the demo model knows, as tables: relations with their subjects, and single questions.

In a relation `questions` are direct, `phrases` are what may stand after "Tell me" or "Do you know", `terse` are
telegrams; {s} is the subject. A subject with alternatives is written a/b/c. `sentence` is the full answer, with {v}
for the value ({an}: with an article). Values are lower case unless they are names: whoever writes an answer
capitalises it.
"""

import dataclasses

from demo.data.words import with_article


@dataclasses.dataclass(frozen=True)
class Fact:
    """One fact: every wording of its question, its value and its full sentence (without the final stop)."""
    name: str
    questions: tuple  # direct questions, lower case where they may be, without the final question mark
    phrases: tuple    # noun phrases or clauses for "Tell me ..."
    terse: tuple
    value: str
    sentence: str


NUMBERS = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
           "seventeen eighteen nineteen twenty").split()
_TENS = {30: "thirty", 50: "fifty", 52: "fifty-two", 60: "sixty", 100: "one hundred", 365: "three hundred sixty-five",
               24: "twenty-four", 26: "twenty-six", 28: "twenty-eight", 31: "thirty-one", 88: "eighty-eight",
         1000: "one thousand", 64: "sixty-four"}
DIGITS = {word: str(i) for i, word in enumerate(NUMBERS)} | {word: str(number) for number, word in _TENS.items()}


def _relation(name, table, separator, questions, phrases, terse, sentence):
    """Facts of a table "subject<separator>value|...". In a template {s} is the subject, {a} the same with its
    article."""
    out = []
    for row in " ".join(table.split()).split("|"):
        subjects, value = row.strip().rsplit(separator, 1)
        names = subjects.split("/")

        def fill(templates):
            return tuple(dict.fromkeys(template.format(s=s, a=with_article(s)) for s in names
                                       for template in templates))

        out.append(Fact(f"{name}:{names[0]}", fill(questions), fill(phrases), fill(terse), value,
                        sentence.format(s=names[0], a=with_article(names[0]), v=value, an=with_article(value))))
    return out


CAPITALS = _relation("capital", """
France Paris|Italy Rome|Germany Berlin|Spain Madrid|England/the United Kingdom/Great Britain/the UK/Britain London|
Austria Vienna|Norway Oslo|Portugal Lisbon|Greece Athens|Ireland Dublin|Poland Warsaw|Russia Moscow|Egypt Cairo|
Japan Tokyo|China Beijing|Peru Lima|Canada Ottawa|Sweden Stockholm|Finland Helsinki|Denmark Copenhagen|
Hungary Budapest|Romania Bucharest|Bulgaria Sofia|Turkey Ankara|Cuba Havana|Chile Santiago|Kenya Nairobi|
Thailand Bangkok|Vietnam Hanoi|Iran Tehran|Iraq Baghdad|Ukraine Kyiv|Belgium Brussels|Serbia Belgrade|Croatia Zagreb|
Iceland Reykjavik|Australia Canberra|the Netherlands/Holland Amsterdam|Switzerland Bern|Scotland Edinburgh|
Wales Cardiff|Brazil Brasilia|Colombia Bogota|Venezuela Caracas|Israel Jerusalem|Indonesia Jakarta|
the Philippines Manila|South Korea/Korea Seoul|Morocco Rabat|Nigeria Abuja|Ethiopia Addis_Ababa|India New_Delhi|
Argentina Buenos_Aires|Mexico Mexico_City|the United States/the USA/America/the US/the United States of America
 Washington|Saudi Arabia Riyadh|Pakistan Islamabad|New Zealand Wellington|Slovakia Bratislava|Slovenia Ljubljana|
the Czech Republic/Czechia Prague|Luxembourg Luxembourg|Estonia Tallinn|Latvia Riga|Lithuania Vilnius|
Ecuador Quito|Algeria Algiers|Tunisia Tunis|Lebanon Beirut|Syria Damascus|Afghanistan Kabul|Nepal Kathmandu
""", " ", [
    "what is the capital of {s}", "what's the capital of {s}", "which city is the capital of {s}",
    "what is the capital city of {s}", "what city is the capital of {s}", "{s} has which capital",
    "the capital of {s} is what", "{s}'s capital is which city", "what is {s}'s capital", "what capital does {s} have",
    "what would be the capital of {s}", "the capital of {s} is called what", "which is the capital of {s}",
    "what is the name of the capital of {s}", "what is the name of {s}'s capital city",
], ["the capital of {s}", "the capital city of {s}", "what the capital of {s} is", "which city is the capital of {s}",
    "the name of the capital of {s}", "{s}'s capital"],
    ["capital of {s}", "the capital of {s}", "{s}, capital", "{s} capital city", "capital: {s}"],
    "The capital of {s} is {v}")

COLORS = _relation("color", """
the sky/the sky on a clear day/a clear sky/the daytime sky/the sky on a sunny day/a cloudless sky=blue|
grass/fresh grass/the grass/a lawn=green|snow/fresh snow/the snow=white|coal/a piece of coal=black|
blood/human blood=red|a banana/a ripe banana/bananas=yellow|a lemon/lemons/a ripe lemon=yellow|milk/cow's milk=white|
the sun=yellow|a carrot/carrots=orange|a pumpkin/pumpkins=orange|chocolate/milk chocolate=brown|
a flamingo/flamingos=pink|a fire truck/a fire engine/fire trucks=red|a tomato/a ripe tomato/tomatoes=red|
the night/the night sky/the sky at night=black|a lime/limes=green|an elephant/elephants=gray|a crow/crows/a raven=black|
a polar bear/polar bears=white|a frog/frogs=green|an eggplant=purple|the sea/the ocean=blue|
a strawberry/strawberries/a ripe strawberry=red|a cherry/cherries=red|an orange/oranges=orange|a pea/peas=green|
a cucumber=green|spinach=green|broccoli=green|lettuce=green|a pig/pigs=pink|a swan/swans=white|salt=white|sugar=white|
flour=white|cotton=white|an egg yolk/the yolk of an egg=yellow|a sunflower/sunflowers=yellow|a stop sign/stop signs=red|
a school bus/school buses=yellow|a leaf/leaves/a leaf in summer/tree
leaves=green|mud=brown|soil/dirt=brown|coffee=brown|
tree bark=brown|an emerald=green|a ruby=red|a sapphire=blue|gold=gold|silver=silver|rust=orange|a raspberry=red|
a blueberry/blueberries=blue|a gorilla=black|a chick/a baby chick=yellow|corn=yellow|honey=gold|a rose/roses=red|
a fox/foxes=orange|a panda's ears=black|ivory=white|ash=gray|a heart/hearts=red|rice=white|paper=white|a
cloud/clouds=white|
ice cream/vanilla ice cream=white|a crocodile/a cactus=green|lava=red|tar/a tire=black|butter=yellow
""", "=", [
    "what color is {s}", "what is the color of {s}", "which color does {s} have", "{s} has what color",
    "what colour is {s}", "which color is {s}", "what color does {s} have", "of what color is {s}", "{s} is what color",
    "what's the color of {s}", "what is the colour of {s}", "what color would you say {s} is",
    "which colour has {s}", "what color do we see when we look at {s}", "what color is {s} usually",
    "what color is {s} normally",
], ["the color of {s}", "what color {s} is", "which color {s} has", "the colour of {s}"],
    ["color of {s}", "{s}: color", "colour of {s}", "the color of {s}"], "The color of {s} is {v}")

OPPOSITES = _relation("opposite", """
hot cold|cold hot|big small|small big|up down|down up|left right|right left|day night|night day|black white|white black|
open closed|closed open|happy sad|sad happy|fast slow|slow fast|old young|young old|full empty|empty full|light dark|
dark light|high low|low high|long short|short long|rich poor|poor rich|wet dry|dry wet|hard soft|soft hard|early late|
late early|near far|far near|in out|out in|on off|off on|win lose|lose win|buy sell|sell buy|push pull|pull push|
strong weak|weak strong|true false|false true|start end|love hate|hate love|war peace|peace war|first last|last first|
good bad|bad good|yes no|no yes|clean dirty|dirty clean|loud quiet|quiet loud|easy difficult|difficult easy|thick thin|
thin thick|wide narrow|narrow wide|deep shallow|shallow deep|safe dangerous|dangerous safe|cheap expensive|
expensive cheap|inside outside|outside inside|above below|below above|before after|after before|north south|south north|
east west|west east|heavy light|tall short|large small|little big|hello goodbye|come go|give take|
always never|never always|everything nothing|alive dead|dead alive|brave cowardly|sweet bitter|tight loose|loose tight|
front back|back front|top bottom|bottom top|begin end|enter exit|arrive depart|laugh cry|smile frown|friend enemy|
enemy friend|male female|female male|man woman|woman man|boy girl|girl boy|king queen|brother sister|father mother|
summer winter|winter summer|warm cool|new old|sharp dull|smooth rough|rough smooth|asleep awake|awake asleep|
remember forget|forget remember|find lose|polite rude|rude polite|beautiful ugly|ugly beautiful|success failure|
add subtract|multiply divide|question answer|more less|many few|best worst|worst best|better worse|odd even|even odd|
young old|ancient modern|sunrise sunset|positive negative|plus minus|minus plus|maximum minimum|minimum maximum
""", " ", [
    "what is the opposite of {s}", "which word is the opposite of {s}", "what's the opposite of {s}",
    "what is the reverse of {s}", "{s} is the opposite of what", "what is the opposite of the word {s}",
    "which word means the opposite of {s}", "what word is opposite to {s}", "the opposite of {s} is what",
    "what is the antonym of {s}", "what is the opposite of \"{s}\"", "which is the opposite of {s}",
    "what would be the opposite of {s}", "what is an antonym for {s}", "the opposite of {s} is",
],
["the opposite of {s}", "the word that means the opposite of {s}", "what the opposite of {s} is", "an antonym of {s}",
    "the opposite of the word {s}"],
    ["opposite of {s}", "the opposite of {s}", "{s}: opposite", "antonym of {s}"], "The opposite of {s} is {v}")

BABIES = _relation("baby", """
dog puppy|cat kitten|cow calf|sheep lamb|horse foal|hen/chicken chick|duck duckling|goose gosling|pig piglet|goat kid|
bear cub|deer fawn|frog tadpole|swan cygnet|kangaroo joey|eagle eaglet|lion cub|wolf pup|fox cub|elephant calf|
whale calf|rabbit kit|owl owlet|tiger cub|seal pup|butterfly caterpillar
""", " ", [
    "what is a baby {s} called", "what is the name of a young {s}", "what do you call a baby {s}",
    "what do we call the baby of {a}", "what do you call a young {s}", "what is the young of {a} called",
    "a baby {s} is called what",
    "what is a young {s} called", "how do you call a baby {s}", "what are baby {s}s called",
    "what is {a}'s baby called",
    "what is the word for a baby {s}",
], ["what a baby {s} is called", "the name of a baby {s}", "the word for a young {s}"],
    ["baby {s}", "a baby {s}", "young of {a}"], "A baby {s} is called {an}")

SOUNDS = _relation("sound", """
dog woof|cat meow|cow moo|duck quack|sheep baa|pig oink|lion roar|bee buzz|owl hoot|snake hiss|horse neigh|
mouse squeak|rooster crow|crow caw|wolf howl|frog croak|donkey bray|goose honk|turkey gobble|bird tweet|chick cheep|
hen/chicken cluck|lamb baa|goat bleat|pigeon/dove coo|tiger roar|bear growl|cricket chirp
""", " ", [
    "what sound does {a} make", "which sound does {a} make", "what does {a} say", "what is the sound of {a}",
    "what noise does {a} make", "what sound do {s}s make", "how does {a} sound", "what sound does the {s} make",
    "what does the {s} say", "what do {s}s say", "{a} makes what sound", "what kind of sound does {a} make",
    "what noise does the {s} make",
], ["the sound of {a}", "what sound {a} makes", "what {a} says", "the noise that {a} makes"],
    ["{s} sound", "sound of {a}", "{a} says"], "The sound of {a} is {v}")

LEGS = _relation("legs", """
dog four|cat four|bird two|spider eight|ant six|bee six|horse four|snake zero|fish zero|man two|cow four|chair four|
table four|insect six|human/person two|chicken/hen two|duck two|elephant four|lion four|octopus eight|beetle six|
butterfly six|pig four|sheep four|crab ten|fly six|frog four|tricycle three|worm zero|mouse four
""", " ", [
    "how many legs does {a} have", "how many legs has {a}", "what is the number of legs of {a}",
    "how many legs are on {a}", "{a} has how many legs", "how many legs do {s}s have", "{a} walks on how many legs",
    "how many legs does the {s} have", "how many legs would {a} have", "what number of legs does {a} have",
], ["how many legs {a} has", "the number of legs of {a}", "the number of legs {a} has"],
    ["legs of {a}", "number of legs: {s}", "{s}, how many legs"], "The number of legs of {a} is {v}")

NEXT = _relation("next", """
Monday Tuesday|Tuesday Wednesday|Wednesday Thursday|Thursday Friday|Friday Saturday|Saturday Sunday|Sunday Monday|
January February|February March|March April|April May|May June|June July|July August|August September|
September October|October November|November December|December January|spring summer|summer autumn|autumn/fall winter|
winter spring|one two|two three|three four|four five|five six|six seven|seven eight|eight nine|nine ten|ten eleven
""", " ", [
    "what comes after {s}", "what follows {s}", "which one comes right after {s}", "what comes next after {s}",
    "what is after {s}", "what comes directly after {s}", "after {s} comes what", "what is next after {s}",
    "what do we have after {s}", "what is the one after {s}",
], ["what comes after {s}", "what follows {s}"], ["after {s}", "next after {s}", "after {s} comes"],
    "After {s} comes {v}")
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_MONTHS = "January February March April May June July August September October November December".split()


def _cycle(kind, names, step):
    """Facts about the neighbour of every day or month, asked for by the word day or month."""
    word, back = ("after", "before") if step > 0 else ("before", "after")
    questions = [f"what {kind} comes {word} {{s}}", f"which {kind} comes {word} {{s}}", f"which {kind} is {word} {{s}}",
                 f"what {kind} is {word} {{s}}", f"what {kind} comes right {word} {{s}}",
                 f"{{s}} comes {back} which {kind}",
                 f"what is the {kind} {word} {{s}}", f"which {kind} is right {word} {{s}}"]
    if step > 0:
        questions += [f"what {kind} follows {{s}}", f"which {kind} follows {{s}}",
                      f"if today is {{s}}, what is tomorrow"
                      if kind == "day" else f"what is the next {kind} after {{s}}"]
    else:
        questions += ["what comes before {s}", "what is before {s}", "what comes right before {s}"]
        questions += ["if today is {s}, what was yesterday"] if kind == "day" else []
    table = "|".join(f"{name} {names[(i + step) % len(names)]}" for i, name in enumerate(names))
    return _relation(f"{kind}_{word}", table, " ", questions,
                     [f"which {kind} comes {word} {{s}}", f"the {kind} {word} {{s}}"],
                     [f"{kind} {word} {{s}}", f"the {kind} {word} {{s}}"],
                     f"The {kind} {word} {{s}} is {{v}}")


CYCLES = (_cycle("day", _DAYS, 1) + _cycle("day", _DAYS, -1) + _cycle("month", _MONTHS, 1) + _cycle("month", _MONTHS,
                                                                                                    -1)
          + _cycle("season", ["spring", "summer", "autumn", "winter"], 1)
          + _cycle("season", ["spring", "summer", "autumn", "winter"], -1)
          + _cycle("number", NUMBERS[1:20], 1)[:-1] + _cycle("number", NUMBERS[:20], -1)[1:]
          + _cycle("letter", list("ABCDEFGHIJKLMNOPQRSTUVWXYZ"), 1)[:-1]
          + _cycle("letter", list("ABCDEFGHIJKLMNOPQRSTUVWXYZ"), -1)[1:])

ORDER = _relation("order", "|".join(
    f"the {NTH} {kind} of the {whole}={name}" for kind, whole, names in
    (("month", "year", _MONTHS), ("day", "week", _DAYS), ("letter", "alphabet", list("ABCDE")))
    for NTH,
    name in zip("first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split(), names))
    + """|the last month of the year=December|the last day of the week=Sunday|the last letter of the alphabet=Z|
the planet closest to the sun/the closest planet to the sun/the first planet from the sun=Mercury|
the third planet from the sun=Earth|the largest planet/the biggest planet/the largest planet in the solar
system=Jupiter|
the red planet=Mars|the planet with rings/the planet with the big rings=Saturn|our planet/the planet we live on=Earth|
the largest ocean/the biggest ocean/the largest ocean on Earth/the largest ocean in the world=the Pacific|
the highest mountain/the tallest mountain/the tallest mountain in the world/the highest mountain on Earth=Mount Everest|
the longest river/the longest river in the world=the Nile|the largest continent/the biggest continent=Asia|
the largest country/the biggest country in the world/the largest country in the world=Russia|
the smallest continent=Australia|the coldest continent=Antarctica|the largest desert=the Sahara|
the largest animal/the biggest animal/the largest animal on Earth/the biggest animal in the world=the blue whale|
the largest land animal/the biggest land animal=the elephant|the tallest animal/the tallest animal in the world=the
giraffe|
the fastest land animal/the fastest animal on land=the cheetah|the king of the jungle/the king of the animals=the lion|
the largest bird/the biggest bird=the ostrich|man's best friend=the dog|the star at the center of our solar system=the
sun|
the closest star to Earth/the nearest star=the sun|the hardest natural material=diamond|the chemical symbol for gold=Au|
the chemical symbol for oxygen=O|the chemical formula of water/the chemical formula for water=H2O|
the symbol for iron=Fe|the square root of nine=three|the square root of sixteen=four|the coldest season=winter|
the hottest season/the warmest season=summer|the shortest month/the shortest month of the year=February|
the freezing point of water in Celsius/the freezing point of water=zero|the boiling point of water in Celsius=one
hundred|
the currency of the United States/the currency of America/the US currency=the dollar|the currency of Japan=the yen|
the currency of England/the currency of the United Kingdom=the pound|the currency of Germany=the euro|
the currency of France=the euro|the currency of India=the rupee|the currency of Russia=the ruble|
the currency of China=the yuan|the currency of Italy=the euro|the past tense of go=went|the past tense of run=ran|
the past tense of eat=ate|the past tense of see=saw|the past tense of buy=bought|the past tense of take=took|
the past tense of write=wrote|the past tense of come=came|the past tense of sing=sang|the past tense of drink=drank|
the past tense of swim=swam|the past tense of speak=spoke|the past tense of give=gave|the past tense of make=made""",
    "=", ["what is {s}", "what's {s}", "which is {s}", "{s} is what", "what is {s} called", "{s} is"],
    ["{s}", "what {s} is", "the name of {s}"], ["{s}"], "{s} is {v}")

LANGUAGES = _relation("language", """
France French|Italy Italian|Germany German|Spain Spanish|England English|Russia Russian|Japan Japanese|China Chinese|
Portugal Portuguese|Greece Greek|Poland Polish|Sweden Swedish|Norway Norwegian|Turkey Turkish|Hungary Hungarian|
Finland Finnish|Denmark Danish|the Netherlands Dutch|Brazil Portuguese|Mexico Spanish|Argentina Spanish|Austria German|
Australia English|America/the United States/the USA English|Egypt Arabic|Vietnam Vietnamese|Korea Korean|Thailand Thai|
Ukraine Ukrainian
""", " ", [
    "what language do people speak in {s}", "which language is spoken in {s}", "what do people speak in {s}",
    "what is the language of {s}", "what language is spoken in {s}", "which language do they speak in {s}",
    "what language do they speak in {s}", "in {s} people speak which language", "what is the official language of {s}",
    "what is the main language of {s}",
], ["the language of {s}", "what language people speak in {s}", "which language is spoken in {s}"],
    ["language of {s}", "language in {s}", "{s}, language"], "In {s} people speak {v}")

CONTINENTS = _relation("continent", """
France Europe|Germany Europe|Italy Europe|Spain Europe|England Europe|Poland Europe|Sweden Europe|Greece Europe|
China Asia|Japan Asia|India Asia|Thailand Asia|Vietnam Asia|Egypt Africa|Kenya Africa|Nigeria Africa|Morocco Africa|
Brazil South_America|Argentina South_America|Peru South_America|Chile South_America|Canada North_America|
the United States/the USA North_America|Mexico North_America|Portugal Europe|Norway Europe
""", " ", [
    "on which continent is {s}", "which continent is {s} in", "what continent is {s} on", "what continent is {s} in",
    "in which continent is {s}", "{s} is on which continent", "{s} lies on which continent",
    "which continent does {s} belong to", "on what continent does {s} lie",
], ["which continent {s} is in", "the continent of {s}", "what continent {s} is on"],
["continent of {s}", "{s}, continent"],
    "{s} is in {v}")

HOME_COUNTRY = _relation("country", "|".join(f"{fact.value.replace(' ', '_')}={fact.name.split(':')[1]}"
                                             for fact in CAPITALS if "Luxembourg" not in fact.value).replace("_", " "),
    "=", [
    "which country is {s} the capital of", "{s} is the capital of which country", "in which country is {s}",
    "what country is {s} in", "{s} is in which country", "what country is {s} the capital of",
    "which country is {s} in",
    "{s} is the capital of what country", "in what country is {s}", "in which country can you find {s}",
], ["which country {s} is in", "the country that {s} is the capital of", "what country {s} is in"],
    ["{s}, country", "country of {s}"], "{s} is the capital of {v}")

PLURALS = _relation("plural", """
mouse mice|child children|man men|woman women|foot feet|tooth teeth|goose geese|person people|sheep sheep|fish fish|
leaf leaves|wolf wolves|knife knives|baby babies|city cities|box boxes|house houses|dog dogs|cat cats|book books|
potato potatoes|tomato tomatoes|ox oxen|deer deer|life lives|wife wives|fox foxes|bus buses|apple apples|car cars|
tree trees|story stories|half halves|shelf shelves|hero heroes|cherry cherries|day days|key keys
""", " ", [
    "what is the plural of {s}", "what's the plural of {s}", "which word is the plural of {s}", "one {s}, two what",
    "what is the plural form of {s}", "how do you write the plural of {s}", "what is the plural of the word {s}",
    "what is the plural of \"{s}\"", "the plural of {s} is what", "one {s}, many what",
], ["the plural of {s}", "the plural form of {s}", "what the plural of {s} is"], ["plural of {s}", "{s}, plural"],
    "The plural of {s} is {v}")

MATERIALS = _relation("material", """
a window/windows=glass|a book/books=paper|a nail/nails=iron|a tire/tires=rubber|a sweater/sweaters=wool|
a wooden table=wood|a coin/coins=metal|a candle/candles=wax|a brick/bricks=clay|bread=flour|cheese=milk|wine=grapes|
a snowman/snowmen=snow|a shoe/shoes=leather|paper=wood|butter=milk|a newspaper=paper|a mirror=glass|a bottle=glass|
ice=water|a cloud/clouds=water|chocolate=cocoa|raisins/a raisin=grapes|orange juice=oranges|apple juice=apples|
an igloo=snow|a sandcastle=sand|french fries=potatoes|ketchup=tomatoes|yogurt=milk|an omelet=eggs
""", "=", [
    "what is {s} made of", "of what is {s} made", "what is {s} made from", "which material is {s} made of",
    "from what is {s} made", "{s} is made of what", "what material is used to make {s}", "what are {s} made of",
    "what do you make {s} from", "what is {s} usually made of",
], ["what {s} is made of", "the material of {s}"], ["material of {s}", "{s} is made of"], "The material of {s} is {v}")

JOBS = _relation("job", """
bakes bread=baker|teaches children/teaches at a school/teaches students=teacher|heals the sick/treats sick
people=doctor|
catches fish=fisherman|flies a plane/flies planes/flies an airplane=pilot|grows wheat/works on a farm=farmer|
paints pictures=painter|writes books/writes novels=writer|sings songs=singer|cuts hair=barber|
puts out fires/fights fires=firefighter|fixes teeth/looks after your teeth=dentist|sews clothes=tailor|
builds tables/works with wood=carpenter|takes care of animals/treats sick animals=vet|repairs pipes/fixes pipes=plumber|
repairs cars/fixes cars=mechanic|sells meat=butcher|delivers letters/brings the mail=mailman|
cooks in a restaurant/cooks food=chef|catches thieves/catches criminals=policeman|flies to space/goes to
space=astronaut|
drives a bus=bus driver|works in a library=librarian|serves food in a restaurant=waiter|takes photographs=photographer|
rules a kingdom=king|sails a ship=sailor|looks after sheep=shepherd|acts in movies=actor
""", "=", [
    "who {s}", "which person {s}", "what do you call someone who {s}", "what is the job of a person who {s}",
    "what do you call a person who {s}", "what is a person who {s} called", "who is the person that {s}",
    "what profession has someone who {s}", "someone who {s} is called what",
], ["who {s}", "what you call someone who {s}", "the word for someone who {s}"],
["someone who {s}", "a person who {s}"],
    "Someone who {s} is called {an}")

# What the tables write with an underscore is a value of several words.
RELATIONS = [
    [dataclasses.replace(fact, value=fact.value.replace("_", " "), sentence=fact.sentence.replace("_", " "))
     for fact in relation]
    for relation in (CAPITALS, COLORS, OPPOSITES, BABIES, SOUNDS, LEGS, NEXT, CYCLES, ORDER, LANGUAGES, CONTINENTS,
                     HOME_COUNTRY, PLURALS, MATERIALS, JOBS)]
