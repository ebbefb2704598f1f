// The page in a real Chromium, against a stand-in for the server:
//
//   node tests/page/page_test.mjs [--shots FOLDER]
//
// Needs node 20 and chromium, and nothing from elsewhere. With --shots, pictures are left for eyes to judge.
import assert from 'node:assert/strict';
import {mkdir} from 'node:fs/promises';
import {join} from 'node:path';
import {after, before, test} from 'node:test';

import {Browser} from './browser.mjs';
import {kMarkdown, kMarkup, start_standin} from './standin.mjs';

const kTools = JSON.stringify(['get_weather', 'get_time'].map((name) => ({
  type: 'function', function: {name, parameters: {type: 'object', properties: {city: {type: 'string'}}}},
})));
const shots = process.argv.includes('--shots') ? process.argv[process.argv.indexOf('--shots') + 1] : null;

let browser;
before(async () => {
  if (shots) await mkdir(shots, {recursive: true});
  browser = await Browser.start();
});
after(() => browser?.close());

/// A test with a server and a page of its own. Whatever it does, nothing may leave the origin, throw, or be refused by
/// the policy.
function rule(name, body) {
  test(name, {timeout: 60000}, async () => {
    const server = await start_standin();
    const page = await browser.open(server.url);
    try {
      await page.find('textbox', 'Message');
      await body(page, server.state, server);
      assert.deepEqual(page.problems, []);
      assert.deepEqual(page.urls.filter((url) => !url.startsWith(server.url) && !url.startsWith('data:')), []);
    } finally {
      await page.close();
      await server.close();
    }
  });
}

async function say(page, text) {
  await page.fill('textbox', 'Message', text);
  await page.press('Enter');
}

/// Waits for the end of the last answer.
const is_answered = (page) => page.until('the end of the answer',
    () => document.querySelector('.turn.assistant:last-child :is(.stats, .problem)'));

/// Says it and waits for the end of the answer.
async function ask(page, text) {
  await say(page, text);
  await is_answered(page);
}

const roles = (body) => body.messages.map(({role, content}) => `${role}: ${content}`);
const shot = (page, name) => (shots ? page.shot(join(shots, `${name}.png`)) : null);

// --- Answers

rule('an answer is shown while it comes', async (page) => {
  await say(page, 'slow');
  await page.sees('The first half,');
  assert.ok(!(await page.text()).includes('the second half.'));
  await page.sees('The first half, the second half.');
  await page.sees('2 tokens · 12.3 tok/s · prompt 50, 30 from the cache');
});

rule('a thought is folded and can be unfolded', async (page) => {
  await ask(page, 'think');
  await page.sees('Thought out.');
  assert.ok(!(await page.text()).includes('Then that'));
  await page.click('DisclosureTriangle', (await page.text('summary')).trim());
  await page.sees('First this.\nThen that, and a good deal more.');
});

rule('calls are shown to the last digit, and results go back under their ids', async (page, state) => {
  await page.click('button', 'Settings');
  await page.fill('textbox', 'Tools a JSON array, as the API takes it; you type the results', kTools);
  await ask(page, 'call');
  await page.sees('Calls get_weather');
  await page.sees('"days": 12345678901234567890');
  assert.deepEqual(state.requests[0].tools, JSON.parse(kTools));
  await shot(page, 'calls');
  await page.fill('textbox', 'Result of get_weather', 'rain');
  await page.fill('textbox', 'Result of get_time', 'noon');
  await page.click('button', 'Send the results');
  await page.sees('The tool said: noon');
  const [, assistant, first, second] = state.requests[1].messages;
  assert.equal(assistant.reasoning_content, 'A tool knows.');
  assert.equal(assistant.tool_calls[0].function.arguments, '{"city": "Bergen", "days": 12345678901234567890}');
  assert.deepEqual(first, {role: 'tool', tool_call_id: assistant.tool_calls[0].id, content: 'rain'});
  assert.deepEqual(second, {role: 'tool', tool_call_id: assistant.tool_calls[1].id, content: 'noon'});
});

