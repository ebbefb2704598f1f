// The page itself: which conversation is shown, its settings, sending and stopping, the views and the keyboard.
import {
  add_turn, answer, ask, Chats, new_answer, new_chat, path_of, show_version, stops_of, storage, versions_of,
} from './page_chat.js';
import {button, make} from './page_dom.js';
import {Status} from './page_status.js';
import {TurnView} from './page_turns.js';

const at = (id) => document.getElementById(id);
const kSaveEvery_ms = 1000;
const kNear_px = 48;  // this close to the end, the view follows what is written

const chats = new Chats();
const running = new Map();  // id of a conversation -> {ours, turn, abort}, ours being the conversation
let chat = chats.sorted()[0] ?? new_chat();
let views = new Map();  // id of a turn -> TurnView, of the shown path
let save_timer = 0;
const unsaved = new Set();
let is_leaving = false;  // then answers break off, which is not to be kept as their failure
let key = storage.getItem('lockstep.key') ?? '';

// --- Notices

function notify(text, action_name, action) {
  const line = make('p', {}, make('span', {}, text));
  const leave = () => line.remove();
  if (action) line.append(button(action_name, () => { leave(); action(); }));
  line.append(button('Close', leave));
  at('notices').replaceChildren(line);
}

function announce(text) {
  at('announcer').textContent = text;
}

// --- Saving

/// Saves soon, and at most once in kSaveEvery_ms, however often it is called. A conversation with nothing in it is not
/// kept.
function save(changed) {
  if (changed.leaf || changed.draft || chats.all.has(changed.id)) unsaved.add(changed);
  save_timer ||= setTimeout(save_now, kSaveEvery_ms);
}

function save_now() {
  clearTimeout(save_timer);
  save_timer = 0;
  if (is_leaving) return;
  for (const changed of unsaved)
    if (!chats.save(changed)) notify('The storage of this browser is full: changes stay in this tab only. Delete ' +
        'conversations to make room.');
  unsaved.clear();
}

// --- Drawing

/// Runs `change`; if the end of the conversation was in view, it still is afterwards.
function following(change) {
  const scroll = at('scroll');
  const is_near = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < kNear_px;
  change();
  if (is_near) to_end();
}

function draw() {
  const focused = document.activeElement;
  following(draw_turns);
  const is_busy = running.has(chat.id);
  at('welcome').hidden = views.size > 0;
  at('send').hidden = is_busy;
  at('stop').hidden = !is_busy;
  // The focus goes to the message if what had it is gone; not on touch screens, where that would open a keyboard.
  const is_lost = focused !== document.body && !focused.checkVisibility();
  if (is_lost && !matchMedia('(pointer: coarse)').matches) at('draft').focus();
}

function draw_turns() {
  const path = path_of(chat);
  const old = [...views.keys()];
  // Views that stay are not touched, so that they keep the focus and what is unfolded.
  const same = old.findIndex((id, i) => id !== path[i]?.id);
  for (const id of same < 0 ? [] : old.slice(same)) {
    views.get(id).element.remove();
    views.delete(id);
  }
  path.forEach((turn, i) => {
    if (!views.has(turn.id)) {
      views.set(turn.id, new TurnView(turn, acts));
      at('turns').append(views.get(turn.id).element);
    }
    views.get(turn.id).update({versions: versions_of(chat, turn), is_leaf: i === path.length - 1,
      is_busy: running.has(chat.id), is_running: running.get(chat.id)?.turn === turn});
  });
}

let is_drawing = false;
function grow_soon() {
  if (is_drawing) return;
  is_drawing = true;
  requestAnimationFrame(() => {
    is_drawing = false;
    const turn = running.get(chat.id)?.turn;
    if (turn) following(() => views.get(turn.id)?.grow());
  });
}

function draw_list() {
  const all = chats.sorted();
  if (!chats.all.has(chat.id)) all.unshift(chat);
  at('chats').replaceChildren(...all.map((one) => {
    const title = one.title || 'New conversation';
    const name = button(title, () => open(one), {className: running.has(one.id) ? 'name waiting' : 'name', title});
    if (one === chat) name.setAttribute('aria-current', 'true');
    return make('li', {}, name, button('✕', () => remove(one), {'aria-label': `Delete ${title}`}));
  }));
  at('title').textContent = chat.title || 'New conversation';
  document.title = chat.title ? `${chat.title} · Lockstep` : 'Lockstep';
}

function to_end() {
  at('scroll').scrollTop = at('scroll').scrollHeight;
}

// --- Conversations

function show(other) {
  chat = other;
  for (const view of views.values()) view.element.remove();
  views = new Map();
  at('draft').value = chat.draft;
  fit_draft();
  fill_settings();
  draw();
  draw_list();
  to_end();
}

function open(other) {
  location.hash = '#chat';
  show(other);
  if (is_narrow()) set_panel('list', false);
  at('draft').focus();
}

