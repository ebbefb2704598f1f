// Making elements. Text goes in as text nodes and attributes, never as markup: what a model or a server says cannot
// become part of the page. The server's policy (require-trusted-types-for) holds the whole page to it.

/// An element. `properties` are set as such if the element has them, else as attributes; those named on_X listen to
/// event X; undefined is left out. Children are nodes or strings.
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined) continue;
    if (name.startsWith('on_')) element.addEventListener(name.slice(3), value);
    else if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

export function button(text, act, properties = {}) {
  return make('button', {type: 'button', className: 'plain', on_click: act, ...properties}, text);
}

/// Copies what `text()` gives, and says so on itself.
export function copy_button(text, name) {
  const element = button('Copy', async () => {
    element.textContent = (await copy(text())) ? 'Copied' : 'Not copied';
    setTimeout(() => { element.textContent = 'Copy'; }, 1500);
  }, {'aria-label': name});
  return element;
}

async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text).then(() => true, () => false);
  // Pages that come by plain HTTP from another machine have no clipboard object, only this old way.
  const field = make('textarea', {value: text, className: 'unseen'});
  const focused = document.activeElement;
  document.body.append(field);
  field.select();
  const done = document.execCommand('copy');
  field.remove();
  focused?.focus();
  return done;
}
