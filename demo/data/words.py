"""Words by hand: what the generator fills its sentences with, and what the tokenizer is made to know whole."""


def _words(text):
    return text.split()


NAMES = _words("""
Mira Tom Anna Leo Nora Ben Clara Omar Lina Paul Rosa Ivan Emma Hugo Sara Finn Maya Karl Zoe Adam Ella Noah Ruth Max Lucy
Igor Jane Otto Vera Sam Alice Bruno Carla David Elena Felix Greta Henry Iris Jack Kate Luis Marta Nils Olga Peter Quinn
Rita Simon Tina Ursula Victor Wanda Yusuf Zara Boris Dora Erik Frida Gina Hans Ines Jonas Kira Lars Mona Nina Oscar
Petra
Ralf Selma Theo Ulla Wilma Yara Amir Bella Cyrus Daisy Emil Flora Gustav Helga Ida Jakob Klara Lukas Milo Nadia Oliver
Paula Robin Stella Tobias Uma Vincent Willow John Mary James Linda Robert Susan Michael Karen William Nancy Thomas Betty
Charles Helen Daniel Sandra Matthew Ashley Mark Donna George Carol Steven Amanda Edward Melissa Brian Laura Kevin Amy
Jason Angela Ryan Brenda Eric Pamela Stephen Nicole Andrew Emily Joshua Rachel Alex Chris Pat Jamie Taylor Jordan Casey
Ahmed Fatima Hassan Leila Wei Ming Yuki Hiro Ravi Priya Arjun Carlos Maria Jose Ana Diego Sofia Pedro Julia Marco Chloe
Grace Lily Ethan Liam Mia Ava Lucas Logan Harry Charlie Martin Rex Bob Joe Tim Jim Dan Ann Sally Molly Ruby Rosie Hannah
Abigail Olivia Isabel Sophie Charlotte Elizabeth Margaret Patrick Sean Kyle Derek Frank Fred Gary Greg Ian Neil Nick
Pete
Phil Ray Rob Roger Ron Scott Steve Ted Tony Will Walter Arthur Albert Ernest Edgar Agnes Beth Claire Diana Eva Fiona
""")
SURNAMES = _words("""
Smith Jones Brown Miller Davis Wilson Moore Clark Lewis Walker Hall Young King Wright Green Baker Adams Nelson Carter
Turner Parker Collins Cook Morgan Bell Murphy Cooper Reed Bailey Cox Ward Gray Watson Brooks Price Bennett Wood Ross
Foster Powell Long Hughes Butler Fisher Hunt Stone Black White Shaw Rice Wolf Lane Berg Lund Meyer Weber Novak Rossi
""")
CITIES = _words("""
Paris Rome Berlin Madrid London Vienna Oslo Lisbon Athens Dublin Prague Warsaw Moscow Cairo Tokyo Beijing Delhi Lima
Quito Ottawa Boston Chicago Denver Dallas Seattle Miami Toronto Sydney Munich Hamburg Milan Naples Venice Lyon Geneva
Zurich Porto Krakow Bergen Bristol Leeds York Oxford Kyoto Osaka Mumbai Nairobi Lagos Dakar Austin Houston Phoenix
Atlanta Detroit Portland Brooklyn Florence Turin Seville Valencia Nice Bordeaux Cologne Frankfurt Dresden Leipzig Bonn
Glasgow Edinburgh Belfast Cardiff Cork Antwerp Utrecht Rotterdam Helsinki Stockholm Copenhagen Riga Vilnius Budapest
Sofia Belgrade Zagreb Istanbul Ankara Dubai Karachi Lahore Bangkok Hanoi Manila Jakarta Seoul Shanghai Melbourne Perth
Auckland Havana Bogota Santiago Montreal Vancouver Casablanca Tunis Accra Singapore Amsterdam Brussels Barcelona
Philadelphia Orlando Memphis Nashville Cleveland Buffalo Vegas Francisco York Angeles Washington Marseille Salzburg
""")
COLORS = _words("""
red blue green yellow white black orange purple pink brown gray silver golden teal violet beige turquoise
""")
ANIMALS = _words("""
cat dog horse cow sheep goat pig duck hen goose fox wolf bear lion tiger mouse rabbit deer owl eagle crow frog snake
whale shark bee ant spider turtle monkey camel donkey elephant giraffe zebra kangaroo koala penguin dolphin parrot swan
swallow sparrow robin rooster chicken turkey rat squirrel hedgehog beaver otter seal octopus crab lobster snail worm
butterfly moth fly mosquito beetle bull calf lamb kitten puppy foal pony bird fish salmon trout lizard crocodile
hamster bat panda leopard cheetah hippo rhino gorilla chimpanzee ostrich peacock pigeon dove hawk raven
""")
FOODS = _words("""
bread cheese apple pear plum cherry lemon carrot onion potato soup cake honey butter milk tea coffee sugar salt pepper
banana grape peach mango melon orange lime strawberry tomato cucumber lettuce cabbage spinach pumpkin bean pea corn rice
pasta noodle pizza sandwich burger salad egg bacon ham sausage beef pork steak cream yogurt chocolate cookie biscuit pie
jam juice water wine beer cider sauce oil vinegar garlic ginger mint basil cinnamon vanilla nut almond walnut peanut
flour dough muffin waffle pancake toast cereal popcorn candy raisin olive mushroom radish celery broccoli
""")
OBJECTS = _words("""
house garden train boat bridge window door table chair lamp book letter song picture clock box bag coat hat shoe cup
plate spoon knife fork basket bottle stone wood iron glass paper cloth rope wheel engine hammer nail ladder fence barn
tower castle stairs mirror blanket pillow bed candle flag prize ticket map key ring coin wallet camera phone radio
computer screen pencil brush violin piano drum guitar pen notebook desk sofa couch shelf drawer cupboard carpet curtain
towel soap bucket broom shovel rake axe saw drill screw bolt wire cable battery charger keyboard printer laptop tablet
television speaker headphones microphone watch glasses umbrella scarf glove sock shirt dress skirt jacket sweater boot
belt button zipper needle thread scissors glue tape ruler eraser chalk board poster stamp envelope package parcel card
gift toy doll ball kite puzzle game dice chess bike bicycle car bus truck van taxi plane rocket ship ferry tent backpack
suitcase tray pot pan kettle oven stove fridge freezer toaster blender bowl jar lid mug napkin jug tap sink bath shower
toilet roof wall floor ceiling chimney gate bench statue fountain sign pipe tube tank barrel crate shield sword crown
necklace bracelet diamond pearl gold silver copper steel brick tile sand clay rubber plastic leather wool cotton silk
magnet compass telescope microscope thermometer scale lock chain hook helmet mask costume balloon whistle bell trumpet
flute harp robot machine lawn mower vacuum heater fan light bulb switch plug socket remote sensor alarm document folder
""")
NATURE = _words("""
river mountain forest lake island beach desert valley hill field sea ocean sky sun moon star planet cloud storm rain
snow wind ice fire smoke flower tree leaf branch root seed grass bush rose tulip lily daisy sunflower oak pine birch
cactus moss fern mud dust rock cliff cave waterfall stream pond swamp jungle meadow volcano earthquake thunder lightning
fog frost rainbow sunrise sunset wave tide shore coast horizon earth world space galaxy comet Earth Mars Venus Jupiter
Saturn Mercury Uranus Neptune Pluto
""")
PLACES = _words("""
market village city street road path church school library museum theater station airport harbor factory kitchen cellar
attic town country office hospital hotel restaurant cafe shop store bank park zoo farm stadium gym pool cinema
university
college court prison mall bakery pharmacy garage basement bedroom bathroom hallway balcony terrace porch yard lobby
corner room building apartment cottage palace temple camp cabin port canal tunnel highway square downtown suburb
""")
PEOPLE = _words("""
farmer teacher doctor baker painter sailor soldier driver pilot singer writer judge king queen child neighbor friend
uncle aunt brother sister grandmother grandfather traveler shepherd fisherman carpenter tailor merchant mother father
son daughter cousin nephew niece boy girl man woman baby person people student nurse dentist barber cook chef waiter
firefighter policeman lawyer engineer scientist artist actor dancer musician plumber electrician mechanic gardener
butcher clerk cashier manager boss captain president prince princess guest visitor customer stranger hero thief spy
wizard witch pirate knight clown librarian photographer journalist astronaut coach player winner secretary colleague
""")
ADJECTIVES = _words("""
old young small big quiet loud warm cold bright dark happy sad clever brave lazy quick slow heavy light soft hard clean
dirty empty full new broken wooden round square long short tall deep wide narrow sweet bitter fresh dry wet strong weak
rich poor kind angry gentle strange famous simple perfect hidden lost ancient modern tiny huge busy calm proud shy
polite
curious careful good bad best worst better worse first last next early late hot cool high low near far open closed true
false right wrong left free cheap expensive easy difficult safe dangerous sharp smooth rough thick thin flat steep
straight real fake same different special common rare normal silent noisy hungry thirsty tired sleepy sick healthy alive
dead smart stupid funny serious friendly cruel honest guilty innocent lucky careless useful useless important public
private single double great large little nice pretty ugly beautiful lovely wonderful terrible awful favorite secret
sour salty spicy raw ripe rotten frozen boiling solid liquid shiny pale dull colorful plain fancy rude patient nervous
excited bored jealous lonely popular local national foreign main whole half extra possible impossible ready
available certain sure clear wild tame sunny cloudy rainy windy snowy foggy stormy fast tight loose male female
""")
PAST_VERBS = _words("""
walked carried painted opened closed found lost bought sold built cleaned watched followed visited remembered forgot
loved liked wanted needed moved pushed pulled lifted dropped kept cooked baked washed fixed borrowed returned counted
covered crossed described discovered drew enjoyed explained imagined invited noticed ordered planted polished prepared
protected repaired studied touched saw took gave made sent wrote read heard held left met paid put said told sang ate
drank drove flew ran swam slept spoke stood threw won wore broke caught chose fell felt fought grew hid hit hurt knew
laid led lent lit rode rang rose shook shot shut sat spent stole taught thought understood woke asked called played
started stopped turned used worked helped tried talked looked waited invented danced laughed jumped climbed
""")
VERBS = _words("""
go be have do say get make know think take see come want look use find give tell work call try ask need feel become
leave put mean keep let begin help show hear play run move live believe bring write sit stand lose pay meet include
continue set learn change lead understand watch follow stop create speak read spend grow open walk win teach offer
remember consider appear buy serve die send build stay fall cut reach kill raise pass sell decide return explain hope
carry break receive agree support hold turn drive draw choose cause point listen catch add count sing dance swim fly
jump climb cook bake wash clean fix paint close lock unlock push pull lift drop throw kick hit touch smell taste eat
drink sleep wake dream laugh cry smile shout whisper answer reply repeat copy print type spell translate calculate
compute sum multiply divide subtract search book order cancel schedule remind play pause start share save delete remove
download upload install update check test measure weigh compare convert list sort filter join post invite reserve rent
borrow lend repair plan visit travel arrive depart wait hurry rest relax exercise train practice study enjoy prefer
love like hate want wish wonder guess imagine suppose forget notice describe mention suggest recommend warn promise
""")
ADVERBS = _words("""
slowly quickly quietly often never always again early late yesterday today carefully gladly together alone soon suddenly
happily tomorrow tonight now then later already still yet just only also too very really quite almost maybe perhaps
usually sometimes rarely here there everywhere nowhere inside outside upstairs downstairs well badly easily exactly
nearly finally once twice instead away back forward ago anymore especially
""")
PREPOSITIONS = _words("near behind under above beside inside across from toward around between through over below")
FUNCTION = _words("""
the a an and or but if because so as at by for in of on to with about after before against during into onto out up down
off until while since without within along among upon per via than that this these those it its he she they them his her
him their we us our you your I me my mine yours is am are was were been being has had does did can could will would
shall should may might must not no yes what which who whom whose when where why how all any both each every few more
most much many other some such own one two three four five six seven eight nine ten eleven twelve thirteen fourteen
fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand
million zero first second third fourth fifth sixth seventh eighth ninth tenth please thank thanks sorry hello hi hey
okay ok bye goodbye welcome dear sir madam there here ever else another anything something nothing everything anyone
someone nobody everyone myself yourself itself whatever let's
""")
ABSTRACT = _words("""
morning evening summer winter spring autumn fall holiday journey story secret promise question answer idea dream word
sentence text line page number name date day week month year hour minute second time night noon midnight weekend
birthday
year century moment season age life death love hate war peace health sickness work job task project plan meeting
appointment event party wedding trip flight tour visit class lesson course exam test grade degree subject math history
science art music poem novel movie film show play sport football soccer basketball tennis hockey golf race team match
score goal point level color shape size weight height length width distance speed temperature weather price cost money
dollar euro pound cent tax bill account balance payment order request message email address city phone code password
username user file folder path image video audio link website page internet network server system program software
hardware data database table row column value key type list item group set part piece end start middle top bottom side
front back left right north south east west capital language law rule reason cause effect result change problem solution
mistake error truth lie fact fiction news report opinion advice help hope fear anger joy luck chance risk danger safety
power energy force heat light sound noise silence voice smell taste touch sight memory mind brain heart hand foot leg
arm
head face eye ear nose mouth tooth teeth hair skin bone blood finger toe knee back neck shoulder stomach government
president minister election vote party army police economy business company office industry market trade product service
customer quality quantity amount total sum difference product average maximum minimum percent half quarter opposite
sound baby legs letters sides planet metal gas acid element symbol formula theory experiment gravity electricity
population area river border continent ocean culture religion tradition festival Christmas Easter title author
description
category status priority location destination topic query limit unit mode format version option color brightness volume
duration room floor seat guest reservation recipe ingredient note reminder contact calendar stock currency rate route
""")
COUNTRY_WORDS = _words("""
France Italy Germany Spain England Austria Norway Portugal Greece Ireland Poland Russia Egypt Japan China India Peru
Canada Sweden Finland Denmark Hungary Turkey Mexico Brazil Argentina Chile Australia Scotland Wales Switzerland Belgium
Netherlands Ukraine Romania Bulgaria Serbia Croatia Iceland Cuba Kenya Thailand Vietnam Iran Iraq Korea America United
States Kingdom Israel Nigeria Morocco Europe Asia Africa Antarctica English French German Spanish Italian Russian
Chinese
Japanese Portuguese Greek Polish Swedish Norwegian Turkish Dutch Danish Finnish Arabic Hindi Latin American British
Pacific Atlantic Indian Arctic Everest Nile Amazon Thames Shakespeare Einstein Newton Lincoln Washington Monday Tuesday
Wednesday Thursday Friday Saturday Sunday January February March April May June July August September October November
December Lockstep Mr Mrs Dr
""")
TECH = _words("""
get set add remove create delete update find search list send read write open close start stop play make show check
string integer number boolean array object enum true false null name type description parameters properties required
function tool result status error ok json txt csv md py html http https www com org net io id url api uri sql xml yaml
log config src bin lib app web main index test init user admin root home tmp var opt usr etc dev prod debug info warn
def class return import export const let var int float str bool void for while else elif try except print self lambda
async await public private static new this null None True False readme notes report budget invoice draft backup photo
celsius fahrenheit km miles kg lbs USD EUR GBP JPY AM PM am pm
""")

