// Conversations: what is kept of them, and how an answer is fetched. Knows nothing of the page's elements.
//
// A conversation is a tree of turns, so that editing or regenerating loses nothing: the new version stands beside the
// old one, under the same parent, and `leaf` says which path is shown.
//
//   chat   {id, title, changed, draft, leaf, settings, turns: {id: turn}}
//   turn   {id, parent, role, text, ...}; role is "user", "assistant" or "tool"
//     assistant   reasoning, calls [{id, name, arguments}], end, problem, usage, rates, seed, thought_ms
//     tool        results [{id, name, text}]
//   end    "stop", "length", "tool_calls" as the server said; "stopped" by the user; "failed", see problem
const kChatPrefix = 'lockstep.chat.';
const kNumbers = ['temperature', 'top_p', 'min_p', 'top_k', 'max_tokens', 'presence_penalty', 'frequency_penalty',
  'repeat_penalty', 'repeat_last_n', 'thinking_budget'];

/// Not crypto.randomUUID, which pages that come by plain HTTP from another machine do not have. A letter comes first,
/// because objects put keys that look like numbers before the others.
function new_id() {
  return 'c' + Array.from(crypto.getRandomValues(new Uint32Array(3)), (part) => part.toString(36)).join('');
}

/// An error to be shown as it is. `status` is HTTP's, 0 if there was no answer.
export class ServerError extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

// --- The tree

export function new_chat(settings = {}) {
  return {id: new_id(), title: '', changed: Date.now(), draft: '', leaf: null, settings: {...settings}, turns: {}};
}

/// Adds a turn and shows it.
export function add_turn(chat, turn) {
  const added = {id: new_id(), text: '', ...turn};
  chat.turns[added.id] = added;
  chat.leaf = added.id;
  chat.changed = Date.now();
  if (!chat.title && turn.role === 'user') chat.title = turn.text.trim().split('\n')[0].slice(0, 60);
  return added;
}

export function new_answer(chat, parent) {
  return add_turn(chat, {parent, role: 'assistant', reasoning: '', calls: []});
}

/// The shown turns, first to last.
export function path_of(chat) {
  const path = [];
  for (let turn = chat.turns[chat.leaf]; turn; turn = chat.turns[turn.parent]) path.unshift(turn);
  return path;
}

/// The versions of a turn, itself included, in the order they were made.
export function versions_of(chat, turn) {
  return Object.values(chat.turns).filter((other) => other.parent === turn.parent);
}

/// Shows the path through `turn` that was made last.
export function show_version(chat, turn) {
  let leaf = turn;
  for (let next = leaf; next; next = Object.values(chat.turns).filter((other) => other.parent === leaf.id).at(-1))
    leaf = next;
  chat.leaf = leaf.id;
}

// --- What is kept

/// The browser's, or memory where the browser keeps nothing for pages.
export const storage = (() => {
  try {
    return window.localStorage;
  } catch {
    const kept = new Map();
    return {
      get length() { return kept.size; },
      key: (i) => [...kept.keys()][i],
      getItem: (name) => kept.get(name) ?? null,
      setItem: (name, value) => { kept.set(name, value); },
      removeItem: (name) => { kept.delete(name); },
    };
  }
})();

/// The conversations of this browser, one entry of the storage each, so that two tabs do not overwrite one another.
export class Chats {
  constructor() {
    this.all = new Map();
    for (let i = 0; i < storage.length; ++i) this.reload(storage.key(i));
  }

  /// Takes over what another tab wrote. Returns the id, or null if the entry is not a conversation. An entry that
  /// cannot be read is left where it is.
  reload(key) {
    if (!key?.startsWith(kChatPrefix)) return null;
    const id = key.slice(kChatPrefix.length);
    const text = storage.getItem(key);
    if (text === null) {
      this.all.delete(id);
      return id;
    }
    try {
      const chat = JSON.parse(text);
      if (chat.id !== id || typeof chat.turns !== 'object' || typeof chat.settings !== 'object') return null;
      for (const turn of Object.values(chat.turns)) if (turn.role === 'assistant' && !turn.end) turn.end = 'stopped';
      this.all.set(id, chat);
      return id;
    } catch {
      return null;
    }
  }

  /// Newest first.
  sorted() {
    return [...this.all.values()].sort((a, b) => b.changed - a.changed);
  }

  /// False if the storage takes no more; the conversation stays in this tab.
  save(chat) {
    this.all.set(chat.id, chat);
    try {
      storage.setItem(kChatPrefix + chat.id, JSON.stringify(chat));
      return true;
    } catch {
      return false;
    }
  }

  remove(chat) {
    this.all.delete(chat.id);
    storage.removeItem(kChatPrefix + chat.id);
  }
}

// --- Asking the server