function remove(gone) {
  running.get(gone.id)?.abort.abort();
  unsaved.delete(gone);
  chats.remove(gone);
  if (gone === chat) show(chats.sorted()[0] ?? new_chat(gone.settings));
  else draw_list();
  at('new-chat').focus();
  if (!gone.leaf && !gone.draft) return;
  notify(`“${gone.title || 'New conversation'}” was deleted.`, 'Undo', () => {
    if (!chats.save(gone)) notify('The storage of this browser is full: the conversation is in this tab only.');
    show(gone);
  });
}

/// Lets the model write into `turn`, which is in `ours` already.
async function write(ours, turn, continues = false) {
  const abort = new AbortController();
  running.set(ours.id, {ours, turn, abort});
  announce('The model is answering.');
  draw();
  draw_list();
  to_end();
  const is_shown = () => ours === chat;
  await answer(ours, turn, {key, signal: abort.signal, continues, on_change() {
    if (is_shown()) grow_soon();
    if (chats.all.get(ours.id) === ours) save(ours);
  }});
  if (running.get(ours.id)?.turn === turn) running.delete(ours.id);
  const words = {failed: '', stopped: 'Stopped.', tool_calls: 'The model calls a tool.'};
  announce(words[turn.end] ?? 'The answer is complete.');
  save_now();
  draw_list();
  if (is_shown()) draw();
}

function can_ask() {
  if (running.has(chat.id)) return false;
  if (at('settings-form').checkValidity()) return true;
  set_panel('settings', true);
  at('more').open ||= at('more').querySelector(':invalid') !== null;  // what is folded cannot be pointed at
  at('settings-form').reportValidity();
  return false;
}

function send() {
  const text = at('draft').value;
  if (!text.trim() || !can_ask()) return;
  const turn = add_turn(chat, {parent: chat.leaf, role: 'user', text});
  at('draft').value = chat.draft = '';
  fit_draft();
  chats.save(chat);
  write(chat, new_answer(chat, turn.id));
}

function stop() {
  running.get(chat.id)?.abort.abort();
}

const acts = {
  edit(turn, values) {
    if (!can_ask()) return false;
    const {parent, role} = turn;
    if (role === 'assistant') {
      add_turn(chat, {parent, role, text: values.at(-1), reasoning: values.length > 1 ? values[0] : '',
        calls: structuredClone(turn.calls), end: turn.calls.length > 0 ? 'tool_calls' : 'stop'});
      save(chat);
      draw();
      return true;
    }
    const changed = role === 'user' ? {text: values[0]}
                                    : {results: turn.results.map((result, i) => ({...result, text: values[i]}))};
    write(chat, new_answer(chat, add_turn(chat, {parent, role, ...changed}).id));
    return true;
  },
  regenerate(turn) {
    if (!can_ask()) return;
    // An answer of which nothing came is not worth keeping as a version.
    const is_empty = !turn.text && !turn.reasoning && turn.calls.length === 0;
    chat.leaf = turn.id;
    write(chat, is_empty ? turn : new_answer(chat, turn.parent));
  },
  go_on(turn) {
    if (can_ask()) write(chat, turn, true);
  },
  results(turn, texts) {
    if (!can_ask()) return;
    const results = turn.calls.map(({id, name}, i) => ({id, name, text: texts[i]}));
    write(chat, new_answer(chat, add_turn(chat, {parent: turn.id, role: 'tool', results}).id));
  },
  keep_seed(turn) {
    chat.settings.seed = turn.seed;
    fill_settings();
    save(chat);
    notify(`Seed ${turn.seed} is set for this conversation: the same request gets the same answer.`);
  },
  show(turn) {
    show_version(chat, turn);
    save(chat);
    draw();
    views.get(turn.id).element.querySelector('.role button:enabled').focus();
  },
};

// --- Settings

const fields = [...at('settings-form').elements].filter((field) => field.name);

function fill_settings() {
  for (const field of fields) field.value = chat.settings[field.name] ?? '';
  check_tools();
  check_stops();
  check_seed();
  // What is set is seen.
  at('more').open = fields.some((field) => field.value !== '' && at('more').contains(field));
}

function set_problem(field, line, problem) {
  field.setCustomValidity(problem);
  field.classList.toggle('bad', problem !== '');
  line.hidden = !problem;
  line.textContent = problem;
}

function check_tools() {
  let problem = '';
  try {
    if (at('tools').value.trim() && !Array.isArray(JSON.parse(at('tools').value))) problem = 'Expected a JSON array.';
  } catch (error) {
    problem = `Not JSON: ${error.message}`;
  }
  set_problem(at('tools'), at('tools-problem'), problem);
}

function check_stops() {
  const count = stops_of(at('stop_strings').value).length;
  set_problem(at('stop_strings'), at('stop-problem'), count > 16 ? `${count} strings, expected 16 at most.` : '');
}

function check_seed() {
  const seed = at('seed').value;
  const is_number = /^-?[0-9]{1,20}$/.test(seed);
  const is_within = is_number && BigInt(seed) >= -(2n ** 63n) && BigInt(seed) < 2n ** 64n;
  set_problem(at('seed'), at('seed-problem'),
              seed === '' || is_within ? '' : 'Expected a whole number from −2^63 to 2^64 − 1.');
}

