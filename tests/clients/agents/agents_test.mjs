// Coding agents against the server, by the recipes of docs/clients.md as they are written there; only the port differs.
//
//   node agents_test.mjs FOLDER LOCKSTEP [NAME...]      FOLDER has the packages of package.json; NAME: headings
//
// Each runs with a home and a working folder of its own, which are removed after it. What counts is the protocol: the
// agent ends well and prints what the model said, and every request of it was answered, none of them twice; when it is
// ended in the middle nobody goes on with its answer; a prompt that does not fit is told, and not sent again and again.
import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import {mkdir, mkdtemp, readdir, readFile, rm, writeFile} from 'node:fs/promises';
import {tmpdir} from 'node:os';
import {dirname, join, resolve} from 'node:path';
import {test} from 'node:test';

import {Server} from '../server.mjs';
import {read_recipes} from './recipes.mjs';

const kMinutes = 10;    // an agent's prompt has up to 30,000 tokens, and there may be two cores
const kAnswer = 100;    // tokens at most, since the demo model may lose itself in such a prompt
const kMostPosts = 30;  // of one run: the demo model may call one tool after another before it answers
const kMostRefused = 16;   // of one whose prompt does not fit: it may try a few times to make it shorter
const kLongPrompt = 1500;  // tokens; that of every agent is longer

const [folder, program, ...names] = process.argv.slice(2);
if (!program) throw new Error('expected two arguments: the folder of the installed packages and the lockstep program');
const recipes = await read_recipes(new URL('../../../docs/clients.md', import.meta.url));
const chosen = recipes.filter(({name}) => names.length === 0 || names.includes(name));
if (chosen.length < Math.max(1, names.length)) throw new Error(`no recipe for one of: ${names.join(', ')}`);

/// Starts the commands in `home`/work. `ended` comes to {code, out, err}.
function start(commands, home) {
  const env = {
    HOME: home,
    PATH: `${join(resolve(folder), 'node_modules', '.bin')}:${process.env.PATH}`,
    LANG: 'C.UTF-8',
    TERM: 'dumb',
    NO_COLOR: '1',
    // It asks for 32,000 tokens whatever the server would do by itself, and a model that is lost may write them all.
    CLAUDE_CODE_MAX_OUTPUT_TOKENS: String(kAnswer),
  };
  const child = spawn('sh', ['-e', '-c', commands], {
    cwd: join(home, 'work'), env, detached: true, stdio: ['ignore', 'pipe', 'pipe'],
  });
  const told = {out: '', err: ''};
  child.stdout.on('data', (bytes) => { told.out += bytes; });
  child.stderr.on('data', (bytes) => { told.err += bytes; });
  const late = setTimeout(() => process.kill(-child.pid, 'SIGKILL'), kMinutes * 60000);
  const ended = new Promise((done) => child.once('exit', (code, signal) => done(code ?? signal))).then(async (code) => {
    clearTimeout(late);
    await end_all_of(home);
    return {code, ...told};
  });
  return {ended};
}

/// Ends what an agent left running, daemons too: whatever has this home.
async function end_all_of(home) {
  for (const id of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
    const environment = await readFile(`/proc/${id}/environ`, 'utf8').catch(() => '');
    if (!environment.split('\0').includes(`HOME=${home}`)) continue;
    try {
      process.kill(Number(id), 'SIGKILL');
    } catch (error) {
      if (error.code !== 'ESRCH') throw error;  // it had just ended by itself
    }
  }
}

/// Calls `use(server, home, here)` with a server of its own and a home where the files of a recipe lie; here() puts
/// the server's address into a text.
async function with_home(files, options, use) {
  const server = await Server.start(program, ['--temperature', '0', '--max-tokens', String(kAnswer), ...options]);
  const home = await mkdtemp(join(tmpdir(), 'lockstep-client-'));
  const here = (text) => text.replaceAll('http://127.0.0.1:8000', server.url);
  try {
    await mkdir(join(home, 'work'));
    for (const {path, text} of files) {
      await mkdir(dirname(join(home, path)), {recursive: true});
      await writeFile(join(home, path), here(text));
    }
    return await use(server, home, here);
  } finally {
    await end_all_of(home);
    await server.stop();
    await rm(home, {recursive: true, force: true, maxRetries: 5});
  }
}

function tell(context, server, {code, out, err}) {
  for (const {path, status, seconds, prompt_tokens, cached_tokens, completion_tokens} of server.requests)
    context.diagnostic(`${path}: ${status} after ${seconds} s, ${prompt_tokens} tokens of prompt ` +
                       `(${cached_tokens} cached), ${completion_tokens} of answer`);
  context.diagnostic(`printed: ${JSON.stringify(out.slice(-600))}`);
  if (code !== 0) context.diagnostic(`exit code ${code}, stderr: ${err.slice(-2000)}`);
}