/// fetch, with the key, as a response that is fine. Throws ServerError with the server's own words.
export async function ask(path, key, options = {}) {
  const headers = {...options.headers};
  if (key) headers.Authorization = `Bearer ${key}`;
  let response;
  try {
    response = await fetch(path, {...options, headers, cache: 'no-store'});
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ServerError('The server cannot be reached.');
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  let message = body?.error?.message ?? `The server answered with status ${response.status}.`;
  if (response.status === 401) message += ' The key belongs under Settings.';
  const wait = response.headers.get('Retry-After');
  if (wait) message += ` Try again in ${wait} s.`;
  throw new ServerError(message, response.status);
}

/// Not so: the arguments of a call in an answer that was stopped.
function is_json(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function messages_of(chat, last) {
  const messages = [];
  if (chat.settings.system) messages.push({role: 'system', content: chat.settings.system});
  for (const turn of path_of({...chat, leaf: last})) {
    if (turn.role === 'user') messages.push({role: 'user', content: turn.text});
    for (const result of turn.results ?? [])
      messages.push({role: 'tool', tool_call_id: result.id, content: result.text});
    if (turn.role !== 'assistant') continue;
    const message = {role: 'assistant', content: turn.text};
    if (turn.reasoning) message.reasoning_content = turn.reasoning;
    const calls = turn.calls.filter((call) => is_json(call.arguments));
    if (calls.length > 0)
      message.tool_calls =
          calls.map(({id, name, arguments: text}) => ({id, type: 'function', function: {name, arguments: text}}));
    messages.push(message);
  }
  return messages;
}

/// The stop strings of a settings field: one a line, so that what breaks a line is written \\n in them.
export function stops_of(text) {
  const kEscapes = {n: '\n', t: '\t', r: '\r', '\\': '\\'};
  return (text ?? '').split('\n').filter((line) => line !== '')
      .map((line) => line.replace(/\\(.)/gu, (all, letter) => kEscapes[letter] ?? all));
}

/// The request for what follows turn `last`; for the rest of it if `continues`. As JSON.
function request_of(chat, last, continues) {
  const {settings} = chat;
  const body = {messages: messages_of(chat, last), stream: true, stream_options: {include_usage: true}};
  for (const name of kNumbers) if (Number.isFinite(settings[name])) body[name] = settings[name];
  if (settings.thinking) body.thinking = {type: settings.thinking === 'off' ? 'disabled' : 'enabled'};
  if (['low', 'high', 'max'].includes(settings.thinking)) body.reasoning_effort = settings.thinking;
  const stops = stops_of(settings.stop);
  if (stops.length > 0) body.stop = stops;
  if (settings.tools) body.tools = JSON.parse(settings.tools);
  if (continues) body.continue_final_message = true;
  const text = JSON.stringify(body);
  // Seeds have 64 bits, and a number of JavaScript would keep 53 of them.
  return settings.seed ? `${text.slice(0, -1)},"seed":${BigInt(settings.seed)}}` : text;
}

/// The data of the events of a stream. Comments, which only keep the connection alive, and an event that is cut off by
/// the stream's end are dropped.
async function* events_of(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '', data = [];
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const lines = (rest + value).split('\n');
    rest = lines.pop();
    for (let line of lines) {
      if (line.endsWith('\r')) line = line.slice(0, -1);
      if (line.startsWith('data:')) data.push(line.slice(line[5] === ' ' ? 6 : 5));
      if (line !== '' || data.length === 0) continue;
      yield data.join('\n');
      data = [];
    }
  }
}

/// Adds a chunk of the stream to the turn.
function take(turn, data, began) {
  const chunk = JSON.parse(data);
  if (chunk.error) throw new ServerError(chunk.error.message ?? 'The server gave up without saying why.');
  if (chunk.usage) turn.usage = chunk.usage;
  if (chunk.lockstep) {
    turn.rates = chunk.lockstep;
    turn.seed = data.match(/"lockstep":\s*{[^{}]*"seed":\s*(-?\d+)/)?.[1];  // all of its digits
  }
  const choice = chunk.choices?.[0];
  if (!choice) return;
  const delta = choice.delta ?? {};
  if (delta.reasoning_content) {
    turn.reasoning += delta.reasoning_content;
    turn.thought_ms = performance.now() - began;
  }
  if (delta.content) turn.text += delta.content;
  for (const part of delta.tool_calls ?? []) {
    const call = turn.calls[part.index] ??= {id: '', name: '', arguments: ''};
    if (part.id) call.id = part.id;
    if (part.function?.name) call.name = part.function.name;
    call.arguments += part.function?.arguments ?? '';
  }
  if (choice.finish_reason) turn.end = choice.finish_reason;
}

/// Fetches the answer into `turn`, which holds the text so far if it `continues`. Calls `on_change` after every chunk.
/// Never throws: how it went is in turn.end and turn.problem.
export async function answer(chat, turn, {key, signal, continues = false, on_change}) {
  delete turn.end;
  delete turn.problem;
  const began = performance.now();
  try {
    const response = await ask('v1/chat/completions', key, {
      method: 'POST',
      signal,
      headers: {'Content-Type': 'application/json'},
      body: request_of(chat, continues ? turn.id : turn.parent, continues),
    });
    for await (const data of events_of(response.body)) {
      if (data === '[DONE]') break;
      take(turn, data, began);
      on_change();
    }
    if (!turn.end) throw new ServerError('The connection ended before the answer did.');
  } catch (error) {
    turn.end = signal.aborted ? 'stopped' : 'failed';
    if (!signal.aborted)
      turn.problem = error instanceof ServerError ? error.message : `The answer was cut off: ${error.message}.`;
  }
  chat.changed = Date.now();
  on_change();
}
