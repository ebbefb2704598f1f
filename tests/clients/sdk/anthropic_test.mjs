// @anthropic-ai/sdk against the server: messages and their token count.
import assert from 'node:assert/strict';
import {test} from 'node:test';

import {kEndOfSentence, kFact, kModel, kSum, kThoughtSum, kWeather, need, Server, state, too_long} from './setup.mjs';

const Anthropic = need('@anthropic-ai/sdk').default;
const {zodOutputFormat} = need('@anthropic-ai/sdk/helpers/zod');
const {z} = need('zod');

const client = (options = {}) => new Anthropic({baseURL: state.url, apiKey: 'unused', ...options});
const user = (content) => [{role: 'user', content}];
const plain = (question, more = {}) =>
    ({model: kModel, max_tokens: 1000, messages: user(question), temperature: 0, ...more});
const thinking = {type: 'enabled', budget_tokens: 1024};
const weather_tool = {name: kWeather.name, description: kWeather.description, input_schema: kWeather.parameters};
const texts = (message) => message.content.filter(({type}) => type === 'text').map(({text}) => text).join('');
const prompt_size = ({input_tokens, cache_read_input_tokens, cache_creation_input_tokens}) =>
    input_tokens + cache_read_input_tokens + cache_creation_input_tokens;

test('messages: an answer with its stop reason and usage', async () => {
  const answer = await client().messages.create(plain(kSum.question));
  assert.equal(answer.type, 'message');
  assert.equal(answer.model, kModel);
  assert.deepEqual(answer.content.map(({type}) => type), ['text']);
  assert.equal(texts(answer), kSum.answer);
  assert.equal(answer.stop_reason, 'end_turn');
  assert.ok(answer.usage.output_tokens > 0);
});

test('messages: a system of blocks is read, without its billing line', async () => {
  const system = [{type: 'text', text: 'Answer in upper case.', cache_control: {type: 'ephemeral'}}];
  const billing = {type: 'text', text: 'x-anthropic-billing-header: cc_version=1; cch=0;'};
  const one = await client().messages.create(plain(kFact.question, {system}));
  const other = await client().messages.create(plain(kFact.question, {system: [billing, ...system]}));
  assert.equal(texts(one), kFact.answer.toUpperCase());
  assert.equal(texts(other), texts(one));
  assert.equal(prompt_size(other.usage), prompt_size(one.usage));
});

test('messages: a stream joins to the whole message', async () => {
  const whole = await client().messages.create(plain(kFact.question));
  const stream = client().messages.stream(plain(kFact.question));
  let text = '';
  stream.on('text', (delta) => { text += delta; });
  const streamed = await stream.finalMessage();
  assert.equal(text, kFact.answer);
  assert.deepEqual(streamed.content, whole.content);
  assert.equal(streamed.stop_reason, whole.stop_reason);
  assert.equal(streamed.usage.output_tokens, whole.usage.output_tokens);
  assert.equal(prompt_size(streamed.usage), prompt_size(whole.usage));
});

test('messages: the events of a stream come in their order', async () => {
  const types = [];
  for await (const event of await client().messages.create(plain(kThoughtSum.question, {thinking, stream: true})))
    types.push(event.type === 'content_block_delta' ? event.delta.type : event.type);
  const runs = types.filter((type, i) => type !== types[i - 1]);
  assert.deepEqual(runs, [
    'message_start', 'content_block_start', 'thinking_delta', 'signature_delta', 'content_block_stop',
    'content_block_start', 'text_delta', 'content_block_stop', 'message_delta', 'message_stop',
  ]);
});

test('messages: thoughts are a block with a signature, and go back unread', async () => {
  const request = plain(kThoughtSum.question, {thinking});
  const answer = await client().messages.create(request);
  assert.deepEqual(answer.content.map(({type}) => type), ['thinking', 'text']);
  assert.match(answer.content[0].thinking, new RegExp(kThoughtSum.answer));
  assert.ok(answer.content[0].signature.length > 0);
  assert.match(texts(answer), new RegExp(kThoughtSum.answer));
  const next = await client().messages.create({
    ...request,
    messages: [...request.messages, {role: 'assistant', content: answer.content}, ...user(kSum.question)],
  });
  assert.match(texts(next), new RegExp(kSum.answer));
  const streamed = await client().messages.stream(request).finalMessage();
  assert.equal(streamed.content[0].thinking, answer.content[0].thinking);
});

test('messages: an effort alone does not turn thinking on', async () => {
  const answer = await client().messages.create(plain(kThoughtSum.question, {output_config: {effort: 'high'}}));
  assert.deepEqual(answer.content.map(({type}) => type), ['text']);
});