/// Runs commands of a recipe; gives what was printed and the server's requests, after holding them to what every run
/// owes.
function run_recipe(context, files, commands, options = []) {
  return with_home(files, options, async (server, home, here) => {
    const {code, out, err} = await start(here(commands), home).ended;
    tell(context, server, {code, out, err});
    assert.equal(code, 0, 'exit code');
    assert.match(out, /\S/, 'it printed an answer');
    assert.ok(server.requests.length >= 1, 'it asked the server');
    const failed = server.requests.filter(({status}) => status !== 200);
    assert.deepEqual(failed.map(({path, status}) => [path, status]), []);
    assert.ok(server.requests.length <= kMostPosts, `${server.requests.length} requests`);
    const sizes = server.requests.map(({path, prompt_tokens}) => `${path} ${prompt_tokens}`);
    assert.equal(new Set(sizes).size, sizes.length, `a prompt came again: ${sizes.join(', ')}`);
    return {out, requests: server.requests};
  });
}

// Qwen Code leaves it to the server whether the model thinks. With a thought before, the demo model, lost in a prompt of
// 24,000 tokens, answers or calls tools by the spelling of the home's random name, and once the same one again and again.
const kServerOptions = {'Qwen Code': ['--thinking', 'off']};

const kLimit = {timeout: (kMinutes + 2) * 60000};
for (const {name, files, commands} of chosen)
  test(`${name}: answers by its recipe`, kLimit,
       (context) => run_recipe(context, files, commands, kServerOptions[name]));

// What curl does with these is among the tests of the client libraries: its prompt is too short to be left or too long.
const agents = chosen.filter(({name}) => name !== 'curl');

for (const {name, files, commands} of agents)
  test(`${name}: is ended while its prompt is read, and nobody goes on with it`, kLimit, (context) =>
    with_home(files, [], async (server, home, here) => {
      const {ended} = start(here(commands), home);
      const is_reading = ({lockstep}) => lockstep.is_prefilling && lockstep.prompt_tokens > kLongPrompt;
      await Server.until('a long prompt', async () => (await server.slots()).some(is_reading), 120);
      await end_all_of(home);
      await Server.until('free slots', () => server.is_idle(), 2);
      const {out} = await ended;
      context.diagnostic(`printed: ${JSON.stringify(out.slice(-300))}`);
      assert.ok(await server.metric('lockstep_answers_total{end="cancelled"}') >= 1, 'an answer was cancelled');
      assert.equal(await server.metric('lockstep_answers_total{end="failed"}'), 0);
    }));

for (const {name, files, commands} of agents)
  test(`${name}: a prompt that does not fit is told, and sent a few times at most`, kLimit, (context) =>
    with_home(files, ['--context', String(kLongPrompt)], async (server, home, here) => {
      const told = await start(here(commands), home).ended;
      tell(context, server, told);
      assert.ok(server.requests.some(({status}) => status === 400), 'its prompt did not fit');
      assert.deepEqual(server.requests.filter(({status}) => status !== 200 && status !== 400), []);
      assert.ok(server.requests.length <= kMostRefused, `${server.requests.length} requests`);
      // An agent that then has its conversation summed up has understood too, though it may say nothing.
      const has_compacted = server.requests.some(({status}) => status === 200);
      assert.ok(has_compacted || /context|too long|exceed|maximum/i.test(told.out + told.err), 'it was understood');
    }));

// With one tool and a short system text the demo model can be an agent, though not a good one.
const kNotes = {path: 'work/notes.txt', text: 'The color is green.\n'};
const kRoundTrips = {
  'Pi': {
    options: ' --tools read --system-prompt "You are a helpful assistant."',
    question: 'Read the file notes.txt',
    answer: /The color is green\./,
  },
  'Claude Code': {
    options: ' --tools Read --system-prompt "You are a helpful assistant."',
    question: 'Read the file notes.txt',
    answer: /\S/,
  },
};
for (const {name, files, commands} of chosen.filter(({name}) => name in kRoundTrips)) {
  test(`${name}: calls a tool and answers from its result`, kLimit, async (context) => {
    const {options, question, answer} = kRoundTrips[name];
    const changed = commands.replace(/ -p "[^"]*"/, `${options} -p "${question}"`);
    assert.notEqual(changed, commands, 'the recipe asks with -p');
    const {out, requests} = await run_recipe(context, [...files, kNotes], changed);
    assert.match(out, answer);
    assert.ok(requests.length >= 2, 'the result of the tool came back');
    // The last token of an answer, the end of sentence, is not in the cache.
    assert.ok(requests[1].cached_tokens >= requests[0].prompt_tokens - 1, 'the second prompt begins with the first');
  });
}