rule('stopping keeps what came and tells the server', async (page, state) => {
  for (const stop of [() => page.click('button', 'Stop'), () => page.press('Escape')]) {
    await say(page, 'forever');
    await page.sees('word1 ', '.turn:last-child');
    await stop();
    await page.sees('Stopped.', '.turn:last-child');
    assert.match(await page.text('.turn:last-child'), /word0 word1/);
  }
  const until = Date.now() + 5000;
  while (state.left < 2 && Date.now() < until) await new Promise((done) => setTimeout(done, 20));
  assert.equal(state.left, 2);
});

rule('regenerating keeps the earlier answer', async (page, state) => {
  await ask(page, 'one');
  await page.click('button', 'Regenerate');
  await page.sees('2 of 2');
  await is_answered(page);
  assert.equal(state.requests.length, 2);
  assert.deepEqual(roles(state.requests[1]), ['user: one']);
  await page.click('button', 'Earlier version');
  await page.sees('1 of 2');
});

rule('editing a message makes another version with its own answer', async (page, state) => {
  await ask(page, 'one');
  await ask(page, 'two');
  await page.fill('textbox', 'Message', '');
  await page.press('ArrowUp');
  assert.equal(await page.focus(), 'textbox "Message"');
  await page.type(', or three');
  await page.press('Enter', 'control');
  await page.sees('You said: two, or three');
  assert.deepEqual(roles(state.requests[2]), ['user: one', 'assistant: You said: one', 'user: two, or three']);
  await page.click('button', 'Earlier version');
  await page.sees('You said: two', '.turn:last-child');
  assert.equal(await page.text('.turn:last-child .text'), 'You said: two');
});

rule('an edited answer is what the model is told it said', async (page, state) => {
  await ask(page, 'think');
  await page.click('button', 'Edit');
  await page.fill('textbox', 'Answer', 'Something else.');
  await page.click('button', 'Save');
  await page.sees('2 of 2');
  await ask(page, 'next');
  assert.deepEqual(roles(state.requests[1]), ['user: think', 'assistant: Something else.', 'user: next']);
  assert.match(state.requests[1].messages[1].reasoning_content, /^First this/);
});

rule('leaving an edit changes nothing', async (page, state) => {
  await ask(page, 'one');
  await page.click('button', 'Edit');
  await page.type(' more');
  await page.press('Escape');
  await page.sees('You said: one');
  assert.equal(state.requests.length, 1);
  assert.ok(!(await page.text()).includes(' of 2'));
});

rule('an answer that met the limit can go on', async (page, state) => {
  await ask(page, 'limit');
  await page.sees('The limit of tokens was reached.');
  await page.click('button', 'Continue');
  await page.sees('You said: limit and so on.');
  assert.equal(state.requests[1].continue_final_message, true);
  assert.deepEqual(roles(state.requests[1]), ['user: limit', 'assistant: You said: limit']);
});

rule('two conversations can be answered at once', async (page) => {
  await say(page, 'forever');
  await page.sees('word1');
  await page.click('button', 'New conversation');
  await ask(page, 'other');
  await page.sees('You said: other');
  await page.click('button', 'forever');
  await page.sees('word9');
  await page.click('button', 'Stop');
  await page.sees('Stopped.');
});

// --- Errors

for (const {name, words, shown} of [
  {name: 'a refusal', words: 'refuse', shown: `messages: ${kMarkup} is refused`},
  {name: 'a full queue', words: 'queue', shown: 'The queue is full. Try again in 2 s.'},
  {name: 'an error inside the stream', words: 'break', shown: 'The step failed.'},
  {name: 'a connection cut in the middle', words: 'cut', shown: 'The answer was cut off: '},
]) {
  rule(`${name} is shown in its own words`, async (page) => {
    await ask(page, words);
    await page.sees(shown, '.problem');
    await page.fill('textbox', 'Message', 'still');
    await ask(page, 'still here');
    await page.sees('You said: still here');
  });
}

rule('a server that is gone is said to be, and the message is not lost', async (page, state, server) => {
  await server.close();
  await ask(page, 'anybody');
  await page.sees('The server cannot be reached.', '.problem');
  await page.sees('anybody', '.turn.user');
  await page.until('no connection', () => document.querySelector('#health').textContent === 'No connection');
});

