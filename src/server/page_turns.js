// How a turn looks, and the buttons on it. What they do is given as `acts`, so that nothing here knows of servers or
// storage:
//
//   acts.edit(turn, values)    a new version with these texts; false if that cannot be now
//   acts.regenerate(turn)      a new answer beside this one
//   acts.go_on(turn)           the rest of this answer
//   acts.keep_seed(turn)       the same seed from now on
//   acts.show(turn)            another version
//   acts.results(turn, texts)  what the tools gave, in the order of the calls
import {button, copy_button, make} from './page_dom.js';
import {Markdown} from './page_markdown.js';

const kNames = {user: 'You', assistant: 'Model', tool: 'Tool results'};

/// The parts of a turn that can be edited, as {name, value}.
function fields_of(turn) {
  if (turn.role === 'tool') return turn.results.map(({name, text}) => ({name: `Result of ${name}`, value: text}));
  if (turn.role === 'user') return [{name: 'Message', value: turn.text}];
  const fields = [{name: 'Answer', value: turn.text}];
  if (turn.reasoning) fields.unshift({name: 'Thinking', value: turn.reasoning});
  return fields;
}

/// JSON on several lines. Only spaces between tokens change, so numbers stay as the model wrote them, and a text that
/// is not whole yet can be shown too.
export function spread_json(text) {
  let out = '', depth = 0, in_string = false;
  const line = () => '\n' + '  '.repeat(Math.max(0, depth));
  for (let i = 0; i < text.length; ++i) {
    const letter = text[i];
    if (in_string) {
      out += letter;
      if (letter === '\\') out += text[++i] ?? '';
      in_string = letter !== '"';
    } else if (letter === '"') {
      out += letter;
      in_string = true;
    } else if (letter === '{' || letter === '[') {
      const close = text.slice(i + 1).match(/^\s*([}\]])/);
      if (close) {
        out += letter + close[1];
        i += close[0].length;
      } else {
        ++depth;
        out += letter + line();
      }
    } else if (letter === '}' || letter === ']') {
      --depth;
      out += line() + letter;
    } else if (letter === ',') {
      out += letter + line();
    } else if (letter === ':') {
      out += ': ';
    } else if (!/\s/.test(letter)) {
      out += letter;
    }
  }
  return out;
}

/// A form with a text area for each field. Ctrl+Enter saves, Escape leaves.
function form_of(fields, save_name, save, leave) {
  const areas = fields.map(({name, value}) => make('textarea', {
    value, rows: Math.min(16, value.split('\n').length + 1), 'aria-label': name,
  }));
  const form = make('form', {className: 'edit'});
  fields.forEach(({name}, i) => form.append(make('label', {}, fields.length > 1 ? name : '', areas[i])));
  const buttons = make('div', {className: 'buttons'}, make('button', {type: 'submit', className: 'main'}, save_name));
  if (leave) buttons.append(make('button', {type: 'button', on_click: leave}, 'Cancel'));
  form.append(buttons);
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    save(areas.map((area) => area.value));
  });
  form.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    if (event.key === 'Escape' && leave) {
      event.stopPropagation();
      leave();
    }
  });
  return form;
}

