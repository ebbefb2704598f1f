// The openai package against the server: chat completions, completions, responses, models.
import assert from 'node:assert/strict';
import {test} from 'node:test';

import {kEndOfSentence, kFact, kModel, kSum, kThoughtSum, kWeather, need, Server, state, too_long, with_server} from
    './setup.mjs';

const OpenAI = need('openai').default;
const {zodResponseFormat, zodTextFormat} = need('openai/helpers/zod');
const {z} = need('zod');

const client = (options = {}) => new OpenAI({baseURL: `${state.url}/v1`, apiKey: 'unused', ...options});
const user = (content) => [{role: 'user', content}];
/// Greedy, and without thinking unless a rule is about it.
const plain = (question, more = {}) =>
    ({model: kModel, messages: user(question), temperature: 0, reasoning_effort: 'none', ...more});
const weather_tool = {
  type: 'function',
  function: {name: kWeather.name, description: kWeather.description, parameters: kWeather.parameters},
};
const Color = z.object({color: z.enum(['blue', 'red']), is_warm: z.boolean(), count: z.int().min(0).max(9)});

// --- Chat completions

test('chat: an answer with its finish reason and usage', async () => {
  const answer = await client().chat.completions.create(plain(kSum.question));
  assert.equal(answer.object, 'chat.completion');
  assert.equal(answer.model, kModel);
  assert.equal(answer.choices[0].message.content, kSum.answer);
  assert.equal(answer.choices[0].finish_reason, 'stop');
  const {prompt_tokens, completion_tokens, total_tokens, prompt_tokens_details} = answer.usage;
  assert.ok(prompt_tokens > 5 && completion_tokens > 0);
  assert.equal(total_tokens, prompt_tokens + completion_tokens);
  assert.ok(prompt_tokens_details.cached_tokens <= prompt_tokens);
  assert.ok(answer.system_fingerprint.length > 0);
});

test('chat: a system text is followed', async () => {
  const messages = [{role: 'system', content: 'Answer in upper case.'}, ...user(kFact.question)];
  const answer = await client().chat.completions.create(plain(null, {messages}));
  assert.equal(answer.choices[0].message.content, kFact.answer.toUpperCase());
});

test('chat: an earlier turn is read, in parts as in a string', async () => {
  const told = 'My dog is called Biscuit. Please remember that.';
  const answers = [];
  for (const content of [told, [{type: 'text', text: told}]]) {
    const messages = [{role: 'user', content}, {role: 'assistant', content: 'I will remember that.'},
                      ...user('What is the name of my dog?')];
    answers.push(await client().chat.completions.create(plain(null, {messages})));
  }
  for (const answer of answers) assert.equal(answer.choices[0].message.content, 'Biscuit.');
  assert.equal(answers[1].usage.prompt_tokens, answers[0].usage.prompt_tokens);
});

test('chat: a stream joins to the whole answer, and tells its usage', async () => {
  const whole = await client().chat.completions.create(plain(kFact.question));
  const stream = client().chat.completions.stream(plain(kFact.question, {stream_options: {include_usage: true}}));
  let text = '';
  stream.on('content', (delta) => { text += delta; });
  const streamed = await stream.finalChatCompletion();
  assert.equal(text, kFact.answer);
  assert.deepEqual(streamed.choices[0].message.content, whole.choices[0].message.content);
  assert.equal(streamed.choices[0].finish_reason, whole.choices[0].finish_reason);
  assert.equal(streamed.usage.total_tokens, whole.usage.total_tokens);
});

test('chat: thoughts are in their own field, whole and streamed alike', async () => {
  const request = plain(kThoughtSum.question, {reasoning_effort: 'high'});
  const whole = await client().chat.completions.create(request);
  const {content, reasoning_content} = whole.choices[0].message;
  assert.match(content, new RegExp(kThoughtSum.answer));
  assert.match(reasoning_content, new RegExp(kThoughtSum.answer));
  assert.doesNotMatch(content, /think>/);
  assert.ok(whole.usage.completion_tokens_details.reasoning_tokens > 0);
  const joined = {content: '', reasoning_content: ''};
  for await (const {choices: [choice]} of await client().chat.completions.create({...request, stream: true})) {
    const keys = Object.keys(choice.delta).filter((key) => key in joined);
    assert.ok(keys.length <= 1 || choice.delta.role, 'a chunk has one kind of delta');
    for (const key of keys) joined[key] += choice.delta[key];
  }
  assert.deepEqual(joined, {content, reasoning_content});
});