rule('a failed answer is replaced by the next try', async (page, state) => {
  state.key = 'secret';
  await ask(page, 'hello');
  await page.sees('The API key is missing or wrong. The key belongs under Settings.');
  await shot(page, 'error');
  await page.click('button', 'Settings');
  await page.fill('textbox', 'API key', 'secret');
  await page.click('button', 'Regenerate');
  await page.sees('You said: hello');
  assert.ok(!(await page.text()).includes(' of 2'));
  assert.equal(await page.eval(() => JSON.stringify(localStorage).includes('secret')), false);
  await page.click('checkbox', 'Keep the key in this browser');
  assert.equal(await page.eval(() => localStorage.getItem('lockstep.key')), 'secret');
  await page.reload();
  await ask(page, 'again');
  await page.sees('You said: again');
  await page.click('button', 'Settings');
  await page.click('checkbox', 'Keep the key in this browser');
  assert.equal(await page.eval(() => localStorage.getItem('lockstep.key')), null);
});

// --- What is kept

rule('a reload keeps conversations, versions, drafts and settings', async (page, state) => {
  await page.click('button', 'Settings');
  await page.fill('textbox', 'System text', 'Be brief.');
  await page.fill('spinbutton', 'Temperature 0 takes the likeliest token', '0');
  await ask(page, 'first talk');
  await page.click('button', 'New conversation');
  await ask(page, 'second talk');
  await page.click('button', 'Regenerate');
  await page.sees('2 of 2');
  await page.fill('textbox', 'Message', 'half a sent');
  await page.reload();
  await page.sees('You said: second talk');
  await page.sees('2 of 2');
  await page.until('the draft', () => document.querySelector('#draft').value === 'half a sent');
  await page.click('button', 'first talk');
  await page.sees('You said: first talk');
  await ask(page, 'more');
  assert.equal(state.requests.at(-1).messages[0].content, 'Be brief.');
  assert.equal(state.requests.at(-1).temperature, 0);
});

rule('an answer that a reload interrupts keeps what came', async (page) => {
  await say(page, 'forever');
  await page.sees('word5 ');
  await page.reload();
  await page.sees('word5 ');
  await page.sees('Stopped.');
});

rule('a deleted conversation can be brought back', async (page) => {
  await ask(page, 'precious');
  await page.click('button', 'Delete precious');
  await page.until('it to go', () => !document.querySelector('.turn'));
  await page.click('button', 'Undo');
  await page.sees('You said: precious');
  await page.reload();
  await page.sees('You said: precious');
});

rule('another tab sees what is said in this one', async (page, state, server) => {
  await ask(page, 'one');
  const other = await browser.open(server.url, {like: page});
  await other.sees('You said: one');
  await ask(page, 'two');
  await other.sees('You said: two');
  await other.close();
});

rule('an entry that is not a conversation is left alone', async (page) => {
  await page.eval(() => {
    for (const [name, value] of Object.entries({x: '{', y: '{}', z: 'null'}))
      localStorage.setItem(`lockstep.chat.${name}`, value);
  });
  await page.reload();
  await ask(page, 'fine');
  assert.equal(await page.eval(() => localStorage.getItem('lockstep.chat.x')), '{');
});

rule('a full storage is said, and the conversation goes on', async (page) => {
  await page.eval(() => {
    let size = 1 << 22;
    for (let i = 0; size > 0; ++i) {
      try {
        localStorage.setItem(`other${i}`, 'x'.repeat(size));
      } catch {
        size >>= 1;
      }
    }
  });
  await ask(page, 'is there room');
  await page.sees('The storage of this browser is full');
  await ask(page, 'go on');
  await page.sees('You said: go on');
});

// --- Settings