EVERY_WORD = list(dict.fromkeys(
    FUNCTION + NAMES + SURNAMES + CITIES + COLORS + ANIMALS + FOODS + OBJECTS + NATURE + PLACES + PEOPLE + ADJECTIVES
    + PAST_VERBS + VERBS + ADVERBS + PREPOSITIONS + ABSTRACT + COUNTRY_WORDS + TECH))
THINGS = OBJECTS + FOODS
NOUNS = OBJECTS + FOODS + NATURE[:60] + PLACES + PEOPLE + ANIMALS

_ONSETS = _words("b c d f g h j k l m n p r s t v w z st tr pl br cl gr sh ch th fl kr")
_VOWELS = _words("a e i o u ai ou ee oa ia")
_ENDS = ["", "", "n", "s", "r", "l", "x", "m", "ck", "nd"]


def invented(rng):
    """A word that is none, of one to three syllables."""
    count = rng.choice((1, 2, 2, 2, 3))
    return "".join(rng.choice(_ONSETS) + rng.choice(_VOWELS) for _ in range(count)) + rng.choice(_ENDS)


def any_word(rng):
    """A word of the lists, now and then an invented one."""
    return invented(rng) if rng.random() < 0.06 else rng.choice(EVERY_WORD)


def capital(text):
    return text[:1].upper() + text[1:]


