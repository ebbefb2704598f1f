// The ai package with its three providers against the server: openai-compatible, openai (responses), anthropic.
import assert from 'node:assert/strict';
import {test} from 'node:test';

import {kEndOfSentence, kFact, kModel, kSum, kThoughtSum, kWeather, need, Server, state, too_long} from './setup.mjs';

const {APICallError, generateText, isStepCount, jsonSchema, Output, streamText, tool} = need('ai');
const {createAnthropic} = need('@ai-sdk/anthropic');
const {createOpenAI} = need('@ai-sdk/openai');
const {createOpenAICompatible} = need('@ai-sdk/openai-compatible');
const {z} = need('zod');

const baseURL = () => `${state.url}/v1`;
const kProviders = {
  'openai-compatible': {
    model: (more) => createOpenAICompatible({
      name: 'lockstep', baseURL: baseURL(), includeUsage: true, supportsStructuredOutputs: true, ...more,
    })(kModel),
    plain: {lockstep: {reasoningEffort: 'none'}},
    thinking: {lockstep: {reasoningEffort: 'high'}},
  },
  openai: {
    model: (more) => createOpenAI({baseURL: baseURL(), apiKey: 'unused', ...more}).responses(kModel),
    plain: {openai: {reasoningEffort: 'none', forceReasoning: true}},
    thinking: {openai: {reasoningEffort: 'high', reasoningSummary: 'auto', forceReasoning: true}},
  },
  anthropic: {
    model: (more) => createAnthropic({baseURL: baseURL(), apiKey: 'unused', ...more})(kModel),
    plain: {},
    thinking: {anthropic: {thinking: {type: 'enabled', budgetTokens: 1024}}},
  },
};

/// fetch, with a field that none of the providers has: the answer may not end by itself.
const endless = (url, init) => fetch(url, {
  ...init,
  body: JSON.stringify({...JSON.parse(init.body), logit_bias: {[kEndOfSentence]: -100}}),
});

const asked = [];
const tools = {
  [kWeather.name]: tool({
    description: kWeather.description,
    inputSchema: jsonSchema(kWeather.parameters),
    execute: async (input) => {
      asked.push(input);
      return kWeather.result;
    },
  }),
};

for (const [name, provider] of Object.entries(kProviders)) {
  // The temperature is the server's, because the openai provider leaves it out for models that reason.
  const ask = (prompt, more = {}) =>
      ({model: provider.model(), prompt, providerOptions: provider.plain, maxRetries: 0, ...more});

  test(`${name}: a text, whole and streamed alike`, async () => {
    const whole = await generateText(ask(kSum.question));
    assert.equal(whole.text, kSum.answer);
    assert.equal(whole.finishReason, 'stop');
    assert.ok(whole.usage.inputTokens > 0 && whole.usage.outputTokens > 0);
    const stream = streamText(ask(kSum.question));
    let text = '';
    for await (const delta of stream.textStream) text += delta;
    assert.equal(text, kSum.answer);
    assert.equal((await stream.usage).outputTokens, whole.usage.outputTokens);
  });

  test(`${name}: thoughts are reasoning, not text`, async () => {
    const whole = await generateText(ask(kThoughtSum.question, {providerOptions: provider.thinking}));
    assert.match(whole.text, new RegExp(kThoughtSum.answer));
    assert.match(whole.reasoningText, new RegExp(kThoughtSum.answer));
    const stream = streamText(ask(kThoughtSum.question, {providerOptions: provider.thinking}));
    let reasoning = '';
    for await (const part of stream.stream) if (part.type === 'reasoning-delta') reasoning += part.text ?? part.delta;
    assert.equal(reasoning, whole.reasoningText);
  });

  test(`${name}: a tool round trip, streamed`, async () => {
    asked.length = 0;
    const stream = streamText(ask(kWeather.question, {tools, stopWhen: isStepCount(3)}));
    assert.match(await stream.text, kWeather.answer);
    assert.deepEqual(asked, [{city: kWeather.city}]);
    assert.equal((await stream.steps).length, 2);
  });

  test(`${name}: a tool round trip, whole, and the conversation goes on from it`, async () => {
    asked.length = 0;
    const first = await generateText(ask(kWeather.question, {tools, stopWhen: isStepCount(3)}));
    assert.match(first.text, kWeather.answer);
    assert.deepEqual(asked, [{city: kWeather.city}]);
    const {prompt, ...rest} = ask(null, {tools});
    const second = await generateText({
      ...rest,
      messages: [{role: 'user', content: kWeather.question}, ...first.response.messages,
                 {role: 'user', content: kFact.question}],
    });
    assert.equal(second.text, kFact.answer);
  });

  test(`${name}: an object of the schema`, async () => {
    const schema = z.object({color: z.enum(['blue', 'red']), is_warm: z.boolean()});
    const answer = await generateText(ask('What color is the sky?', {output: Output.object({schema})}));
    schema.parse(answer.output);
  });

  test(`${name}: an abort frees the slot`, async () => {
    const control = new AbortController();
    const model = provider.model({fetch: endless});
    const stream = streamText(ask(kFact.question, {model, abortSignal: control.signal}));
    let deltas = 0, is_aborted = false;
    for await (const part of stream.stream) {
      if (part.type === 'text-delta' && ++deltas === 4) control.abort();
      if (part.type === 'abort') is_aborted = true;
    }
    assert.ok(is_aborted, `after ${deltas} deltas`);
    await Server.until('the slot is free again', () => state.server.is_idle(), 10);
  });

  test(`${name}: a prompt beyond the context is a call error that is not retried`, async () => {
    const error = await generateText(ask(too_long(), {maxRetries: 2})).catch((error) => error);
    assert.ok(APICallError.isInstance(error), String(error));
    assert.equal(error.statusCode, 400);
    assert.equal(error.isRetryable, false);
    assert.match(error.message, /maximum/);
  });
}