function seconds(ms) {
  return ms < 10000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.round(ms / 1000)} s`;
}

/// One turn on the page. `update` draws what has changed of it and may be called at any time.
export class TurnView {
  #turn;
  #acts;
  #body = make('div', {className: 'body'});
  #role = make('h2', {className: 'role'});
  #actions = make('div', {className: 'actions'});
  #form = null;  // while it is edited
  #thinking = null;
  #text = null;
  #calls = [];
  #tail = make('div');
  #drawn = '';  // what role, tail and actions show

  constructor(turn, acts) {
    this.#turn = turn;
    this.#acts = acts;
    this.element = make('li', {className: `turn ${turn.role}`}, this.#role, this.#body, this.#tail, this.#actions);
  }

  get is_edited() {
    return this.#form !== null;
  }

  /// `versions` are the turn's own, `is_leaf`: nothing follows, `is_running`: it is being written, `is_busy`: the
  /// conversation is.
  update({versions, is_leaf, is_running, is_busy}) {
    const turn = this.#turn;
    if (turn.role === 'assistant') this.#draw_answer(is_running);
    if (turn.role === 'user') this.#draw_plain(turn.text);
    if (turn.role === 'tool' && this.#body.childElementCount === 0) this.#draw_results();
    const state = {count: versions.length, at: versions.indexOf(turn), is_leaf, is_running, is_busy, end: turn.end,
      problem: turn.problem, usage: turn.usage, rates: turn.rates};
    const drawn = JSON.stringify(state);
    if (drawn === this.#drawn) return;
    this.#drawn = drawn;
    this.#draw_role(versions, state);
    this.#draw_tail(state);
    this.#draw_actions(state);
  }

  /// Draws what a running answer has got since.
  grow() {
    this.#draw_answer(true);
    this.#role.classList.toggle('waiting', this.#is_empty());
  }

  edit() {
    if (this.#form) return;
    const turn = this.#turn;
    const leave = () => {
      this.#form.replaceWith(this.#body);
      this.#form = null;
      this.#actions.hidden = false;
      this.#actions.querySelector('[data-act="edit"]')?.focus();
    };
    const save = (values) => {
      if (this.#acts.edit(turn, values)) leave();
    };
    this.#form = form_of(fields_of(turn), turn.role === 'assistant' ? 'Save' : 'Send', save, leave);
    this.#body.replaceWith(this.#form);
    this.#actions.hidden = true;
    const area = this.#form.querySelector('textarea:last-of-type');
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
  }

  #is_empty() {
    const {text, reasoning, calls} = this.#turn;
    return !text && !reasoning && calls.length === 0;
  }

  #draw_plain(text) {
    this.#body.className = 'body plain-text';
    if (this.#body.textContent !== text) this.#body.textContent = text;
  }

  #draw_results() {
    for (const {name, text} of this.#turn.results)
      this.#body.append(make('section', {className: 'call', 'aria-label': `Result of ${name}`},
          make('p', {}, 'Result of ', make('code', {}, name)), make('pre', {tabIndex: 0}, text)));
  }

  #draw_answer(is_running) {
    const turn = this.#turn;
    if (turn.reasoning && !this.#thinking) {
      this.#thinking = {summary: make('summary'), text: document.createTextNode('')};
      this.#body.prepend(make('details', {className: 'thinking'}, this.#thinking.summary,
          make('div', {className: 'plain-text'}, this.#thinking.text)));
    }
    if (this.#thinking) {
      const {text} = this.#thinking;
      if (turn.reasoning.startsWith(text.data)) text.appendData(turn.reasoning.slice(text.data.length));
      else text.data = turn.reasoning;
      const is_thinking = is_running && !turn.text && turn.calls.length === 0;
      const time = turn.thought_ms ? ` ${is_thinking ? '' : 'for '}${seconds(turn.thought_ms)}` : '';
      this.#thinking.summary.textContent = (is_thinking ? 'Thinking' : 'Thought') + time;
      this.#thinking.summary.classList.toggle('waiting', is_thinking);
    }
    if (turn.text && !this.#text) {
      const host = make('div', {className: 'text'});
      this.#text = new Markdown(host);
      const first_call = this.#calls[0]?.section ?? null;
      this.#body.insertBefore(host, first_call);
    }
    this.#text?.update(turn.text);
    turn.calls.forEach((call, i) => {
      if (!this.#calls[i]) {
        const name = make('code'), text = make('pre', {tabIndex: 0});
        const section = make('section', {className: 'call'}, make('p', {}, 'Calls ', name), text);
        this.#calls[i] = {name, text, section};
        this.#body.append(section);
      }
      const view = this.#calls[i];
      if (view.drawn === call.arguments) return;
      view.drawn = call.arguments;
      view.section.setAttribute('aria-label', `Call of ${call.name}`);
      if (view.name.textContent !== call.name) view.name.textContent = call.name;
      view.text.textContent = spread_json(call.arguments);
    });
  }

  #draw_role(versions, {count, at, is_running, is_busy}) {
    const turn = this.#turn;
    this.#role.replaceChildren(kNames[turn.role]);
    this.#role.classList.toggle('waiting', is_running && this.#is_empty());
    if (count < 2) return;
    const step = (by, name, label) =>
        button(name, () => this.#acts.show(versions[at + by]), {disabled: is_busy || !versions[at + by],
          'aria-label': label});
    this.#role.append(step(-1, '‹', 'Earlier version'), `${at + 1} of ${count}`, step(1, '›', 'Later version'));
  }

  #draw_tail({is_leaf, is_busy, end, problem}) {
    const turn = this.#turn;
    const notes = {stopped: 'Stopped.', length: 'The limit of tokens was reached.'};
    this.#tail.replaceChildren();
    if (problem) this.#tail.append(make('p', {className: 'problem', role: 'alert'}, problem));
    else if (notes[end]) this.#tail.append(make('p', {className: 'hint'}, notes[end]));
    if (end !== 'tool_calls' || !is_leaf || is_busy) return;
    const fields = turn.calls.map(({name}) => ({name: `Result of ${name}`, value: ''}));
    this.#tail.append(form_of(fields, turn.calls.length > 1 ? 'Send the results' : 'Send the result',
        (values) => this.#acts.results(turn, values)));
  }

  #draw_actions({is_leaf, is_busy, usage, rates}) {
    const turn = this.#turn;
    const focused = this.#actions.contains(document.activeElement) ? document.activeElement.dataset.act : null;
    const text = () => (turn.role === 'tool' ? turn.results.map((result) => result.text).join('\n') : turn.text);
    const add = (act, name, call) => this.#actions.append(
        button(name, call, {disabled: is_busy, 'data-act': act}));
    this.#actions.replaceChildren(copy_button(text, `Copy the ${turn.role === 'assistant' ? 'answer' : 'text'}`));
    add('edit', 'Edit', () => this.edit());
    if (turn.role === 'assistant') {
      add('regenerate', 'Regenerate', () => this.#acts.regenerate(turn));
      // Only a text can be continued: a thought or a call that was cut off cannot be taken up again.
      if (is_leaf && turn.text && turn.calls.length === 0) add('go_on', 'Continue', () => this.#acts.go_on(turn));
      if (turn.seed) add('keep_seed', 'Keep the seed', () => this.#acts.keep_seed(turn));
    }
    const stats = stats_of(usage, rates);
    if (stats) this.#actions.append(make('span', {className: 'stats'}, stats));
    if (focused) this.#actions.querySelector(`[data-act="${focused}"]`)?.focus();
  }
}

function stats_of(usage, rates) {
  if (!usage) return '';
  const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
  const parts = [`${usage.completion_tokens} tokens`];
  const rate = rates?.decode_tokens_per_second;
  if (Number.isFinite(rate)) parts.push(`${rate.toFixed(1)} tok/s`);
  parts.push(`prompt ${usage.prompt_tokens}${cached ? `, ${cached} from the cache` : ''}`);
  return parts.join(' · ');
}
