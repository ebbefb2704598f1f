// A server that speaks as much of the API as the page uses, with answers that its tests can foresee. Nothing is
// computed: a word in the last message picks what comes. To look at the page by hand:
//
//   node tests/page/standin.mjs 8080
import {readFile} from 'node:fs/promises';
import {createServer} from 'node:http';
import {fileURLToPath} from 'node:url';

const kFolder = new URL('../../src/server/', import.meta.url);
const kTypes = {html: 'text/html', css: 'text/css', js: 'text/javascript'};
// The policy of server/page.cc.
export const kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

export const kMarkdown = `# Parts

A paragraph with **bold**, *italics*, \`code\` and a [link](http://example.com/) that stays text.

- one
- two
  1. inner
  2. second **bold**

| name | bytes |
| --- | --- |
| f32 | 4 |
| a column that is much wider than a telephone, to see whether it scrolls inside | 2 |

\`\`\`cpp
for (int i = 0; i < n; ++i) sum = fma(x[i], w[i], sum);  // a line that is longer than a narrow screen is wide
\`\`\`

> A quote.

Done.`;


export const kMarkup = '<img src=x onerror="window.broken = 1"><script>window.broken = 1</script><b>x</b>';

/// What is said about a request, as a list of deltas and pauses.
function script_of(body) {
  const last = body.messages.at(-1);
  const words = last.content ?? '';
  const text = (value) => (value.match(/[\s\S]{1,7}/g) ?? []).map((content) => ({content}));
  const thought = (value) => value.match(/[\s\S]{1,9}/g).map((reasoning_content) => ({reasoning_content}));
  if (last.role === 'tool') return text(`The tool said: ${words}`);
  if (last.role === 'assistant') return text(' and so on.');
  if (words.includes('call') && body.tools) {
    const call = (index, id, name, pieces) => [
      {tool_calls: [{index, id, type: 'function', function: {name, arguments: ''}}]},
      ...pieces.map((piece) => ({tool_calls: [{index, function: {arguments: piece}}]})),
    ];
    return [...thought('A tool knows.'), ...text('Let me look.'),
      ...call(0, 'call_aaaaaaaaaaaaaaaaaaaaaaaa', 'get_weather',
          ['{"city": "', 'Bergen', '", "days": 12345678901234567890}']),
      ...call(1, 'call_bbbbbbbbbbbbbbbbbbbbbbbb', 'get_time', ['{}'])];
  }
  if (words.includes('think'))
    return [...thought('First this.\nThen that, and a good deal more.'), ...text('Thought out.')];
  if (words.includes('markdown')) return text(kMarkdown);
  if (words.includes('markup')) return [...thought(kMarkup), ...text(`${kMarkup}\n\n\`\`\`<b>\n${kMarkup}\n\`\`\``)];
  if (words.includes('forever')) return Array.from({length: 100000}, (_, i) => ({content: `word${i} `, pause: 20}));
  if (words.includes('slow')) return [{content: 'The first half, ', pause: 400}, {content: 'the second half.'}];
  return text(`You said: ${words}`);
}