rule('only what was set is sent', async (page, state) => {
  await ask(page, 'nothing set');
  assert.deepEqual(Object.keys(state.requests[0]), ['messages', 'stream', 'stream_options']);
  await page.click('button', 'Settings');
  await page.fill('spinbutton', 'Temperature 0 takes the likeliest token', '0.7');
  await page.fill('spinbutton', 'Top-p', '0.9');
  await page.fill('spinbutton', 'Min-p', '0.05');
  await page.fill('spinbutton', 'Top-k 0 for all tokens', '40');
  await page.fill('textbox', 'Seed the same seed, the same answer', '-42');
  await page.fill('spinbutton', 'Tokens at most', '100');
  await page.choose('Thinking', 'On, greatest effort');
  await ask(page, 'all set');
  const {messages, stream, stream_options, ...rest} = state.requests[1];
  assert.deepEqual(rest, {temperature: 0.7, top_p: 0.9, min_p: 0.05, top_k: 40, seed: -42, max_tokens: 100,
    thinking: {type: 'enabled'}, reasoning_effort: 'max'});
  await page.choose('Thinking', 'Off');
  await ask(page, 'no thought');
  assert.deepEqual(state.requests[2].thinking, {type: 'disabled'});
  assert.equal(state.requests[2].reasoning_effort, undefined);
});

const kMore = 'Penalties, stop strings and more';
const kPresence = 'Presence penalty −2 to 2, for a token that was written';
const kStops = 'Stop strings one a line, 16 at most; \\n is a new line, \\t a tab, \\\\ a backslash';

rule('penalties and stop strings are folded, sent once they are set, and kept', async (page, state) => {
  await page.click('button', 'Settings');
  assert.equal(await page.has('spinbutton', kPresence), false);
  await page.click('DisclosureTriangle', kMore);
  await page.fill('spinbutton', kPresence, '-0.5');
  await page.fill('spinbutton', 'Frequency penalty −2 to 2, for each time that it was', '0.25');
  await page.fill('spinbutton', 'Repetition penalty 1 is none', '1.1');
  await page.fill('spinbutton', 'Repetition within tokens; −1 for all', '64');
  await page.fill('spinbutton', 'Thinking at most tokens', '0');
  await page.fill('textbox', kStops, 'END\n\\n\\n\n\na\\\\n\\d"');
  await ask(page, 'more set');
  const set = {presence_penalty: -0.5, frequency_penalty: 0.25, repeat_penalty: 1.1, repeat_last_n: 64,
    thinking_budget: 0, stop: ['END', '\n\n', 'a\\n\\d"']};
  const sent = () => {
    const {messages, stream, stream_options, ...rest} = state.requests.at(-1);
    return rest;
  };
  assert.deepEqual(sent(), set);
  await shot(page, 'more-settings');
  await page.reload();
  await ask(page, 'after a reload');
  assert.deepEqual(sent(), set);
  await page.click('button', 'Settings');
  await page.fill('textbox', kStops, '');
  for (const name of ['presence_penalty', 'frequency_penalty', 'repeat_penalty', 'repeat_last_n', 'thinking_budget'])
    await page.eval((id) => {
      const field = document.getElementById(id);
      field.value = '';
      field.dispatchEvent(new Event('input', {bubbles: true}));
    }, name);
  await ask(page, 'none set');
  assert.deepEqual(sent(), {});
  await page.click('button', 'New conversation');
  assert.equal(await page.has('spinbutton', kPresence), false, 'folded where nothing is set');
});

rule('a wrong setting in the folded part is pointed at', async (page, state) => {
  await page.click('button', 'Settings');
  await page.click('DisclosureTriangle', kMore);
  await page.fill('textbox', kStops, Array.from({length: 17}, (_, i) => `stop${i}`).join('\n'));
  await page.sees('17 strings, expected 16 at most.');
  await page.click('DisclosureTriangle', kMore);
  await say(page, 'hello');
  await page.sees('17 strings, expected 16 at most.');
  assert.equal(state.requests.length, 0);
  assert.equal(await page.focus(), `textbox "${kStops}"`);
  await page.fill('textbox', kStops, 'stop');
  await page.fill('spinbutton', kPresence, '3');
  await say(page, 'hello');
  assert.equal(state.requests.length, 0);
  assert.equal(await page.focus(), `spinbutton "${kPresence}"`);
  await page.fill('spinbutton', kPresence, '2');
  await page.fill('textbox', 'Message', '');
  await ask(page, 'hello');
  assert.deepEqual([state.requests[0].stop, state.requests[0].presence_penalty], [['stop'], 2]);
});

