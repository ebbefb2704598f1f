"""Tools by hand: name, description, parameters, ways to ask for them, and what they may give back.

A parameter is written slot:kind, with ? when it may be left out; kinds are in tool_values.py. In a wording {slot} is
 the
value, and a part in [brackets] stands only when the optional parameters inside it are given. A result is field:kind;
`answer` is a sentence for results of several fields. Without a result the tool only reports success.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Tool:
    name: str
    description: str
    slots: tuple      # (slot, kind, is optional)
    wordings: tuple
    results: tuple    # (field, kind)
    answer: str


def _tool(name, description, slots, wordings, results="", answer=""):
    parsed = []
    for slot in slots.split():
        label, kind = slot.split(":")
        parsed.append((label, kind.rstrip("?"), kind.endswith("?")))
    return Tool(name, description, tuple(parsed),
                tuple(wording.strip() for wording in " ".join(wordings.split()).split("|")),
                tuple(tuple(field.split(":")) for field in results.split()), answer)


TOOLS = [
    _tool("get_weather", "Get the current weather in a city", "city:city",
          """What is the weather in {city}?|How is the weather in {city}?|How is the weather in {city} today?|
Tell me the weather for {city}.|Check the weather in {city}.|What's the weather like in {city}?|
Is it raining in {city}?|weather in {city}|Weather in {city}, please.|I am going to {city}. How is the weather there?|
Look up the weather for {city}.|Do I need an umbrella in {city}?|Give me the weather of {city}.|
What is it like outside in {city}?""",
          "temperature:degrees sky:sky",
          "It is {temperature} degrees and {sky}."),
    _tool("get_temperature", "Get the temperature in a city", "city:city unit:temperature_unit?",
          """What is the temperature in {city}[ in {unit}]?|How warm is it in {city}[ in {unit}]?|
How cold is it in {city}[ in {unit}]?|Tell me the temperature of {city}[ in {unit}].|
How hot is {city} right now[, in {unit}]?|Temperature in {city}[ in {unit}]?|
Give me the temperature in {city}[, in {unit}].""", "temperature:degrees"),
    _tool("get_forecast", "Get the weather forecast of a city for some days", "city:city days:small",
          """What will the weather be in {city} for the next {days} days?|
Give me the forecast for {city} for {days} days.|Forecast for {city}, {days} days.|
I need a {days} day forecast for {city}.|How will the weather be in {city} over {days} days?""", "forecast:sky"),
    _tool("get_time", "Get the current time in a city", "city:city",
          """What time is it in {city}?|Tell me the time in {city}.|How late is it in {city}?|
What is the time in {city}?|What's the time in {city} now?|Time in {city}?|Current time in {city}, please.|
Do you know what time it is in {city}?""", "time:time"),
    _tool("send_message", "Send a message to a person", "to:person text:text",
          """Send {to} the message: {text}|Write to {to}: {text}|Tell {to} this: {text}|Message {to}: {text}|
Send a message to {to}: {text}|Text {to}: {text}|Send "{text}" to {to}.|Let {to} know: {text}|
Please message {to} saying "{text}".|Send {to} a message that says "{text}".|Tell {to} "{text}".|
Tell {to} that {text}.|Let {to} know that {text}.|Text {to} that {text}.|Message {to} that {text}.|
Write {to} that {text}.|
Can you tell {to} that {text}?|Please let {to} know that {text}.|Send {to} a message: {text}|
Send {to} this message: {text}""", ""),
    _tool("send_email", "Send an email", "to:email subject:text body:text?",
          """Send an email to {to} with the subject "{subject}"[ and the text "{body}"].|
Email {to} about "{subject}"[ and say "{body}"].|Write an email to {to}, subject "{subject}"[, text "{body}"].|
Mail to {to}: subject {subject}[, body {body}]|Send {to} an email titled "{subject}"[ with the body "{body}"].|
Send an email to {to} with the subject {subject}[ and the text {body}].|
Email {to} with subject {subject}[ and body {body}].|
Write to {to} with the subject {subject}[ and the message {body}].""", ""),
    _tool("search_web", "Search the web", "query:text",
          """Search the web for {query}.|Look up {query} on the web.|Find pages about {query}.|Google {query}.|
