// The view of what the server does: plots over the last minutes from /metrics, the slots from /slots, and the health in
// the head of the page. A figure that the server does not give is shown as a dash.
import {ask} from './page_chat.js';
import {make} from './page_dom.js';

const kSpan_s = 300;     // that a plot shows
const kWatched_ms = 1000;  // between two looks while the view is open
const kElse_ms = 5000;     // and while only the page is
const kLeast_s = 0.5;      // between two samples: a rate over less is noise
const kSvg = 'http://www.w3.org/2000/svg';

/// Prometheus text as {'name{labels}': value}.
export function parse_metrics(text) {
  const values = {};
  for (const line of text.split('\n')) {
    const end = line.lastIndexOf(' ');
    if (line.startsWith('#') || end < 0) continue;
    values[line.slice(0, end)] = Number(line.slice(end + 1));
  }
  return values;
}

const is_known = (value) => Number.isFinite(value);
const plain = (value) => (is_known(value) ? value.toLocaleString('en') : '–');
const rate = (value) => (is_known(value) ? `${value.toFixed(value < 100 ? 1 : 0)} tok/s` : '–');
const count = (value) => (is_known(value) ? String(Math.round(value)) : '–');

function bytes(value) {
  if (!is_known(value)) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  for (; value >= 1024 && i < units.length - 1; ++i) value /= 1024;
  return `${value.toFixed(i > 0 && value < 100 ? 1 : 0)} ${units[i]}`;
}

/// The smallest of 1, 2, 5 times a power of ten (of two, for bytes) that is no less.
function ceiling(value, is_bytes) {
  if (!(value > 0)) return 1;
  if (is_bytes) return 2 ** Math.ceil(Math.log2(value));
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((digit) => digit * power).find((step) => step >= value * 0.9999);
}

/// Lines over the last kSpan_s seconds. `lines` are their names; `show` makes text of a value.
class Plot {
  #points = [];  // {t, values, limit}
  #now = make('span', {className: 'now'}, '–');
  #top = make('span');
  #svg = document.createElementNS(kSvg, 'svg');
  #paths;