def with_article(noun):
    return ("an " if noun[:1].lower() in "aeiou" else "a ") + noun


def person(rng):
    name = rng.choice(NAMES)
    return f"{name} {rng.choice(SURNAMES)}" if rng.random() < 0.25 else name


_RELATIVES = ["friend", "uncle", "aunt", "neighbor", "sister", "brother", "cousin", "boss", "teacher"]


def sentence(rng):
    """One plain sentence that says nothing worth remembering."""
    shape = rng.randrange(13)
    noun, other = rng.choice(NOUNS), rng.choice(NOUNS)
    one, two = rng.choice(ADJECTIVES), rng.choice(ADJECTIVES)
    verb = rng.choice(PAST_VERBS)
    if shape == 0:
        return f"The {one} {noun} {verb} the {other} {rng.choice(ADVERBS)}."
    if shape == 1:
        return f"{rng.choice(NAMES)} {verb} the {one} {other} {rng.choice(PREPOSITIONS)} the {noun}."
    if shape == 2:
        return f"{capital(rng.choice(ADVERBS))} the {noun} was {one} and {two}."
    if shape == 3:
        return f"There was {with_article(one)} {noun} {rng.choice(PREPOSITIONS)} the {other}."
    if shape == 4:
        return f"In {rng.choice(CITIES)} the {noun} is {one}, but the {other} is {two}."
    if shape == 5:
        return f"My {rng.choice(_RELATIVES)} {verb} {with_article(one)} {noun} and {with_article(two)} {other}."
    if shape == 6:
        return f"We {verb} the {noun} for {rng.randint(2, 90)} {rng.choice(['days', 'hours', 'minutes', 'years'])}."
    if shape == 7:
        return f"I think that the {noun} of the {rng.choice(PEOPLE)} looks {one}."
    if shape == 8:
        return f"When the {rng.choice(PEOPLE)} {verb} the {noun}, {rng.choice(NAMES)} {rng.choice(PAST_VERBS)} it."
    if shape == 9:
        return f"They could {rng.choice(VERBS)} the {other}, and nobody {verb} the {noun}."
    if shape == 10:
        return f"\"{capital(one)} {noun},\" {rng.choice(['said', 'asked', 'whispered'])} the {rng.choice(PEOPLE)}."
    if shape == 11:
        return f"It was a {one} {rng.choice(['morning', 'evening', 'night', 'day', 'week'])} in {rng.choice(CITIES)}."
    return capital(" ".join(any_word(rng) for _ in range(rng.randint(4, 11)))) + "."


def filler(rng, words):
    """Sentences of about so many words in all."""
    out, count = [], 0
    while count < words:
        out.append(sentence(rng))
        count += out[-1].count(" ") + 2
    return " ".join(out)