Search for {query}.|Search online for {query}|Look for {query} on the internet.|Find {query} online.|
Do a web search for "{query}".|Please search the internet for {query}.|web search: {query}|
Find information about {query}.|Look up {query}.""",
          "title:text"),
    _tool("calculate", "Evaluate an arithmetic expression", "expression:expression",
          """Use the calculator for {expression}.|Evaluate {expression} with the tool.|
Run the calculator on {expression}.|Calculate {expression} with the calculator.|Use the tool to compute {expression}.|
What is {expression}? Use the calculator.|Compute {expression}.|What is {expression}?|Calculate {expression}.|
How much is {expression}?""", "result:number"),
    _tool("set_alarm", "Set an alarm", "time:time label:text?",
          """Wake me at {time}[ with the label "{label}"].|Set an alarm for {time}[ called "{label}"].|
I need an alarm at {time}[ named "{label}"].|Alarm at {time}[, label "{label}"].|
Please wake me up at {time}[, label it "{label}"].|Set my alarm to {time}[ and call it "{label}"].""", ""),
    _tool("set_timer", "Start a timer", "minutes:minutes",
          """Start a timer for {minutes} minutes.|Set a timer for {minutes} minutes.|Timer: {minutes} minutes.|
Count down {minutes} minutes.|Set a {minutes} minute timer.|Start a {minutes}-minute timer.|
Give me a timer of {minutes} minutes.|Please time {minutes} minutes.|timer for {minutes} minutes|
Can you start a timer of {minutes} minutes?|Set a timer for {minutes} min.|
Set the timer to {minutes} minutes.|Wake me in {minutes} minutes.|I need a timer for {minutes} minutes.|
Start a timer of {minutes} minutes, please.""", ""),
    _tool("set_reminder", "Create a reminder", "text:text time:time",
          """Remind me at {time}: {text}|Remind me at {time} to {text}.|Set a reminder for {time}: {text}|