for (const seed of ['1234567890123456789', '-77', '-9223372036854775808', '18446744073709551615'])
  rule(`the seed of an answer can be kept, to the last digit: ${seed}`, async (page, state) => {
    state.seed = seed;  // two of these have more digits than a number of JavaScript
    await ask(page, 'one');
    await page.click('button', 'Keep the seed');
    await page.sees(`Seed ${seed} is set`);
    await ask(page, 'two');
    assert.match(state.texts[1], new RegExp(`"seed":${seed}[,}]`));
    await page.click('button', 'Settings');
    assert.ok(await page.eval(() => document.querySelector('#seed').checkValidity()));
  });

rule('a seed that cannot be is told and nothing is sent', async (page, state) => {
  const kField = 'Seed the same seed, the same answer', kProblem = 'Expected a whole number from −2^63 to 2^64 − 1.';
  await page.click('button', 'Settings');
  for (const seed of ['18446744073709551616', '-9223372036854775809', '1.5', 'one', '-', '12345678901234567890123']) {
    await page.fill('textbox', kField, seed);
    await page.sees(kProblem);
    await say(page, 'hello');
    assert.equal(state.requests.length, 0, seed);
    assert.equal(await page.focus(), `textbox "${kField}"`);
    await page.fill('textbox', 'Message', '');
  }
  await page.fill('textbox', kField, '18446744073709551615');
  await ask(page, 'hello');
  assert.match(state.texts[0], /"seed":18446744073709551615}/);
});

rule('a setting that cannot be is shown and nothing is sent', async (page, state) => {
  const kField = 'Tools a JSON array, as the API takes it; you type the results';
  await page.click('button', 'Settings');
  await page.fill('textbox', kField, '{"not": "an array"}');
  await page.sees('Expected a JSON array.');
  await say(page, 'hello');
  assert.equal(await page.focus(), `textbox "${kField}"`);
  await page.fill('textbox', kField, '');
  await page.fill('spinbutton', 'Temperature 0 takes the likeliest token', '7');
  await say(page, 'hello');
  assert.equal(state.requests.length, 0);
  assert.equal(await page.eval(() => document.querySelector('#draft').value), 'hello');
});

// --- Text

rule('what a model or server says is never markup', async (page, state) => {
  state.health = {error: {message: kMarkup}};
  await ask(page, `markup ${kMarkup}`);
  await page.click('button', 'Edit');
  await page.press('Escape');
  await page.sees(kMarkup, '.text');
  assert.equal(await page.eval(() => document.querySelectorAll('main img, main script, main b').length), 0);
  assert.equal(await page.eval(() => window.broken), undefined);
});

rule('Markdown becomes nodes', async (page) => {
  for (const [text, html] of [
    ['a\nb', '<p>a\nb</p>'],
    ['**b** *i* `c`', '<p><strong>b</strong> <em>i</em> <code>c</code></p>'],
    ['**b *i* b**', '<p><strong>b <em>i</em> b</strong></p>'],
    ['2 * 3 * 4 and snake_case_name', '<p>2 * 3 * 4 and snake_case_name</p>'],
    ['a ** b **', '<p>a ** b **</p>'],
    ['\\*not\\*', '<p>*not*</p>'],
    ['`` a`b ``', '<p><code>a`b</code></p>'],
    ['**open', '<p>**open</p>'],
    ['# H', '<h3>H</h3>'],
    ['- a\n- b\n  - c', '<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul>'],
    ['3. a\n4. b', '<ol start="3"><li>a</li><li>b</li></ol>'],
    ['1. a\n\n2. b', '<ol start="1"><li>a</li><li>b</li></ol>'],
    ['- a\n\n  b', '<ul><li><p>a</p><p>b</p></li></ul>'],
    ['> q\n> r', '<blockquote><p>q\nr</p></blockquote>'],
    ['a\n\n---\n\nb', '<p>a</p><hr><p>b</p>'],
    ['# ', '<p># </p>'],
    ['-', '<p>-</p>'],
    ['21.', '<p>21.</p>'],
    ['1) ', '<p>1)</p>'],
    ['>', '<p>&gt;</p>'],
    ['- -', '<ul><li>-</li></ul>'],
    ['-\n-', '<p>-\n-</p>'],
    ['- a\n-', '<ul><li>a</li><li></li></ul>'],
    ['> ---', '<blockquote><hr></blockquote>'],
    ['<b>x</b> [l](http://e.com)', '<p>&lt;b&gt;x&lt;/b&gt; [l](http://e.com)</p>'],
  ]) {
    const got = await page.eval(async (words) => {
      const {Markdown} = await import('./page_markdown.js');
      const host = document.createElement('div');
      new Markdown(host).update(words);
      return host.innerHTML;
    }, text);
    assert.equal(got, html, text);
  }
});