for (const is_stream of [false, true]) {
  test(`chat: a tool round trip, ${is_stream ? 'streamed' : 'whole'}`, async () => {
    const asked = [];
    const runner = client().chat.completions.runTools(plain(kWeather.question, {
      stream: is_stream,
      tools: [{
        ...weather_tool,
        function: {
          ...weather_tool.function,
          parse: JSON.parse,
          function: (input) => {
            asked.push(input);
            return JSON.stringify(kWeather.result);
          },
        },
      }],
    }));
    assert.match(await runner.finalContent(), kWeather.answer);
    assert.deepEqual(asked, [{city: kWeather.city}]);
    const call = runner.messages.find(({tool_calls}) => tool_calls).tool_calls[0];
    assert.match(call.id, /^call_[0-9A-Za-z]{24,}$/);
  });
}

test('chat: calls are the finish reason, and their streamed arguments join to the whole ones', async () => {
  const request = plain('What is the weather in Madrid and in Helsinki?', {tools: [weather_tool]});
  const whole = await client().chat.completions.create(request);
  assert.equal(whole.choices[0].finish_reason, 'tool_calls');
  const streamed = await client().chat.completions.stream(request).finalChatCompletion();
  const calls = (answer) => answer.choices[0].message
      .tool_calls.map((call) => [call.function.name, call.function.arguments]);
  assert.deepEqual(calls(streamed), calls(whole));
  assert.deepEqual(calls(whole).map(([, text]) => JSON.parse(text)), [{city: 'Madrid'}, {city: 'Helsinki'}]);
});

for (const [name, tool_choice] of [
  ['required', 'required'],
  ['a tool by its name', {type: 'function', function: {name: kWeather.name}}],
]) {
  test(`chat: tool_choice ${name} makes a call of a question that needs none`, async () => {
    const answer = await client().chat.completions.create(
        plain(kFact.question, {tools: [weather_tool], tool_choice, parallel_tool_calls: false, max_tokens: 400}));
    assert.equal(answer.choices[0].message.tool_calls.length, 1);
    const {name: called, arguments: text} = answer.choices[0].message.tool_calls[0].function;
    assert.equal(called, kWeather.name);
    assert.equal(typeof JSON.parse(text).city, 'string');
  });
}

test('chat: tool_choice none makes no call', async () => {
  const answer = await client().chat.completions.create(
      plain(kWeather.question, {tools: [weather_tool], tool_choice: 'none', max_tokens: 100}));
  assert.equal(answer.choices[0].message.tool_calls, undefined);
});

for (const reasoning_effort of ['none', 'high']) {
  test(`chat: parse() gets an object of the schema, with effort ${reasoning_effort}`, async () => {
    const answer = await client().chat.completions.parse(plain('What color is the sky?', {
      reasoning_effort,
      response_format: zodResponseFormat(Color, 'color'),
    }));
    Color.parse(answer.choices[0].message.parsed);
  });
}

test('chat: json_object is one JSON object', async () => {
  const answer = await client().chat.completions.create(
      plain('Write exactly: {"a": 1}', {response_format: {type: 'json_object'}}));
  assert.equal(answer.choices[0].finish_reason, 'stop');
  assert.deepEqual(JSON.parse(answer.choices[0].message.content), {a: 1});
});

test('chat: log probabilities are of the visible tokens, the likeliest first', async () => {
  const answer = await client().chat.completions.create(plain(kFact.question, {logprobs: true, top_logprobs: 3}));
  const {content} = answer.choices[0].logprobs;
  assert.equal(Buffer.from(content.flatMap(({bytes}) => bytes)).toString(), kFact.answer);
  for (const {token, logprob, top_logprobs} of content) {
    assert.ok(logprob <= 0);
    assert.equal(top_logprobs.length, 3);
    assert.equal(top_logprobs[0].token, token, 'greedy takes the likeliest');
    const values = top_logprobs.map((one) => one.logprob);
    assert.deepEqual(values, values.toSorted((a, b) => b - a));
  }
});

test('chat: n answers, and the same ones again from the same seed', async () => {
  const request = plain('Tell me something.', {temperature: 1, seed: 7, n: 3, max_tokens: 20});
  const texts = async () => {
    const {choices} = await client().chat.completions.create(request);
    return choices.map(({message}) => message.content);
  };
  const first = await texts();
  assert.equal(first.length, 3);
  assert.deepEqual(await texts(), first);
});

test('chat: a stop text ends the answer and is not in it', async () => {
  const answer = await client().chat.completions.create(plain('Write exactly: one two three', {stop: ' two'}));
  assert.equal(answer.choices[0].message.content, 'one');
  assert.equal(answer.choices[0].finish_reason, 'stop');
});

