// Markdown as models write it, turned into nodes: paragraphs, headings, lists, quotes, tables, rules, fenced code;
// bold, italics and code in a line. No links, no images, no HTML: they stay the text that they are.
//
// A text that grows is drawn again from its last block but one: a line that is not whole may seem to begin a block
// ("-", on the way to "-5 degrees"), so only what lies before two blocks is settled. All passes are linear in the text,
// because small models do fall into loops of unclosed stars.
import {copy_button, make} from './page_dom.js';

const kFence = /^ {0,3}(`{3,}|~{3,})([^`]*)$/;
const kHeading = /^ {0,3}(#{1,6})\s+(\S.*)$/;
const kRule = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const kQuote = /^ {0,3}> ?/;
const kItem = /^(\s*)([-*+]|\d{1,9}[.)])(\s+|$)/;
const kDelimiter = /^\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?$/;  // of a trimmed line
const kDepth = 12;  // of lists and quotes in one another; what lies deeper is shown as a paragraph

/// The Markdown of one growing text inside `host`.
export class Markdown {
  #host;
  #text = '';
  #starts = [];  // of the blocks

  constructor(host) {
    this.#host = host;
  }

  update(text) {
    if (text === this.#text) return;
    const settled = text.startsWith(this.#text) ? Math.max(0, this.#starts.length - 2) : 0;
    const begin = this.#starts[settled] ?? 0;
    while (this.#host.childNodes.length > settled) this.#host.lastChild.remove();
    this.#starts.length = settled;
    this.#text = text;
    for (const block of blocks_of(text.slice(begin).split('\n'), 0)) {
      this.#host.append(block.node);
      this.#starts.push(begin + block.start);
    }
  }
}

/// The blocks of some lines: {node, start}, where start counts characters from the first line's beginning.
function blocks_of(lines, depth) {
  const blocks = [];
  let start = 0;
  for (let i = 0; i < lines.length;) {
    if (lines[i].trim() === '') {
      start += lines[i++].length + 1;
      continue;
    }
    const {node, end} = block_at(lines, i, depth);
    blocks.push({node, start});
    for (; i < end; ++i) start += lines[i].length + 1;
  }
  return blocks;
}

function block_at(lines, i, depth) {
  const line = lines[i];
  let found;
  if (depth < kDepth) {
    if ((found = line.match(kFence))) return fence_at(lines, i, found);
    if ((found = line.match(kHeading))) {
      const node = make(`h${Math.min(6, found[1].length + 2)}`);
      add_inline(node, found[2]);
      return {node, end: i + 1};
    }
    if (kRule.test(line)) return {node: make('hr'), end: i + 1};
    const begun = kQuote.test(line) ? quote_at(lines, i, depth) : kItem.test(line) ? list_at(lines, i, depth) : null;
    if (begun && !is_empty(begun.node)) return begun;
    if (begun) return {node: make('p', {}, lines.slice(i, begun.end).join('\n').trim()), end: begun.end};
    if (is_table(lines, i)) return table_at(lines, i);
  }
  let end = i + 1;
  while (end < lines.length && lines[end].trim() !== '' && (depth >= kDepth || !begins_block(lines, end))) ++end;
  const node = make('p');
  add_inline(node, lines.slice(i, end).join('\n'));
  return {node, end};
}

/// A mark that holds nothing would not be seen: "-" or "21." may be all that was said.
function is_empty(node) {
  return node.textContent === '' && !node.querySelector('hr, .code, .wide');
}

/// Whether a paragraph ends before this line.
function begins_block(lines, i) {
  const line = lines[i];
  return kFence.test(line) || kHeading.test(line) || kRule.test(line) || kQuote.test(line) || kItem.test(line) ||
      is_table(lines, i);
}

function fence_at(lines, i, [, fence, language]) {
  let end = i + 1;
  const closes = (line) => {
    const text = line.trim();
    return text.length >= fence.length && text === fence[0].repeat(text.length);
  };
  while (end < lines.length && !closes(lines[end])) ++end;
  const text = lines.slice(i + 1, end).join('\n');
  const name = language.trim();
  const node = make('div', {className: 'code'},
      make('div', {}, make('span', {}, name), copy_button(() => text, 'Copy the code')),
      make('pre', {tabIndex: 0, 'aria-label': name ? `Code, ${name}` : 'Code'}, make('code', {}, text)));
  return {node, end: Math.min(end + 1, lines.length)};
}

function quote_at(lines, i, depth) {
  const inner = [];
  for (; i < lines.length && kQuote.test(lines[i]); ++i) inner.push(lines[i].replace(kQuote, ''));
  return {node: make('blockquote', {}, ...blocks_of(inner, depth + 1).map((block) => block.node)), end: i};
}

function list_at(lines, i, depth) {
  const is_ordered = /\d/.test(lines[i].match(kItem)[2]);
  const indent = lines[i].match(kItem)[1].length;
  const node = make(is_ordered ? 'ol' : 'ul');
  if (is_ordered) node.start = parseInt(lines[i].trim(), 10);
  while (i < lines.length) {
    const item = lines[i].match(kItem);
    const is_same = item && item[1].length <= indent + 1 && /\d/.test(item[2]) === is_ordered;
    if (!is_same || kRule.test(lines[i])) break;
    const width = Math.min(item[0].length, item[1].length + item[2].length + 4);
    const inner = [lines[i].slice(width)];
    for (++i; i < lines.length; ++i) {
      const spaces = lines[i].length - lines[i].trimStart().length;
      if (lines[i].trim() === '') {
        const next = lines[i + 1] ?? '';
        const goes_on = next.trim() !== '' && (next.length - next.trimStart().length > indent + 1);
        if (!goes_on) break;
        inner.push('');
      } else if (spaces > indent + 1) {
        inner.push(lines[i].slice(Math.min(spaces, width)));
      } else if (begins_block(lines, i)) {
        break;
      } else {
        inner.push(lines[i]);  // a paragraph's next line, not indented
      }
    }
    const children = blocks_of(inner, depth + 1).map((block) => block.node);
    // An item of one paragraph, and maybe lists below it, is just a line.
    const [first, ...others] = children;
    const is_line = first?.tagName === 'P' && others.every((child) => /^[OU]L$/.test(child.tagName));
    if (is_line) children.splice(0, 1, ...children[0].childNodes);
    node.append(make('li', {}, ...children));
    // Blank lines between two items of a list.
    let next = i;
    while (next < lines.length && lines[next].trim() === '') ++next;
    if (next > i && next < lines.length && kItem.test(lines[next])) i = next;
  }
  return {node, end: i};
}

function is_table(lines, i) {
  const next = lines[i + 1] ?? '';
  return lines[i].includes('|') && next.includes('-') && kDelimiter.test(next.trim());
}

function table_at(lines, i) {
  const row = (line, tag) => {
    const cells = line.trim().replace(/^\||\|$/g, '').split(/(?<!\\)\|/);
    return make('tr', {}, ...cells.map((cell) => {
      const node = make(tag);
      add_inline(node, cell.trim());
      return node;
    }));
  };
  const body = make('tbody');
  const head = make('thead', {}, row(lines[i], 'th'));
  for (i += 2; i < lines.length && lines[i].includes('|'); ++i) body.append(row(lines[i], 'td'));
  const table = make('table', {}, head, body);
  return {node: make('div', {className: 'wide', tabIndex: 0, role: 'region', 'aria-label': 'Table'}, table), end: i};
}

// Bold may hold italics, and both may hold code, so that no text is gone over more than three times.
const kInner = {'**': ['*'], '*': []};

function add_inline(host, text, markers = ['**', '*']) {
  const unclosed = new Set();  // markers that were seen to have no end
  let plain = '';
  const flush = () => {
    if (plain) host.append(plain);
    plain = '';
  };
  for (let i = 0; i < text.length;) {
    const skipped = text.slice(i).search(/[`*\\]/);
    if (skipped < 0) {
      plain += text.slice(i);
      break;
    }
    plain += text.slice(i, i + skipped);
    i += skipped;
    let span = null;
    if (text[i] === '`') span = code_at(text, i, unclosed);
    if (text[i] === '*') span = stars_at(text, i, markers, unclosed);
    if (span) {
      flush();
      host.append(span.node);
      i = span.end;
    } else if (text[i] === '\\' && /[!-/:-@[-`{-~]/.test(text[i + 1] ?? '')) {
      plain += text[i + 1];
      i += 2;
    } else {
      const run = text.slice(i).match(/^(`+|\*+|\\)/)[0];
      plain += run;
      i += run.length;
    }
  }
  flush();
}

function code_at(text, i, unclosed) {
  let size = 1;
  while (text[i + size] === '`') ++size;
  const fence = '`'.repeat(size);
  if (unclosed.has(fence)) return null;
  for (let end = text.indexOf(fence, i + size); end >= 0;) {
    let after = end + size;
    while (text[after] === '`') ++after;
    if (after === end + size) {
      const inner = text.slice(i + size, end);
      // A space inside each fence is there so that the code may begin or end with a backtick.
      const is_padded = inner.startsWith(' ') && inner.endsWith(' ') && inner.trim() !== '';
      return {node: make('code', {}, is_padded ? inner.slice(1, -1) : inner), end: after};
    }
    end = text.indexOf(fence, after);
  }
  unclosed.add(fence);
  return null;
}

function stars_at(text, i, markers, unclosed) {
  const marker = text.startsWith('**', i) ? '**' : '*';
  const begin = i + marker.length;
  if (!markers.includes(marker) || unclosed.has(marker) || /[\s*]|^$/.test(text[begin] ?? '')) return null;
  for (let end = text.indexOf(marker, begin + 1); end >= 0; end = text.indexOf(marker, end + 1)) {
    const is_longer = marker === '*' && (text[end + 1] === '*' || text[end - 1] === '*');
    if (/\s/.test(text[end - 1]) || is_longer) continue;
    const node = make(marker === '**' ? 'strong' : 'em');
    add_inline(node, text.slice(begin, end), kInner[marker]);
    return {node, end: end + marker.length};
  }
  unclosed.add(marker);
  return null;
}