for (const is_stream of [false, true]) {
  test(`messages: a tool round trip, ${is_stream ? 'streamed' : 'whole'}`, async () => {
    const request = plain(kWeather.question, {tools: [weather_tool]});
    const send = (body) => (is_stream ? client().messages.stream(body).finalMessage() : client().messages.create(body));
    const first = await send(request);
    assert.equal(first.stop_reason, 'tool_use');
    const call = first.content.find(({type}) => type === 'tool_use');
    assert.match(call.id, /^toolu_/);
    assert.equal(call.name, kWeather.name);
    assert.deepEqual(call.input, {city: kWeather.city});
    const result = {type: 'tool_result', tool_use_id: call.id, content: JSON.stringify(kWeather.result)};
    const second = await send({
      ...request,
      messages: [...request.messages, {role: 'assistant', content: first.content}, {role: 'user', content: [result]}],
    });
    assert.match(texts(second), kWeather.answer);
    assert.ok(second.usage.cache_read_input_tokens > 0, 'the second prompt begins with the first');
  });
}

test('messages: the tool runner comes to an answer from the whole conversation', async () => {
  const asked = [];
  const first = await client().messages.countTokens({model: kModel, messages: user(kWeather.question),
                                                     tools: [weather_tool]});
  const last = await client().beta.messages.toolRunner(plain(kWeather.question, {
    tools: [{
      ...weather_tool,
      type: 'custom',
      parse: (input) => input,
      run: (input) => {
        asked.push(input);
        return JSON.stringify(kWeather.result);
      },
    }],
  }));
  assert.deepEqual(asked, [{city: kWeather.city}]);
  assert.match(texts(last), kWeather.answer);
  // By default it only sends what is new, and the rest when it is told that the server keeps no conversations.
  assert.ok(prompt_size(last.usage) > first.input_tokens, 'the conversation was lost');
});

for (const tool_choice of [{type: 'any'}, {type: 'tool', name: kWeather.name}]) {
  test(`messages: tool_choice ${tool_choice.type} makes a call of a question that needs none`, async () => {
    const answer = await client().messages.create(
        plain(kFact.question, {tools: [weather_tool], tool_choice: {...tool_choice, disable_parallel_tool_use: true}}));
    const calls = answer.content.filter(({type}) => type === 'tool_use');
    assert.equal(calls.length, 1);
    assert.equal(typeof calls[0].input.city, 'string');
  });
}

test('messages: parse() gets an object of the schema', async () => {
  const Color = z.object({color: z.enum(['blue', 'red']), is_warm: z.boolean()});
  const answer = await client().messages.parse(
      plain('What color is the sky?', {output_config: {format: zodOutputFormat(Color)}}));
  Color.parse(answer.parsed_output);
});

test('messages: a stop sequence and a limit are told', async () => {
  const stopped = await client().messages.create(plain('Write exactly: one two three', {stop_sequences: [' two']}));
  assert.deepEqual([texts(stopped), stopped.stop_reason, stopped.stop_sequence], ['one', 'stop_sequence', ' two']);
  const cut = await client().messages.create(plain('Write exactly: one two three', {max_tokens: 1}));
  assert.equal(cut.stop_reason, 'max_tokens');
});

test('messages: an answer that was begun for the model goes on', async () => {
  const answer = await client().messages.create(plain(null, {
    messages: [...user('Write exactly: one two three'), {role: 'assistant', content: 'one two'}],
  }));
  assert.equal(texts(answer), ' three');
});

test('count_tokens: the size of the prompt of the same request', async () => {
  const request = plain(kWeather.question, {system: 'Answer in upper case.', tools: [weather_tool], thinking});
  const {max_tokens, temperature, ...counted} = request;
  const {input_tokens} = await client().messages.countTokens(counted);
  const answer = await client().messages.create(request);
  assert.equal(input_tokens, prompt_size(answer.usage));
});

test('messages: a client that leaves frees its slot', async () => {
  const stream = client().messages.stream(
      plain('Write exactly: one two three', {max_tokens: 100000, logit_bias: {[kEndOfSentence]: -100}}));
  let deltas = 0;
  await assert.rejects(async () => {
    for await (const event of stream)
      if (event.type === 'content_block_delta' && ++deltas === 8) stream.abort();
  }, /abort/i);
  assert.ok(deltas >= 8);
  await Server.until('the slot is free again', () => state.server.is_idle(), 10);
});

const kErrors = [
  ['no messages', {messages: []}, /messages/],
  ['a temperature that is a word', {temperature: 'hot'}, /temperature/],
  ['a role that there is not', {messages: [{role: 'nobody', content: 'Hi.'}]}, /role/],
  ['a prompt beyond the context', () => ({messages: user(too_long())}),
   /^prompt is too long: \d+ tokens > 16384 maximum$/],
];
for (const [name, change, words] of kErrors) {
  test(`error: ${name} is a BadRequestError, at the first try`, async () => {
    let tries = 0;
    const counted = (...words) => {
      ++tries;
      return fetch(...words);
    };
    const request = plain('Hi.', typeof change === 'function' ? change() : change);
    const error = await client({fetch: counted}).messages.create(request).catch((error) => error);
    assert.equal(error.constructor.name, 'BadRequestError', String(error));
    assert.equal(error.error.type, 'error');
    assert.equal(error.error.error.type, 'invalid_request_error');
    assert.match(error.error.error.message, words);
    assert.match(error.requestID, /^req_/);
    assert.equal(tries, 1);
  });
}

test('models: the list has the model that runs', async () => {
  const list = await client().models.list();
  assert.equal(list.data[0].id, kModel);
});