rule('Markdown that comes in pieces looks as if it had come at once', async (page) => {
  const texts = [kMarkdown, 'foo\n-5 degrees\n\n- a\n\n-5\n\n1. b\n\n   c\n2. d',
    'a|b\n-|-\nc|d\n\n```js\nx\n```\nafter\n- - -\nz'];
  const wrong = await page.eval(async (all) => {
    const {Markdown} = await import('./page_markdown.js');
    for (const text of all) {
      const growing = document.createElement('div');
      const markdown = new Markdown(growing);
      for (let end = 0; end <= text.length; ++end) {
        markdown.update(text.slice(0, end));
        const whole = document.createElement('div');
        new Markdown(whole).update(text.slice(0, end));
        if (growing.innerHTML !== whole.innerHTML) return [text.slice(0, end), growing.innerHTML, whole.innerHTML];
      }
    }
    return null;
  }, texts);
  assert.equal(wrong, null);
});

rule('no text takes long to draw', async (page) => {
  for (const piece of ['**a ', '*a ', '`a ``b ', '> ', '- ', '  - a\n', '| a ', ' ', '# a ', '```\n', 'word ', '\\']) {
    const ms = await page.eval(async (words) => {
      const {Markdown} = await import('./page_markdown.js');
      const text = `-${words.repeat(Math.ceil(100000 / words.length))}\n-x-`;
      const began = performance.now();
      new Markdown(document.createElement('div')).update(text);
      return performance.now() - began;
    }, piece);
    // A pass that is not linear would take minutes.
    assert.ok(ms < 3000, `${JSON.stringify(piece)}: ${Math.round(ms)} ms`);
  }
});

// --- Status

rule('the status view plots what the metrics say', async (page) => {
  await page.click('link', 'Status');
  await page.until('figures', () => /[\d.]+ tok\/s/.test(document.querySelector('#plots').innerText));
  await page.sees('of 128 GiB');
  await page.sees('Reading the prompt');
  await page.sees('cpu (avx512, 8 threads)');
  await page.until('lines', () => document.querySelectorAll('#plots path[d*="L"]').length >= 8);
  if (shots) await new Promise((done) => setTimeout(done, 20000));
  await shot(page, 'status');
  await page.prefer('dark');
  await shot(page, 'status-dark');
});

rule('the cache on disk is shown where there is one', async (page, state) => {
  const shown = () => page.eval(() => [...document.querySelectorAll('#plots figure')]
      .filter((plot) => plot.checkVisibility()).map((plot) => plot.querySelector('figcaption span').textContent));
  const facts = () => page.eval(() => Object.fromEntries(
      [...document.querySelectorAll('#totals dt')].map((name) => [name.textContent, name.nextSibling.textContent])));
  await page.click('link', 'Status');
  await page.sees('of 64.0 GiB', '#plots');
  assert.deepEqual((await shown()).slice(-2), ['Disk cache', 'From the disk']);
  // The rate of a second in which a prompt was restored; the one before and after it is 0.
  await page.until('a restore in the plot', () => [...document.querySelectorAll('#plots path')].at(-3)
      .getAttribute('d').split(/[ML]/).some((point) => point && !point.endsWith(' 98.00')));
  const {'Disk': disk, 'From the disk': restored, ...others} = await facts();
  assert.match(disk, /^214 states, 37\.\d GiB of 64\.0 GiB, 5\.0 GiB written, 12 evictions$/);
  const [, prompts, tokens] = restored.match(/^(\d+) prompts, ([\d,]+) tokens, [\d.]+ [MG]iB at 1\.5 GiB\/s$/);
  assert.equal(Number(tokens.replaceAll(',', '')), 8192 * Number(prompts));
  assert.ok(!('Trouble with the disk' in others));
  await page.sees("16,384, 8,192 of the disk's", '#slots');
  state.disk = {lockstep_disk_failures_total: 3, lockstep_disk_read_only: 1, lockstep_disk_hits_total: 0,
    lockstep_disk_restored_tokens_total: 0, lockstep_disk_restored_bytes_total: 0,
    lockstep_disk_restore_seconds_total: 0};
  await page.sees('3 could not be written; nothing can be written to the directory', '#totals');
  assert.equal((await facts())['From the disk'], '0 prompts, 0 tokens, 0 B', 'no speed of nothing');
  state.has_disk = false;
  await page.until('no plots of a disk', () => [...document.querySelectorAll('#plots figure')]
      .filter((plot) => plot.checkVisibility()).length === 6);
  assert.ok(!(await shown()).includes('Disk cache'));
  assert.ok(!('Disk' in await facts()));
});