export async function start_standin(port = 0) {
  const state = {
    requests: [],    // bodies of chat completions
    texts: [],       // the same as they came
    left: 0,         // clients that did not wait for the end
    key: '',         // that is needed
    seed: '1',       // of every answer, in its digits
    health: null,    // the body of a 503, or null
    has_metrics: true,
    has_disk: true,  // a cache directory
    disk: {},        // metrics of it that are other than usual
    answered: 0,
    began: Date.now(),
  };

  const fail = (response, status, message, headers = {}) => {
    response.writeHead(status, {'Content-Type': 'application/json; charset=utf-8', ...headers});
    response.end(JSON.stringify({error: {message, type: 'invalid_request_error', param: null, code: null}}));
  };

  async function chat(request, response) {
    const parts = [];
    for await (const part of request) parts.push(part);
    state.texts.push(Buffer.concat(parts).toString());
    const body = JSON.parse(state.texts.at(-1));
    state.requests.push(body);
    const words = String(body.messages.at(-1).content);
    if (words.includes('refuse')) return fail(response, 400, `messages: ${kMarkup} is refused`);
    if (words.includes('queue')) return fail(response, 429, 'The queue is full.', {'Retry-After': '2'});
    response.writeHead(200, {'Content-Type': 'text/event-stream; charset=utf-8', 'Cache-Control': 'no-cache'});
    let is_gone = false;
    response.on('close', () => {
      if (!response.writableEnded && !words.includes('cut')) ++state.left;
      is_gone = true;
    });
    const send = (data) => response.write(`data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`);
    const chunk = (delta, more = {}) => send({id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1, model: 'm',
      choices: [{index: 0, delta, finish_reason: null, ...more}]});
    response.write(': keep-alive\n\n');
    chunk({role: 'assistant', content: ''});
    let count = 0, has_calls = false;
    for (const {pause, ...delta} of script_of(body)) {
      if (is_gone) return;
      chunk(delta);
      ++count;
      has_calls ||= 'tool_calls' in delta;
      if (words.includes('break') && count === 2) {
        send({error: {message: 'The step failed.', type: 'server_error', param: null, code: null}});
        return response.end();
      }
      if (words.includes('cut') && count === 2) {
        await sleep(50);
        return response.destroy();
      }
      await sleep(pause ?? 2);
    }
    if (is_gone) return;
    const finish_reason = words.includes('limit') ? 'length' : has_calls ? 'tool_calls' : 'stop';
    const end = {id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1, model: 'm',
      choices: [{index: 0, delta: {}, finish_reason}],
      lockstep: {prefill_tokens_per_second: 200, decode_tokens_per_second: 12.34, seed: 0, back_end: 'cpu'}};
    send(JSON.stringify(end).replace('"seed":0', `"seed":${state.seed}`));
    const usage = {prompt_tokens: 50, completion_tokens: count, total_tokens: 50 + count,
      prompt_tokens_details: {cached_tokens: 30}, completion_tokens_details: {reasoning_tokens: 0}};
    send({id: 'chatcmpl-1', object: 'chat.completion.chunk', created: 1, model: 'm', choices: [], usage});
    send('[DONE]');
    ++state.answered;
    response.end();
  }

  /// A prompt of 8192 tokens is restored every 5 s.
  function disk(s) {
    const restores = 1 + Math.floor(s / 5);
    return {
      lockstep_disk_states: 214,
      lockstep_disk_bytes: 37 * 2 ** 30 + 1e7 * s,
      lockstep_disk_limit_bytes: 64 * 2 ** 30,
      lockstep_disk_hits_total: restores,
      lockstep_disk_restored_tokens_total: 8192 * restores,
      lockstep_disk_restored_bytes_total: 3 * 2 ** 27 * restores,
      lockstep_disk_restore_seconds_total: 0.25 * restores,
      lockstep_disk_written_bytes_total: 5 * 2 ** 30,
      lockstep_disk_skipped_total: 0,
      lockstep_disk_failures_total: 0,
      lockstep_disk_damaged_total: 0,
      lockstep_disk_evictions_total: 12,
      lockstep_disk_read_only: 0,
      ...state.disk,
    };
  }

  function metrics() {
    const s = (Date.now() - state.began) / 1000;
    const wave = (period) => 1 + Math.sin(s * 2 * Math.PI / period);
    return Object.entries({
      'llamacpp:tokens_predicted_total': Math.round(12 * s + 4 * wave(9)),
      'llamacpp:prompt_tokens_total': Math.round(180 * s),
      'llamacpp:requests_processing': Math.round(2 * wave(20)),
      'llamacpp:requests_deferred': Math.round(wave(31)),
      'lockstep_answers_total{end="done"}': state.answered,
      'lockstep_answers_total{end="failed"}': 0,
      'lockstep_answers_total{end="cancelled"}': state.left,
      lockstep_prompt_tokens_total: Math.round(420 * s),
      lockstep_reused_tokens_total: Math.round(240 * s),
      lockstep_generated_tokens_total: Math.round(12 * s),
      lockstep_cache_bytes: 3e8 + 1e8 * wave(40),
      lockstep_cache_limit_bytes: 8 * 2 ** 30,
      lockstep_cache_lookups_total: 40,
      lockstep_cache_hits_total: 31,
      lockstep_cache_evictions_total: 2,
      lockstep_resident_bytes: 9.1e10 + 2e9 * wave(25),
      lockstep_memory_limit_bytes: 128 * 2 ** 30,
      lockstep_http_connections: 3,
      lockstep_http_connections_total: 17,
      ...(state.has_disk ? disk(s) : {}),
    }).map(([name, value]) => `# TYPE ${name} gauge\n${name} ${value}\n`).join('');
  }

  const server = createServer(async (request, response) => {
    const path = new URL(request.url, 'http://x').pathname;
    const json = (value, status = 200) => {
      response.writeHead(status, {'Content-Type': 'application/json; charset=utf-8'});
      response.end(JSON.stringify(value));
    };
    const name = path === '/' ? 'page.html' : path.slice(1);
    if (/^page\w*\.(html|css|js)$/.test(name)) {
      const bytes = await readFile(new URL(name, kFolder)).catch(() => null);
      if (!bytes) return fail(response, 404, `${path}: not found`);
      response.writeHead(200, {'Content-Type': `${kTypes[name.split('.')[1]]}; charset=utf-8`,
        'Content-Security-Policy': kPolicy, 'X-Content-Type-Options': 'nosniff', 'Referrer-Policy': 'no-referrer'});
      return response.end(bytes);
    }
    if (path === '/health') return state.health ? json(state.health, 503) : json({status: 'ok'});
    if (state.key && request.headers.authorization !== `Bearer ${state.key}`)
      return fail(response, 401, 'The API key is missing or wrong.');
    if (path === '/v1/chat/completions') return chat(request, response);
    if (path === '/props')
      return json({total_slots: 4, model_alias: 'deepseek-v4-flash', model_path: '/models/flash.gguf',
        build_info: 'lockstep 0.1', lockstep: {back_end: 'cpu (avx512, 8 threads)', mode: 'official', context: 131072,
          queue: 64, temperature: 1, top_p: 1, min_p: 0.05000000074505806, default_system: ''}});
    if (path === '/slots')
      return json([0, 1, 2, 3].map((id) => ({id, is_processing: id < 2, next_token: {n_decoded: id ? 0 : 311},
        lockstep: {is_prefilling: id === 1, prompt_tokens: 18230, cached_tokens: 16384,
          restored_tokens: id === 1 ? 8192 : 0, limit: 26422}})));
    if (path === '/metrics') {
      if (!state.has_metrics) return fail(response, 501, '/metrics: turned off by --no-metrics');
      response.writeHead(200, {'Content-Type': 'text/plain; version=0.0.4; charset=utf-8'});
      return response.end(metrics());
    }
    fail(response, 404, `${path}: not found`);
  });
  await new Promise((done) => server.listen(port, '127.0.0.1', done));
  const close = () => {
    server.closeAllConnections();
    return new Promise((done) => server.close(done));
  };
  return {url: `http://127.0.0.1:${server.address().port}/`, state, close};
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const {url} = await start_standin(Number(process.argv[2] ?? 0));
  console.log(`The page is at ${url}`);
}