  constructor(title, lines, show) {
    this.title = title;
    this.lines = lines;
    this.show = show;
    this.#svg.setAttribute('viewBox', `0 0 ${kSpan_s} 100`);
    this.#svg.setAttribute('preserveAspectRatio', 'none');
    this.#svg.setAttribute('role', 'img');
    this.#paths = ['', 'second', 'limit'].map((name) => {
      const path = document.createElementNS(kSvg, 'path');
      path.setAttribute('class', name);
      this.#svg.append(path);
      return path;
    });
    const names = lines.length > 1 ? lines : [];
    const keys = names.map((name, i) => make('span', {className: i > 0 ? 'key second' : 'key'}, name));
    this.element = make('figure', {className: 'plot'}, make('figcaption', {}, make('span', {}, title), this.#now),
        this.#svg, make('p', {className: 'scale'}, this.#top, ...keys, make('span', {}, `last ${kSpan_s / 60} min`)));
  }

  set is_shown(value) {
    this.element.hidden = !value;
  }

  add(t, values, limit) {
    this.#points.push({t, values, limit});
    while (this.#points[0].t < t - kSpan_s) this.#points.shift();
  }

  draw() {
    const last = this.#points.at(-1);
    if (!last) return;
    const most = Math.max(0, ...this.#points.flatMap((point) => point.values.filter(is_known)));
    // A limit far above all values would press them flat, so it is drawn only once they come near.
    const has_limit = is_known(last.limit) && last.limit > 0 && last.limit < most * 3;
    const top = has_limit ? Math.max(most, last.limit) * 1.05 : ceiling(most, this.show === bytes);
    const y = (value) => (98 - 96 * value / top).toFixed(2);
    this.lines.forEach((name, i) => {
      let d = '', before = null;
      for (const {t, values} of this.#points) {
        const is_joined = before !== null && t - before < 3 * kElse_ms / 1000;
        if (is_known(values[i])) d += `${is_joined ? 'L' : 'M'}${(kSpan_s - (last.t - t)).toFixed(1)} ${y(values[i])}`;
        before = is_known(values[i]) ? t : null;
      }
      this.#paths[i].setAttribute('d', d);
    });
    this.#paths[2].setAttribute('d', has_limit ? `M0 ${y(last.limit)}H${kSpan_s}` : '');
    const now = last.values.map((value) => this.show(value));
    const of = is_known(last.limit) && last.limit > 0 ? ` of ${this.show(last.limit)}` : '';
    this.#now.textContent = now.join(' / ') + of;
    this.#top.textContent = `0 to ${this.show(top)}`;
    this.#svg.setAttribute('aria-label', this.lines.map((name, i) => `${name}: ${now[i]}${of}`).join(', '));
  }
}

/// What happened between two looks at the metrics, by the name of a counter: a difference, or NaN after a restart.
function grown(name, now, before) {
  const by = now[name] - before?.[name];
  return by >= 0 ? by : NaN;
}

export class Status {
  #get_key;
  #on_ready;
  #before = null;  // {t, metrics}
  #timer = 0;
  #looks = 0;
  #is_shown = false;
  #state = '';
  #plots = {
    decode: new Plot('Writing', ['Tokens written'], rate),
    prefill: new Plot('Reading prompts', ['Prompt tokens read'], rate),
    queue: new Plot('Requests', ['Running', 'Waiting'], count),
    reuse: new Plot('Prompts from the cache', ['Share of prompt tokens'],
        (value) => (is_known(value) ? `${Math.round(value * 100)} %` : '–')),
    cache: new Plot('Prefix cache', ['Cache'], bytes),
    memory: new Plot('Memory', ['Resident'], bytes),
    disk: new Plot('Disk cache', ['States on disk'], bytes),
    restored: new Plot('From the disk', ['Prompt tokens restored'], rate),
  };

  /// `on_ready` is called when the server begins to answer, also after a restart.
  constructor(get_key, on_ready) {
    this.#get_key = get_key;
    this.#on_ready = on_ready;
    document.getElementById('plots').append(...Object.values(this.#plots).map((plot) => plot.element));
    this.#show_disk(false);
    document.addEventListener('visibilitychange', () => this.look());
    this.look();
  }

  set is_shown(value) {
    this.#is_shown = value;
    this.look();
  }

  /// Looks now, and from then on again and again while the page can be seen.
  async look() {
    clearTimeout(this.#timer);
    const look = ++this.#looks;
    if (document.hidden) return;
    await Promise.all([this.#look_at_health(), this.#look_at_metrics(), this.#is_shown ? this.#look_at_slots() : null]);
    if (look !== this.#looks) return;  // another one has begun meanwhile
    this.#timer = setTimeout(() => this.look(), this.#is_shown ? kWatched_ms : kElse_ms);
  }

  #get(path) {
    return ask(path, this.#get_key(), {signal: AbortSignal.timeout(8000)});
  }

  async #look_at_health() {
    let state = 'ok', text = 'Ready';
    try {
      const response = await fetch('health', {cache: 'no-store', signal: AbortSignal.timeout(8000)});
      if (!response.ok) {
        const body = await response.json();
        text = [body.error?.message ?? 'Not ready', body.progress].filter(Boolean).join(' ');
        state = text.startsWith('Loading') ? 'wait' : 'bad';
      }
    } catch {
      state = 'bad';
      text = 'No connection';
    }
    const element = document.getElementById('health');
    element.dataset.state = state;
    if (element.textContent !== text) element.textContent = element.title = text;
    if (state === 'ok' && this.#state !== 'ok') this.#on_ready();
    this.#state = state;
  }

  async #look_at_metrics() {
    let metrics = {}, problem = '';
    try {
      metrics = parse_metrics(await (await this.#get('metrics')).text());
    } catch (error) {
      problem = error.message;
    }
    const element = document.getElementById('status-problem');
    element.hidden = !problem;
    if (element.textContent !== problem) element.textContent = problem;
    const t = performance.now() / 1000;
    if (!(t - this.#before?.t < kLeast_s)) this.#sample(t, metrics);
    if (this.#is_shown) this.#show(metrics);
  }

  #sample(t, metrics) {
    const before = this.#before;
    const per_second = (name) => grown(name, metrics, before?.metrics) / (t - before?.t);
    const prompts = grown('lockstep_prompt_tokens_total', metrics, before?.metrics);
    const reused = grown('lockstep_reused_tokens_total', metrics, before?.metrics) / prompts;
    const {decode, prefill, queue, reuse, cache, memory, disk, restored} = this.#plots;
    decode.add(t, [per_second('llamacpp:tokens_predicted_total')]);
    prefill.add(t, [per_second('llamacpp:prompt_tokens_total')]);
    queue.add(t, [metrics['llamacpp:requests_processing'], metrics['llamacpp:requests_deferred']]);
    reuse.add(t, [reused]);
    cache.add(t, [metrics.lockstep_cache_bytes], metrics.lockstep_cache_limit_bytes);
    memory.add(t, [metrics.lockstep_resident_bytes], metrics.lockstep_memory_limit_bytes);
    disk.add(t, [metrics.lockstep_disk_bytes], metrics.lockstep_disk_limit_bytes);
    restored.add(t, [per_second('lockstep_disk_restored_tokens_total')]);
    if (is_known(metrics.lockstep_cache_bytes)) this.#show_disk(is_known(metrics.lockstep_disk_bytes));
    this.#before = {t, metrics};
  }

  /// Without a cache directory the server tells nothing of a disk.
  #show_disk(has_disk) {
    this.#plots.disk.is_shown = this.#plots.restored.is_shown = has_disk;
  }

  #show(metrics) {
    for (const plot of Object.values(this.#plots)) plot.draw();
    const answers = (end) => plain(metrics[`lockstep_answers_total{end="${end}"}`]);
    list('totals', {
      'Answers': `${answers('done')} done, ${answers('failed')} failed, ${answers('cancelled')} cancelled`,
      'Prompt tokens': `${plain(metrics.lockstep_prompt_tokens_total)}, of these ` +
          `${plain(metrics.lockstep_reused_tokens_total)} from the cache`,
      'Tokens written': plain(metrics.lockstep_generated_tokens_total),
      'Cache': `${plain(metrics.lockstep_cache_hits_total)} hits in ${plain(metrics.lockstep_cache_lookups_total)} ` +
          `lookups, ${plain(metrics.lockstep_cache_evictions_total)} evictions`,
      ...disk_facts(metrics),
      'Connections': `${plain(metrics.lockstep_http_connections)} open, ` +
          `${plain(metrics.lockstep_http_connections_total)} in all`,
    });
  }

  async #look_at_slots() {
    const body = document.getElementById('slots');
    let rows;
    try {
      rows = (await (await this.#get('slots')).json()).map(slot_row);
    } catch (error) {
      rows = [[error.message]];
    }
    body.replaceChildren(...rows.map((cells) => make('tr', {}, ...cells.map((cell) => make('td', {}, String(cell))))));
  }

  /// What /props said.
  show_facts(props) {
    const {lockstep = {}} = props;
    list('facts', {
      'Build': props.build_info,
      'Model': props.model_alias,
      'File': props.model_path,
      'Back end': lockstep.back_end,
      'Roundings': lockstep.mode,
      'Context': is_known(lockstep.context) ? `${plain(lockstep.context)} tokens` : undefined,
      'Slots and queue': `${plain(props.total_slots)} at once, ${plain(lockstep.queue)} may wait`,
    });
  }
}

/// Of the cache directory; nothing where there is none.
function disk_facts(metrics) {
  const of = (name) => metrics[`lockstep_disk_${name}`];
  if (!is_known(of('bytes'))) return {};
  const speed = of('restored_bytes_total') / of('restore_seconds_total');
  const troubles = Object.entries({
    'could not be written': of('failures_total'),
    'not written, too many waited': of('skipped_total'),
    'damaged and removed': of('damaged_total'),
  }).filter(([, value]) => value > 0).map(([what, value]) => `${plain(value)} ${what}`);
  if (of('read_only') === 1) troubles.push('nothing can be written to the directory');
  return {
    'Disk': `${plain(of('states'))} states, ${bytes(of('bytes'))} of ${bytes(of('limit_bytes'))}, ` +
        `${bytes(of('written_bytes_total'))} written, ${plain(of('evictions_total'))} evictions`,
    'From the disk': `${plain(of('hits_total'))} prompts, ${plain(of('restored_tokens_total'))} tokens, ` +
        `${bytes(of('restored_bytes_total'))}` + (speed > 0 ? ` at ${bytes(speed)}/s` : ''),
    'Trouble with the disk': troubles.join('; '),
  };
}

function slot_row(slot) {
  const own = slot.lockstep ?? {};
  const doing = !slot.is_processing ? 'Idle' : own.is_prefilling ? 'Reading the prompt' : 'Writing';
  if (!slot.is_processing) return [slot.id, doing, '–', '–', '–', '–'];
  const of_disk = own.restored_tokens > 0 ? `, ${plain(own.restored_tokens)} of the disk's` : '';
  return [slot.id, doing, plain(own.prompt_tokens), `${plain(own.cached_tokens)}${of_disk}`,
    plain(slot.next_token?.n_decoded), plain(own.limit)];
}

function list(id, facts) {
  const known = Object.entries(facts).filter(([, value]) => value !== undefined && value !== '');
  document.getElementById(id).replaceChildren(
      ...known.flatMap(([name, value]) => [make('dt', {}, name), make('dd', {}, String(value))]));
}