rule('loading, trouble and missing metrics are said', async (page, state) => {
  await page.sees('Ready', '#health');
  await page.click('link', 'Status');
  state.health = {error: {code: 503, message: 'Loading model', type: 'unavailable_error'}, progress: '43 %'};
  await page.sees('Loading model 43 %', '#health');
  state.health = {error: {code: 503, message: 'The model has been in one step for 70 s', type: 'unavailable_error'}};
  await page.sees('The model has been in one step for 70 s', '#health');
  state.health = null;
  await page.sees('Ready', '#health');
  state.has_metrics = false;
  await page.sees('/metrics: turned off by --no-metrics');
});

// --- Looks

/// Texts whose contrast against what lies behind them is below 4.5 to one.
function faint_texts() {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = (color) => {
    const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = color.map((part) => linear(part / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (; element; element = element.parentElement) {
      const color = rgba(getComputedStyle(element).backgroundColor);
      if (color[3] === 255) return color;
    }
    return [255, 255, 255];
  };
  const faint = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !element.checkVisibility()) continue;
    const [a, b] = [rgba(getComputedStyle(element).color), behind(element)].map(luminance);
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) faint.push(`${texts.currentNode.data.trim()}: ${contrast.toFixed(2)}`);
  }
  return faint;
}

rule('light and dark follow the system or the choice, and can be read', async (page) => {
  await page.click('button', 'Settings');
  await ask(page, 'refuse');
  await ask(page, 'think');
  await page.click('DisclosureTriangle', (await page.text('summary')).trim());
  await ask(page, 'markdown');
  const ground = () => page.eval(() => getComputedStyle(document.body).backgroundColor);
  await page.prefer('light');
  const light = await ground();
  assert.deepEqual(await page.eval(faint_texts), []);
  await shot(page, 'light');
  await page.prefer('dark');
  const dark = await ground();
  assert.notEqual(dark, light);
  assert.deepEqual(await page.eval(faint_texts), []);
  await shot(page, 'dark');
  await page.choose('Colours', 'Light');
  assert.equal(await ground(), light);
  await page.prefer('light');
  await page.choose('Colours', 'Dark');
  await page.reload();
  assert.equal(await ground(), dark);
});

rule('nothing sticks out of a narrow screen', async (page) => {
  await page.resize(360, 740);
  await page.reload();
  const fits = async (what) => {
    const wide = await page.eval(() => [...document.querySelectorAll('body *')].filter((element) => {
      if (!element.checkVisibility() || element.closest('.unseen, .skip, h1')) return false;
      const scroller = element.closest('.wide, pre');
      const scrolls = element.scrollWidth > element.clientWidth && getComputedStyle(element).overflowX === 'auto';
      if (scrolls && element !== scroller) return true;
      return element.getBoundingClientRect().right > 360.5 && (!scroller || scroller === element);
    }).map((element) => element.outerHTML.slice(0, 80)));
    assert.deepEqual(wide, [], what);
    assert.equal(await page.eval(() => document.scrollingElement.scrollWidth), 360, what);
  };
  await fits('welcome');
  await ask(page, `markdown ${'longword'.repeat(20)}`);
  await fits('chat');
  assert.equal(await page.eval(() => {
    const code = document.querySelector('.code pre');
    code.scrollLeft = 1e6;
    return code.scrollLeft > 100;
  }), true, 'long code scrolls inside its box');
  await shot(page, 'narrow');
  await page.click('button', 'Chats');
  await fits('list');
  await shot(page, 'narrow-list');
  await page.click('button', 'Settings');
  await page.click('DisclosureTriangle', kMore);
  await page.fill('textbox', kStops, Array.from({length: 17}, () => 'a long stop string').join('\n'));
  await fits('settings');
  await page.eval(() => document.querySelector('#more').scrollIntoView());
  await shot(page, 'narrow-settings');
  await page.press('Escape');
  await page.click('link', 'Status');
  await page.sees('of 128 GiB');
  await fits('status');
  await shot(page, 'narrow-status');
});