test('chat: max_tokens ends the answer with length', async () => {
  const answer = await client().chat.completions.create(plain('Write exactly: one two three', {max_tokens: 1}));
  assert.equal(answer.choices[0].finish_reason, 'length');
  assert.equal(answer.usage.completion_tokens, 1);
});

test('chat: a client that leaves frees its slot, and the server answers the next one', async () => {
  const endless = plain('Write exactly: one two three', {stream: true, logit_bias: {[kEndOfSentence]: -100}});
  const stream = await client().chat.completions.create(endless);
  let chunks = 0;
  for await (const chunk of stream) {
    assert.equal(chunk.object, 'chat.completion.chunk');
    if (++chunks === 8) stream.controller.abort();
  }
  assert.ok(chunks >= 8);
  await Server.until('the slot is free again', () => state.server.is_idle(), 10);
  const answer = await client().chat.completions.create(plain(kSum.question));
  assert.equal(answer.choices[0].message.content, kSum.answer);
});

test('chat: answers made beside each other are those made alone', async () => {
  const questions = ['What is 47 + 386?', kSum.question, kFact.question, 'What do bees make?'];
  const ask = async (question) => (await client().chat.completions.create(plain(question))).choices[0].message.content;
  const alone = [];
  for (const question of questions) alone.push(await ask(question));
  assert.deepEqual(await Promise.all(questions.map(ask)), alone);
});

// --- Errors

const kErrors = [
  ['a message of a wrong type', (c) => c.chat.completions.create(plain(3)), 'BadRequestError', {code: null}],
  ['no messages', (c) => c.chat.completions.create(plain('', {messages: []})), 'BadRequestError', {param: 'messages'}],
  ['a temperature that is a word', (c) => c.chat.completions.create(plain('Hi.', {temperature: 'hot'})),
   'BadRequestError', {param: 'temperature'}],
  ['a path that there is not', (c) => c.post('/nothing', {body: {}}), 'NotFoundError', {}],
  ['a schema keyword that is not understood, in strict',
   (c) => c.chat.completions.create(plain('Hi.', {
     response_format: {type: 'json_schema', json_schema: {name: 'x', strict: true, schema: {type: 'object', not: {}}}},
   })),
   'BadRequestError', {}],
  ['an unknown earlier response',
   (c) => c.responses.create({model: kModel, input: 'Hi.', previous_response_id: 'resp_none'}), 'BadRequestError',
   {code: 'previous_response_not_found'}],
];
for (const [name, send, kind, fields] of kErrors) {
  test(`error: ${name} is a ${kind}, at the first try`, async () => {
    let tries = 0;
    const counted = (...words) => {
      ++tries;
      return fetch(...words);
    };
    const error = await send(client({fetch: counted})).then(() => assert.fail('no error'), (error) => error);
    assert.equal(error.constructor.name, kind, String(error));
    assert.ok(error.message.length > 10);
    for (const [key, value] of Object.entries(fields)) assert.equal(error[key], value, `${key}: ${error.message}`);
    assert.equal(tries, 1);
  });
}

for (const stream of [false, true]) {
  test(`error: a prompt beyond the context is a 400 with both numbers, ${stream ? 'streamed' : 'whole'}`, async () => {
    const error = await client().chat.completions.create(plain(too_long(), {stream})).catch((error) => error);
    assert.equal(error.constructor.name, 'BadRequestError', String(error));
    assert.equal(error.code, 'context_length_exceeded');
    assert.match(error.message,
                 /maximum context length is 16384 tokens\. However, your messages resulted in \d+ tokens/);
    assert.ok(error.error.n_prompt_tokens > error.error.n_ctx);
  });
}

// --- Completions and models

test('completions: a text goes on, whole and streamed alike', async () => {
  const request = {model: kModel, prompt: 'The sky is', temperature: 0, max_tokens: 8};
  const whole = await client().completions.create(request);
  let text = '';
  for await (const chunk of await client().completions.create({...request, stream: true}))
    text += chunk.choices[0]?.text ?? '';
  assert.equal(text, whole.choices[0].text);
  assert.ok(['stop', 'length'].includes(whole.choices[0].finish_reason));
});

test('completions: echo with logprobs scores a prompt', async () => {
  const prompt = 'The sky is blue.';
  const {choices: [{text, logprobs}]} =
      await client().completions.create({model: kModel, prompt, echo: true, logprobs: 1, max_tokens: 0});
  assert.equal(text, prompt);
  assert.equal(logprobs.tokens.join(''), prompt);
  assert.equal(logprobs.token_logprobs[0], null);
  assert.ok(logprobs.token_logprobs.slice(1).every((one) => one <= 0));
});