at('settings-form').addEventListener('input', ({target}) => {
  if (target === at('tools')) check_tools();
  if (target === at('stop_strings')) check_stops();
  if (target === at('seed')) check_seed();
  const is_number = target.type === 'number';
  chat.settings[target.name] = !is_number ? target.value : target.validity.valid ? target.valueAsNumber : null;
  save(chat);
});
at('settings-form').addEventListener('submit', (event) => event.preventDefault());
at('browser-form').addEventListener('submit', (event) => event.preventDefault());

function keep_key() {
  key = at('key').value.trim();
  if (key && at('keep-key').checked) storage.setItem('lockstep.key', key);
  else storage.removeItem('lockstep.key');
}
at('key').value = key;
at('keep-key').checked = key !== '';
at('key').addEventListener('input', keep_key);
at('key').addEventListener('change', () => status.look());
at('keep-key').addEventListener('change', keep_key);

function set_theme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}
at('theme').value = storage.getItem('lockstep.theme') ?? '';
set_theme(at('theme').value);
at('theme').addEventListener('change', () => {
  storage.setItem('lockstep.theme', at('theme').value);
  set_theme(at('theme').value);
});

// --- Panels and views

const is_narrow = () => matchMedia('(max-width: 60rem)').matches;

function set_panel(name, is_open) {
  at(name).hidden = !is_open;
  at(`${name}-button`).setAttribute('aria-expanded', String(is_open));
  if (is_open && is_narrow()) set_panel(name === 'list' ? 'settings' : 'list', false);
}

for (const name of ['list', 'settings']) {
  at(`${name}-button`).addEventListener('click', () => {
    set_panel(name, at(name).hidden);
    if (!at(name).hidden) at(name).querySelector('button, textarea').focus();
  });
}
document.querySelector('main').addEventListener('click', () => {
  if (!is_narrow()) return;
  set_panel('list', false);
  set_panel('settings', false);
});

function show_view() {
  const is_status = location.hash === '#status';
  at('chat-view').hidden = is_status;
  at('status-view').hidden = !is_status;
  at(is_status ? 'status-link' : 'chat-link').setAttribute('aria-current', 'page');
  at(is_status ? 'chat-link' : 'status-link').removeAttribute('aria-current');
  status.is_shown = is_status;
}
addEventListener('hashchange', show_view);

// --- The message and the keyboard

function fit_draft() {
  at('draft').style.height = 'auto';
  at('draft').style.height = `${at('draft').scrollHeight + 2}px`;
}

at('draft').addEventListener('input', () => {
  chat.draft = at('draft').value;
  fit_draft();
  save(chat);
});
at('draft').addEventListener('keydown', (event) => {
  if (event.isComposing) return;  // Enter takes a word of an input method
  if (event.key === 'Enter' && !event.shiftKey) {
    event.preventDefault();
    send();
  }
  if (event.key === 'ArrowUp' && !at('draft').value && !running.has(chat.id)) {
    const last = path_of(chat).findLast((turn) => turn.role === 'user');
    if (!last) return;
    event.preventDefault();
    views.get(last.id).edit();
  }
});
at('composer').addEventListener('submit', (event) => {
  event.preventDefault();
  send();
});
at('stop').addEventListener('click', () => {
  stop();
  at('draft').focus();
});
at('new-chat').addEventListener('click', () => open(new_chat(chat.settings)));
document.addEventListener('keydown', (event) => {
  if (event.key !== 'Escape' || event.isComposing) return;
  const name = ['list', 'settings'].find((panel) => at(panel).contains(document.activeElement) && is_narrow());
  if (!name) return stop();
  set_panel(name, false);
  at(`${name}-button`).focus();
});

// --- The rest of the world

async function look_at_server() {
  try {
    const props = await (await ask('props', key)).json();
    const own = props.lockstep ?? {};
    at('model-line').textContent = `${props.model_alias} answers${own.back_end ? ` on ${own.back_end}` : ''}.`;
    for (const name of ['temperature', 'top_p', 'min_p', 'top_k'])
      if (Number.isFinite(own[name])) at(name).placeholder = String(Number(own[name].toPrecision(6)));
    at('system').placeholder = own.default_system ?? '';
    status.show_facts(props);
  } catch (error) {
    at('model-line').textContent = error.message;
  }
}

addEventListener('storage', (event) => {
  const id = chats.reload(event.key);
  if (!id) return;
  const other = chats.all.get(id);
  if (other && running.has(id)) chats.all.set(id, running.get(id).ours);  // newer, and saved when it is done
  else if (id === chat.id && other && ![...views.values()].some((view) => view.is_edited)) show(other);
  draw_list();
});
addEventListener('pagehide', () => {
  save_now();
  is_leaving = true;
});
addEventListener('pageshow', () => { is_leaving = false; });

const status = new Status(() => key, look_at_server);
at('key').addEventListener('change', look_at_server);
set_panel('list', !is_narrow());
show(chat);
show_view();
at('draft').focus();