// --- Keyboard and names

rule('everything can be done with the keyboard', async (page, state) => {
  assert.equal(await page.focus(), 'textbox "Message"');
  await page.type('one');
  await page.press('Enter', 'shift');
  await page.type('line');
  await page.press('Enter');
  await page.sees('You said: one\nline');
  await page.find('button', 'Send');
  assert.equal(await page.focus(), 'textbox "Message"');
  await page.tab_to('button "Regenerate"', 'shift');
  await page.press('Enter');
  await page.sees('2 of 2');
  await page.find('button', 'Send');
  await page.tab_to('button "Earlier version"', 'shift');
  await page.press(' ');
  await page.sees('1 of 2');
  assert.equal(await page.focus(), 'button "Later version"');
  await page.tab_to('button "Edit"');
  await page.press('Enter');
  assert.equal(await page.focus(), 'textbox "Answer"');
  await page.press('Escape');
  assert.equal(await page.focus(), 'button "Edit"');
  await page.tab_to('button "Settings"', 'shift');
  await page.press('Enter');
  assert.equal(await page.focus(), 'textbox "System text"');
  await page.type('Short.');
  await page.tab_to(`DisclosureTriangle "${kMore}"`);
  await page.press(' ');
  await page.tab_to('spinbutton "Repetition penalty 1 is none"');
  await page.type('1.5');
  await page.tab_to('button "New conversation"', 'shift');
  await page.press('Enter');
  assert.equal(await page.focus(), 'textbox "Message"');
  await page.type('two');
  await page.press('Enter');
  await page.sees('You said: two');
  assert.equal(state.requests.at(-1).messages[0].content, 'Short.');
  assert.equal(state.requests.at(-1).repeat_penalty, 1.5);
  await page.find('button', 'Send');
  await page.tab_to('button "one"', 'shift');
  await page.press('Enter');
  await page.sees('You said: one');
  await page.tab_to('link "Status"', 'shift');
  await page.press('Enter');
  await page.sees('Prefix cache');
});

rule('on a narrow screen Escape closes a panel and gives the focus back', async (page) => {
  await page.resize(360, 740);
  await page.reload();
  await page.tab_to('button "Chats"', 'shift');
  await page.press('Enter');
  assert.equal(await page.focus(), 'button "New conversation"');
  await page.press('Escape');
  assert.equal(await page.focus(), 'button "Chats"');
  assert.equal(await page.has('button', 'New conversation'), false);
});

rule('every control has a name', async (page) => {
  await page.click('button', 'Settings');
  await page.click('DisclosureTriangle', kMore);
  await page.fill('textbox', 'Tools a JSON array, as the API takes it; you type the results', kTools);
  await ask(page, 'call');
  await page.click('link', 'Status');
  await page.sees('of 128 GiB');
  const kRoles = ['button', 'textbox', 'spinbutton', 'combobox', 'checkbox', 'link', 'image', 'img', 'region'];
  for (const view of ['Status', 'Chat']) {
    await page.click('link', view);
    const {nodes} = await page.send('Accessibility.getFullAXTree');
    const controls = nodes.filter((node) => !node.ignored && kRoles.includes(node.role?.value));
    assert.ok(controls.length > 15);
    assert.deepEqual(controls.filter((node) => !node.name?.value).map((node) => node.role.value), []);
  }
});