test('models: the list has the model that runs', async () => {
  const list = await client().models.list();
  assert.equal(list.data[0].id, kModel);
  assert.equal((await client().models.retrieve(kModel)).id, kModel);
});

// --- Responses

const response_of = (input, more = {}) =>
    ({model: kModel, input, temperature: 0, reasoning: {effort: 'none'}, ...more});
const response_tool = {type: 'function', name: kWeather.name, description: kWeather.description,
                       parameters: kWeather.parameters, strict: false};

test('responses: an answer, whole and streamed alike', async () => {
  const whole = await client().responses.create(response_of(kSum.question));
  assert.equal(whole.status, 'completed');
  assert.equal(whole.output_text, kSum.answer);
  for (const count of [whole.usage.input_tokens, whole.usage.input_tokens_details.cached_tokens,
                       whole.usage.output_tokens, whole.usage.output_tokens_details.reasoning_tokens])
    assert.ok(Number.isInteger(count));
  const stream = client().responses.stream(response_of(kSum.question));
  const numbers = [];
  let text = '';
  for await (const event of stream) {
    numbers.push(event.sequence_number);
    if (event.type === 'response.output_text.delta') text += event.delta;
  }
  assert.deepEqual(numbers, numbers.map((_, i) => i));
  assert.equal(text, kSum.answer);
  assert.equal((await stream.finalResponse()).output_text, kSum.answer);
});

test('responses: thoughts are an item of their own', async () => {
  const answer = await client().responses.create(response_of(kThoughtSum.question, {reasoning: {effort: 'high'}}));
  assert.deepEqual(answer.output.map(({type}) => type), ['reasoning', 'message']);
  assert.match(answer.output[0].summary[0].text, new RegExp(kThoughtSum.answer));
  assert.match(answer.output_text, new RegExp(kThoughtSum.answer));
  assert.ok(answer.usage.output_tokens_details.reasoning_tokens > 0);
});

test('responses: a conversation goes on from an earlier response', async () => {
  const first = await client().responses.create(response_of('My dog is called Biscuit. Please remember that.'));
  const second = await client().responses.create(
      response_of('What is the name of my dog?', {previous_response_id: first.id}));
  assert.match(second.output_text, /Biscuit/);
});

for (const is_stored of [true, false]) {
  test(`responses: a tool round trip, ${is_stored ? 'by reference' : 'with every item sent again'}`, async () => {
    const tools = [response_tool];
    const stream = client().responses.stream(response_of(kWeather.question, {tools}));
    const first = await stream.finalResponse();
    const call = first.output.find(({type}) => type === 'function_call');
    assert.deepEqual(JSON.parse(call.arguments), {city: kWeather.city});
    const result = {type: 'function_call_output', call_id: call.call_id, output: JSON.stringify(kWeather.result)};
    const earlier = first.output.map(({parsed_arguments, ...item}) => item);
    const second = await client().responses.create(
        is_stored ? response_of([result], {tools, previous_response_id: first.id})
                  : response_of([...user(kWeather.question), ...earlier, result], {tools, store: false}));
    assert.match(second.output_text, kWeather.answer);
  });
}

test('responses: parse() gets an object of the schema', async () => {
  const answer = await client().responses.parse(
      response_of('What color is the sky?', {text: {format: zodTextFormat(Color, 'color')}}));
  Color.parse(answer.output_parsed);
});

// --- A key

test('a server with keys takes the right one and refuses another, without a second try', async () => {
  const {mkdtemp, rm, writeFile} = await import('node:fs/promises');
  const {tmpdir} = await import('node:os');
  const {join} = await import('node:path');
  const folder = await mkdtemp(join(tmpdir(), 'lockstep-keys-'));
  const file = join(folder, 'keys');
  await writeFile(file, 'the-right-key\n', {mode: 0o600});
  try {
    await with_server(['--context', '4096', '--api-key-file', file], async (server) => {
      const baseURL = `${server.url}/v1`;
      const answer = await client({baseURL, apiKey: 'the-right-key'}).chat.completions.create(plain(kSum.question));
      assert.equal(answer.choices[0].message.content, kSum.answer);
      const error = await client({baseURL, apiKey: 'another'}).chat.completions.create(plain('Hi.')).catch((e) => e);
      assert.equal(error.constructor.name, 'AuthenticationError', String(error));
      assert.equal(error.code, 'invalid_api_key');
      await Server.until('the log tells it', () => server.requests.length >= 2);
      assert.deepEqual(server.requests.map(({status}) => status), [200, 401]);
      assert.doesNotMatch(JSON.stringify(server.log), /the-right-key|another/);
    });
  } finally {
    await rm(folder, {recursive: true});
  }
});