At {time} remind me of "{text}".|Create a reminder "{text}" at {time}.|I need a reminder at {time}: {text}|
Remind me to {text} at {time}.|
Please remind me to {text} at {time}.|Remind me at {time} that {text}.|Can you remind me to {text} at {time}?|
Don't let me forget to {text} at {time}.""", ""),
    _tool("play_music", "Play a song", "song:text artist:person?",
          """Play the song {song}[ by {artist}].|I want to hear {song}[ by {artist}].|Put on {song}[ by {artist}].|
Play {song}[ by {artist}].|Please play "{song}"[ by {artist}].|Start the song "{song}"[ from {artist}].|
Music: {song}[ by {artist}]""", ""),
    _tool("set_volume", "Set the volume of the speaker", "level:percent",
          """Set the volume to {level}.|Volume {level}.|Turn the volume to {level}.|Make the volume {level}.|
Change the volume to {level}.|Put the volume at {level} percent.|Please set the volume to {level}.""", ""),
    _tool("translate", "Translate a text into a language", "text:text language:language",
          """Translate into {language}: {text}|How do you say "{text}" in {language}?|
Give me the {language} for: {text}|Translate "{text}" into {language}.|Translate "{text}" to {language}.|
What is "{text}" in {language}?|Say "{text}" in {language}.|Put "{text}" into {language}.|
I need "{text}" in {language}.|{language} translation of "{text}", please.""", "translation:foreign"),
    _tool("convert_currency", "Convert an amount of money into another currency",
          "amount:amount from:currency to:currency", """Convert {amount} {from} to {to}.|
How many {to} are {amount} {from}?|Change {amount} {from} into {to}.|What is {amount} {from} in {to}?|
How much is {amount} {from} in {to}?|{amount} {from} in {to}|I have {amount} {from}. How much is that in {to}?|
Exchange {amount} {from} for {to}.""",
          "amount:number"),
    _tool("convert_units", "Convert a value from one unit to another", "value:amount from:unit to:unit",
          """Convert {value} {from} to {to}.|How many {to} are {value} {from}?|What is {value} {from} in {to}?|
Change {value} {from} into {to}.|{value} {from} to {to}|How much is {value} {from} in {to}?""",
          "value:number"),
    _tool("read_file", "Read a file", "path:file",
          """Read the file {path}.|Show me what is in {path}.|Open {path} and read it.|What is in {path}?|
What does {path} say?|Read {path}|Print the contents of {path}.|Show {path}.|Give me the contents of {path}.|cat {path}|
Open the file {path}.|Please read {path}.|Let me see {path}.""", "content:text"),
    _tool("write_file", "Write text to a file", "path:file content:text",
          """Write into {path} this text: {content}|Save to {path} the text: {content}|
Create the file {path} with: {content}|Write "{content}" to {path}.|Save "{content}" in {path}.|
Put "{content}" into {path}.|Create {path} with the content "{content}".|
Write the text "{content}" into the file {path}.""", ""),
    _tool("delete_file", "Delete a file", "path:file",
          """Delete {path}.|Remove the file {path}.|Delete the file {path}.|Please delete {path}.|rm {path}|
Get rid of {path}.|Erase {path}.|I do not need {path} anymore. Delete it.""", ""),
    _tool("rename_file", "Rename a file", "old:file new:file",
          """Rename {old} to {new}.|Change the name of {old} to {new}.|Rename the file {old} to {new}.|
Move {old} to {new}.|Please rename {old} as {new}.|{old} should be called {new}.""", ""),
    _tool("list_files", "List the files of a folder", "folder:word",
          """List the files in {folder}.|What files are in the folder {folder}?|Show the folder {folder}.|
Which files are in {folder}?|List {folder}.|ls {folder}|What is in the folder {folder}?|
Show me all files in {folder}.""", "files:files"),
    _tool("run_command", "Run a shell command", "command:command",
          """Run the command {command}.|Run `{command}`.|Execute {command}.|Run {command} in the shell.|
Please run "{command}".|Execute the command "{command}".|run {command}""", "output:text"),
    _tool("turn_on_light", "Turn on the light in a room", "room:room brightness:percent?",
          """Turn on the light in the {room}[ at {brightness} percent].|
Light in the {room}, please[, {brightness} percent].|Make the {room} bright[, brightness {brightness}].|
Switch on the {room} light[ at {brightness} percent].|Turn the light on in the {room}[ with brightness {brightness}].|
It is dark in the {room}. Turn on the light[ at {brightness} percent].|
Lights on in the {room}[, {brightness} percent].""", ""),
    _tool("turn_off_light", "Turn off the light in a room", "room:room",
          """Turn off the light in the {room}.|Switch off the {room} light.|Lights off in the {room}.|
Turn the light in the {room} off.|Make the {room} dark.|No light in the {room}, please.|
Please turn off the lights in the {room}.""", ""),
    _tool("set_light", "Switch a light on or off", "room:room on:onoff",
          """Turn {on} the light in the {room}.|Switch {on} the {room} light.|Turn the {room} light {on}.|
Switch the light in the {room} {on}.|The light in the {room} should be {on}.|{room} light {on}, please.""", ""),
    _tool("set_temperature", "Set the temperature of a room", "room:room degrees:warmth",
          """Heat the {room} to {degrees} degrees.|Set the {room} to {degrees} degrees.|
Make it {degrees} degrees in the {room}.|Set the temperature in the {room} to {degrees}.|
I want {degrees} degrees in the {room}.|Change the {room} temperature to {degrees} degrees.|
Warm the {room} up to {degrees} degrees.|{degrees} degrees in the {room}, please.""", ""),
    _tool("lock_door", "Lock a door", "door:door",
          """Lock the {door} door.|Please lock the {door} door.|Lock up the {door} door.|
Make sure the {door} door is locked.|Close and lock the {door} door.|The {door} door must be locked.""", ""),
    _tool("find_phone", "Find the phone number of a person", "name:person",
          """What is the phone number of {name}?|Find the number of {name}.|Look up {name}'s number.|
What is {name}'s phone number?|Find {name}'s phone number.|I need the number of {name}.|How can I call {name}?|
Get the phone number of {name}.""", "phone:phone"),
    _tool("call_person", "Call a person", "name:person",
          """Call {name}.|Phone {name}.|Please call {name}.|Ring {name}.|Give {name} a call.|I want to talk to {name}.|
Make a call to {name}.|Dial {name}.|Start a call with {name}.""", ""),
    _tool("roll_dice", "Roll a dice", "sides:sides",
          """Roll a dice with {sides} sides.|Throw a {sides} sided dice.|I need a random roll of {sides}.|
Roll a {sides}-sided die.|Roll a d{sides}.|Throw a dice with {sides} sides for me.|
Please roll a {sides} sided die.""", "value:small"),
    _tool("random_number", "Draw a random number between two numbers", "low:small high:amount",
          """Give me a random number between {low} and {high}.|Pick a number from {low} to {high}.|
Random number between {low} and {high}, please.|Draw a number between {low} and {high}.|
Choose a number from {low} to {high}.""",
          "number:small"),
    _tool("get_price", "Get the price of a product", "product:thing",
          """What does the {product} cost?|Find the price of the {product}.|How expensive is the {product}?|
How much is the {product}?|What is the price of the {product}?|Price of the {product}?|
Tell me the price of the {product}.|How much does the {product} cost?""", "price:amount"),
    _tool("get_stock_price", "Get the current price of a stock", "symbol:symbol",
          """What is the price of {symbol}?|What is the stock price of {symbol}?|How much is {symbol} worth?|
Get the stock price of {symbol}.|How is the stock {symbol} doing?|Quote for {symbol}.|Check the {symbol} stock.|
What does a share of {symbol} cost?""", "price:decimal"),
    _tool("order_food", "Order food", "item:food quantity:small",
          """Order {quantity} {item}s.|I want {quantity} {item}s.|Please order {quantity} {item}s.|
Get me {quantity} {item}s.|Buy {quantity} {item}s.|We need {quantity} {item}s.|I would like {quantity} {item}s.|
Can I have {quantity} {item}s?""",
          "order:amount"),
    _tool("add_to_cart", "Add a product to the shopping cart", "product:thing quantity:small?",
          """Add the {product} to my cart[, {quantity} times].|
Put the {product} into the cart[, {quantity} of them].|Put the {product} in my shopping cart[, quantity {quantity}].|
Add the product {product} to the cart[, quantity {quantity}].""", ""),
    _tool("add_todo", "Add a task to the list", "task:text priority:priority?",
          """Add to my list: {task}[ with {priority} priority]|New task: {task}[, {priority} priority]|
Add the task "{task}"[ with {priority} priority].|Put "{task}" on my to-do list[ with {priority} priority].|
Add "{task}" to my tasks[, priority {priority}].|Add {task} to my list[ with {priority} priority].|
Put {task} on my list[ with {priority} priority].|Add {task} to my to-do list[ with {priority} priority].""", ""),
    _tool("book_table", "Book a table in a restaurant", "restaurant:place_name people:small time:time",
          """Book a table for {people} at {restaurant} at {time}.|Reserve {people} seats in {restaurant} for {time}.|
Table for {people} at {restaurant}, {time}.|I want a table at {restaurant} for {people} people at {time}.|
Reserve a table for {people} in {restaurant} at {time}.""", "code:amount"),
    _tool("book_flight", "Book a flight", "from:city to:city date:date",
          """Book a flight from {from} to {to} on {date}.|I need a flight from {from} to {to} on {date}.|
Fly me from {from} to {to} on {date}.|Get me a plane ticket from {from} to {to} for {date}.|
Flight from {from} to {to}, {date}.""", "flight:symbol"),
    _tool("find_train", "Find the next train between two cities", "from:city to:city",
          """When does the next train go from {from} to {to}?|Find a train from {from} to {to}.|
Next train from {from} to {to}?|How do I get from {from} to {to} by train?|I need a train from {from} to {to}.|
Train {from} to {to}""",
          "departure:time"),
    _tool("get_distance", "Get the distance between two cities in kilometers", "from:city to:city",
          """How far is it from {from} to {to}?|What is the distance from {from} to {to}?|
What is the distance between {from} and {to}?|How many kilometers are between {from} and {to}?|Distance {from} to {to}?|
How far is {to} from {from}?""", "kilometers:amount"),
    _tool("get_directions", "Get directions to a place", "destination:place_name mode:travel_mode?",
          """How do I get to {destination}[ by {mode}]?|Directions to {destination}[ by {mode}].|
Show me the way to {destination}[ by {mode}].|Give me directions to {destination}[ by {mode}].|
Take me to {destination}[ by {mode}].""", "route:text"),
    _tool("add_event", "Add an event to the calendar", "title:text date:date time:time?",
          """Add "{title}" to my calendar on {date}[ at {time}].|Put "{title}" in the calendar for {date}[ at {time}].|
Create an event "{title}" on {date}[ at {time}].|New event: {title}, {date}[, {time}]|
Schedule "{title}" on {date}[ at {time}].""", ""),
    _tool("get_calendar", "Get the events of a day", "date:date",
          """What is on my calendar on {date}?|What do I have on {date}?|Show my events for {date}.|
Am I free on {date}?|What are my plans for {date}?|List my appointments on {date}.|Check my calendar for {date}.""",
          "events:text"),
    _tool("get_news", "Get news about a topic", "topic:thing",
          """What is new about {topic}?|Give me news on {topic}.|Any news about {topic}?|Latest news about {topic}.|
Show me the news on {topic}.|News about {topic}, please.|What is happening with {topic}?""", "headline:text"),
    _tool("define_word", "Look up the definition of a word", "word:word",
          """Define {word}.|What does the word {word} mean?|Look up the word {word}.|Give me the definition of {word}.|
What does "{word}" mean?|What is the meaning of {word}?|Definition of {word}, please.""", "definition:text"),
    _tool("create_user", "Create a user account", "name:person email:email admin:admin?",
          """Create a user {name} with the email {email}[ {admin}].|Add the user {name}, email {email}[, {admin}].|
Make an account for {name} ({email})[ {admin}].|New user: {name}, {email}[, {admin}]""", "id:amount"),
    _tool("get_user", "Get a user by id", "id:amount",
          """Show user {id}.|Get the user with id {id}.|Who is user {id}?|Look up user {id}.|Find user number {id}.|
What is the name of user {id}?|Get user {id}""", "name:person"),
    _tool("create_note", "Create a note", "text:text title:word?",
          """Note: {text}|Make a note: {text}|Write a note[ titled {title}]: {text}|
Take a note[ with the title {title}]: {text}|Create a note[ called {title}] that says "{text}".|
Save the note "{text}"[ under {title}].""", ""),
    _tool("open_app", "Open an application", "app:app",
          """Open {app}.|Start {app}.|Launch {app}.|Please open {app}.|Open the app {app}.|Start the application {app}.|
Run the {app} app.|I want to use {app}.""", ""),
    _tool("open_url", "Open a web page", "url:url",
          """Open {url}.|Go to {url}.|Open the page {url}.|Show me {url}.|Visit {url}.|Load {url} in the browser.|
Open the website {url}.|Fetch {url}""", "title:text"),
    _tool("take_photo", "Take a photo", "flash:flash?",
          """Take a photo[ {flash}].|Take a picture[ {flash}].|Make a photo[ {flash}].|Please take a photo[ {flash}].|
Snap a picture[ {flash}].""", ""),
    _tool("get_date", "Get today's date", "",
          """What is the date today?|What day is it?|Tell me today's date.|What is today's date?|Which day is today?|
What date is it?|Today's date?""", "date:date"),
    _tool("count_words", "Count the words of a text", "text:text",
          """Count the words in "{text}".|How many words are in "{text}"?|Count the words of this text: {text}|
Word count of "{text}"?|How many words has this: {text}""", "words:small"),
    _tool("reverse_text", "Reverse a text", "text:text",
          """Reverse the text "{text}".|Reverse this: {text}|Write "{text}" backwards.|Turn around "{text}".|
What is "{text}" backwards?|Spell "{text}" in reverse.""", "text:foreign"),
    _tool("check_stock", "Check whether a product is available", "product:thing",
          """Is the {product} available?|Do you have the {product}?|Is the {product} in stock?|
Check if the {product} is in stock.|Can I get the {product}?|Check the stock of {product}.""", "available:yesno"),
    _tool("track_package", "Find where a package is", "number:symbol",
          """Where is my package {number}?|Track the package {number}.|Track {number}.|Where is the parcel {number}?|
What is the status of package {number}?|Find my package {number}.""", "location:city"),
    _tool("get_population", "Get the population of a city", "city:city",
          """How many people live in {city}?|What is the population of {city}?|How big is {city}?|Population of {city}?|
Tell me the population of {city}.|How many inhabitants has {city}?""", "population:large"),
    _tool("pay", "Pay money to a person", "to:person amount:decimal note:text?",
          """Pay {to} {amount} dollars[ for "{note}"].|Send {amount} dollars to {to}[ with the note "{note}"].|
Transfer {amount} to {to}[, note "{note}"].|Give {to} {amount} dollars[ and write "{note}"].|
I owe {to} {amount} dollars. Pay it[ with the note "{note}"].""", ""),
    _tool("get_balance", "Get the balance of an account", "account:account",
          """What is the balance of my {account} account?|How much money is in my {account} account?|
Check my {account} account.|Balance of the {account} account?|How much do I have in {account}?|
Show the balance of the {account} account.""", "balance:decimal"),
    _tool("move_robot", "Move the robot", "direction:direction steps:small",
          """Move the robot {steps} steps {direction}.|Go {steps} steps {direction}.|Robot: {steps} steps {direction}.|
Walk {direction} for {steps} steps.|Move {direction} {steps} steps.|Take {steps} steps {direction}.""", ""),
    _tool("draw_shape", "Draw a shape", "shape:shape color:color size:amount?",
          """Draw a {color} {shape}[ of size {size}].|I want a {color} {shape}[, size {size}].|
Paint a {color} {shape}[ with size {size}].|Make a {shape} in {color}[, size {size}].|
Show me a {color} {shape}[ of size {size}].""", ""),
    _tool("set_color", "Set the color of an object", "object:thing color:color",
          """Make the {object} {color}.|Color the {object} {color}.|Paint the {object} {color}.|
Change the color of the {object} to {color}.|Set the {object} to {color}.|The {object} should be {color}.|
Turn the {object} {color}.""", ""),
    _tool("get_recipe", "Find a recipe for a dish", "dish:food servings:small?",
          """Find a recipe for {dish}[ for {servings} people].|How do I make {dish}[ for {servings} people]?|
Give me a recipe for {dish}[ for {servings}].|I want to cook {dish}[ for {servings} people].|
Recipe for {dish}[, {servings} servings]?""", "recipe:text"),
    _tool("subscribe", "Subscribe an email address to a list", "email:email list:word",
          """Subscribe {email} to {list}.|Add {email} to the {list} list.|Sign up {email} for {list}.|
Put {email} on the list {list}.""", ""),
    _tool("create_issue", "Create an issue in the tracker", "title:text priority:priority labels:labels?",
          """Create an issue "{title}" with {priority} priority[ and the labels {labels}].|
File a {priority} priority issue: "{title}"[, labels {labels}].|
New issue "{title}", priority {priority}[, labels {labels}].""", "number:amount"),
    _tool("book_hotel", "Book a hotel room", "city:city nights:small guests:small?",
          """Book a hotel in {city} for {nights} nights[ for {guests} guests].|
I need a hotel in {city} for {nights} nights[, {guests} people].|
Find me a room in {city} for {nights} nights[ for {guests} people].|
Hotel in {city}, {nights} nights[, {guests} guests].|
Reserve a hotel room in {city} for {nights} nights[ and {guests} guests].""", "confirmation:symbol"),
    _tool("set_thermostat", "Set the thermostat to a temperature", "temperature:warmth",
          """Set the thermostat to {temperature}.|Set the thermostat to {temperature} degrees.|
Make it {temperature} degrees.|Heat the house to {temperature} degrees.|Change the temperature to {temperature}.|
I want it {temperature} degrees warm.|Turn the heating to {temperature} degrees.|thermostat {temperature}""", ""),
    _tool("send_sms", "Send a text message to a phone number", "number:phone text:text",
          """Send an SMS to {number}: {text}|Text {number}: {text}|Send "{text}" to the number {number}.|
SMS to {number} saying "{text}".|Text the number {number} "{text}".""", ""),
    _tool("find_restaurant", "Find a restaurant in a city", "city:city cuisine:language?",
          """Find a restaurant in {city}[ with {cuisine} food].|Where can I eat in {city}[, {cuisine} food]?|
I am hungry. Find a place to eat in {city}[ with {cuisine} food].|Find me a[ {cuisine}] restaurant in {city}.|
Look for a[ {cuisine}] restaurant in {city}.""", "name:place_name"),
    _tool("get_score", "Get the last score of a team", "team:word",
          """What is the score of {team}?|How did {team} play?|Did {team} win?|Score of {team}?|
What was the result of {team}?|Get the last score of {team}.|How did the {team} game end?""", "score:time"),
    _tool("get_sunrise", "Get the time of sunrise in a city", "city:city date:date?",
          """When does the sun rise in {city}[ on {date}]?|When is sunrise in {city}[ on {date}]?|
Sunrise in {city}[, {date}]?|At what time does the sun come up in {city}[ on {date}]?|
Tell me the sunrise time for {city}[ on {date}].""", "sunrise:time"),
    _tool("add_numbers", "Add two numbers", "a:amount b:amount",
          """Use the tool to add {a} and {b}.|Add {a} and {b} with the tool.|What is {a} plus {b}? Use the tool.|
Add {a} and {b}, please use the tool.|Let the tool add {a} and {b}.""", "sum:amount"),
    _tool("multiply", "Multiply two numbers", "a:amount b:amount",
          """Multiply {a} by {b}.|What is {a} times {b}?|{a} times {b}?|Multiply {a} and {b}.|{a} * {b}|
How much is {a} times {b}?|Compute {a} times {b}.|What is {a} * {b}?""", "product:large"),
    _tool("get_capital", "Look up the capital of a country", "country:word",
          """Look up the capital of {country}.|Use the tool to find the capital of {country}.|
Find the capital of {country} with the tool.|Ask the tool for the capital of {country}.""", "capital:city"),
    _tool("get_exchange_rate", "Get the exchange rate between two currencies", "base:currency target:currency",
          """What is the exchange rate from {base} to {target}?|Exchange rate {base} to {target}?|
How many {target} do I get for one of the {base}?|Give me the rate of {base} to {target}.|
What is the rate between {base} and {target}?""", "rate:decimal"),
    _tool("search_books", "Search for books in the library", "author:person year:year?",
          """Find books by {author}[ from {year}].|Which books did {author} write[ in {year}]?|
Search for books by {author}[ from {year}].|Look for a book by {author}[ published in {year}].|
Books by {author}[, {year}]?""", "title:text"),
    _tool("start_recording", "Start recording", "minutes:minutes? loud:loud?",
          """Start recording[ for {minutes} minutes].|Record[ for {minutes} minutes].|
Please start the recording[ for {minutes} minutes].|Begin to record[ for {minutes} minutes].""", ""),
    _tool("turn_on_device", "Turn on a device", "device:thing",
          """Turn on the {device}.|Switch on the {device}.|Turn the {device} on.|Please turn on the {device}.|
Start the {device}.|Power up the {device}.|I need the {device} on.|{device} on, please.""", ""),
    _tool("turn_off_device", "Turn off a device", "device:thing",
          """Turn off the {device}.|Switch off the {device}.|Turn the {device} off.|Please turn off the {device}.|
Stop the {device}.|Shut down the {device}.|Power down the {device}.|{device} off, please.""", ""),
    _tool("send_invoice", "Send an invoice to a customer", "customer:person amount:decimal currency:currency?",
          """Send an invoice of {amount}[ {currency}] to {customer}.|
Invoice {customer} for {amount}[ {currency}].|Bill {customer} {amount}[ {currency}].|
Write {customer} an invoice over {amount}[ {currency}].""", "invoice:amount"),
    _tool("delete_event", "Delete an event from the calendar", "title:text",
          """Delete the event "{title}".|Cancel the event "{title}".|Remove "{title}" from my calendar.|
Take "{title}" off my calendar.|Cancel my appointment "{title}".""", ""),
    _tool("get_battery", "Get the battery level of a device", "device:thing?",
          """How full is the battery[ of the {device}]?|What is the battery level[ of the {device}]?|
Battery[ of the {device}]?|How much battery is left[ in the {device}]?|Check the battery[ of the {device}].""",
          "level:percent"),
]
