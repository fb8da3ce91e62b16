// What all pages use: elements, requests, live loops, numbers as people read them.

// h makes an element. Text becomes text, never markup. style is an object; a function is a listener.
export function h(tag, attributes, ...children) {
  return build(document.createElement(tag), attributes, children);
}

// svg is h for pictures.
export function svg(tag, attributes, ...children) {
  return build(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);
}

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (typeof value === 'function') element.addEventListener(name, value);
    else if (name === 'style') Object.assign(element.style, value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter(c => c != null));
  return element;
}

// set changes what is in an element, where it differs: focus, selection and scrolling stay. A row of a long table has only
// its text until it comes into sight, and then changes while it is in sight, and when another item takes the row.
export function set(element, ...children) {
  mergeChildren(element, h('div', {}, ...children));
}

const long = 50; // rows of a table
const cellsOf = new WeakMap(); // by row of a long table: what makes its cells, and the key of its item
const seen = new WeakSet(); // rows in sight, or so near that the next press of a key can show them
const sight = new IntersectionObserver(changes => {
  for (const { target, isIntersecting } of changes) {
    isIntersecting ? seen.add(target) : seen.delete(target);
    if (isIntersecting && cellsOf.has(target)) fill(target);
  }
}, { rootMargin: '50%', scrollMargin: '50%' });

const fill = row => set(row, ...cellsOf.get(row).cells());

const waiting = new Set(); // rows of long tables whose line is to be written
let asked = false; // for a frame that writes lines

// whole has the rows of long tables in a new part of the page wait for their text.
function whole(part) {
  wait([part, ...part.querySelectorAll?.('tr') ?? []].filter(row => cellsOf.has(row)));
  return part;
}

function wait(rows) {
  for (const row of rows) waiting.add(row);
  if (asked || !waiting.size) return;
  asked = true;
  requestAnimationFrame(lines);
}

// lines gives some rows their text, as one cell: a search finds it and a screen reader reads it, and a browser lays out a
// cell for each row instead of ten. The other rows are for the next frames, so that the page answers meanwhile. A row whose
// cells fail keeps none of the others waiting.
function lines() {
  asked = false;
  try {
    for (const row of [...waiting].slice(0, 2 * long)) {
      waiting.delete(row);
      if (seen.has(row)) continue; // it came into sight meanwhile
      const cells = cellsOf.get(row).cells();
      set(row, h('td', { class: 'line', colspan: cells.length }, cells.map(cell => cell.textContent).join(' ')));
      sight.observe(row);
    }
  } finally {
    wait([]);
  }
}

function mergeChildren(old, next) {
  const wanted = [...next.childNodes];
  wanted.forEach((node, i) => { old.childNodes[i] ? merge(old.childNodes[i], node) : old.append(whole(node)); });
  while (old.childNodes.length > wanted.length) old.lastChild.remove();
}

function merge(old, next) {
  if (old.nodeName !== next.nodeName || cellsOf.has(old) !== cellsOf.has(next)) {
    old.replaceWith(whole(next));
    return;
  }
  if (cellsOf.has(old)) {
    const other = cellsOf.get(old).key !== cellsOf.get(next).key;
    cellsOf.set(old, cellsOf.get(next));
    if (seen.has(old) || old.contains(document.activeElement)) fill(old);
    else if (other || !old.firstChild) wait([old]);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== next.data) old.data = next.data;
    return;
  }
  for (const { name } of [...old.attributes]) if (!next.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of next.attributes) if (name !== 'style' && old.getAttribute(name) !== value) old.setAttribute(name, value);
  if (old.style.cssText !== next.style.cssText) old.style.cssText = next.style.cssText; // the policy refuses the attribute
  mergeChildren(old, next);
}

// SessionOver says that the token of the page is not, or no longer, good.
export class SessionOver extends Error {}

let token = sessionStorage.getItem('token');

// begin changes the code of a link for the token of a session.
export async function begin(code) {
  const answer = await fetch('session', { method: 'POST', body: JSON.stringify({ code }) });
  if (!answer.ok) throw new SessionOver(await answer.text());
  ({ token } = await answer.json());
  sessionStorage.setItem('token', token);
}

// end ends the session.
export async function end() {
  const ended = token;
  token = null;
  sessionStorage.removeItem('token');
  const answer = await fetch('session', { method: 'DELETE', headers: { Authorization: `Bearer ${ended}` } });
  if (!answer.ok && answer.status !== 401) throw new Error(answer.statusText);
}

// ask does an operation of the administration port, and returns its answer. With typed, numbers are {number: text}, since
// 5 and 5.0 are values of different types, and JavaScript has no integers beyond 2^53.
export async function ask(operation, query, { body, typed } = {}) {
  const [method, path] = operation.split(' ');
  const answer = await fetch(`api/${path}?${new URLSearchParams(query ?? {})}`, {
    method, headers: { Authorization: `Bearer ${token}` }, body: body === undefined ? undefined : encode(body),
  });
  if (answer.status === 401) throw new SessionOver('The session is over.');
  const text = await answer.text();
  if (!answer.ok) {
    let said = text;
    try { said = JSON.parse(text).error ?? text; } catch { /* it is no JSON */ }
    throw new Error(said);
  }
  return JSON.parse(typed ? text.replace(/("(?:[^"\\]|\\.)*")|(-?\d[\d.eE+-]*)/g, (all, string, number) => number ? `{"number":"${number}"}` : all) : text);
}

// Raw is text that encode writes as it is.
export class Raw { constructor(text) { this.text = text; } }

function encode(value) {
  if (value instanceof Raw) return value.text;
  if (Array.isArray(value)) return `[${value.map(encode).join()}]`;
  if (value && typeof value === 'object') {
    return `{${Object.entries(value).filter(([, v]) => v !== undefined).map(([k, v]) => `${JSON.stringify(k)}:${encode(v)}`).join()}}`;
  }
  return JSON.stringify(value);
}

const troubles = new Map(); // by loop

// live calls f now and every so many milliseconds while the page can be seen, until signal ends it. What fails is
// said in the header.
export async function live(signal, milliseconds, f) {
  const trouble = message => {
    message ? troubles.set(f, message) : troubles.delete(f);
    document.getElementById('state').textContent = [...troubles.values()][0] ?? '';
  };
  signal.addEventListener('abort', () => trouble(), { once: true });
  while (!signal.aborted) {
    if (document.hidden) {
      await pause(signal, 2 ** 31 - 1, 'visibilitychange');
      continue;
    }
    try {
      await f();
      trouble();
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof SessionOver) { dispatchEvent(new CustomEvent('over', { detail: error.message })); return; }
      trouble(error instanceof TypeError ? 'The server does not answer.' : error.message);
    }
    await pause(signal, milliseconds);
  }
}

// pause waits for a time, or until signal ends it, or until an event of the document.
const pause = (signal, milliseconds, event) => new Promise(done => {
  const over = () => {
    clearTimeout(timer);
    signal.removeEventListener('abort', over);
    document.removeEventListener(event, over);
    done();
  };
  const timer = setTimeout(over, milliseconds);
  signal.addEventListener('abort', over);
  document.addEventListener(event, over);
});

// once calls f now, and says what fails as live does.
export const once = (signal, f) => live(signal, 2 ** 31 - 1, f);

export function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return `${i === 0 ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
}

export function count(n) {
  if (n >= 1e6) return `${(n / 1e6).toFixed(2)} M`;
  if (n >= 1e4) return `${(n / 1e3).toFixed(1)} k`;
  return n >= 100 || Number.isInteger(n) ? n.toFixed(0) : n.toFixed(1);
}

// duration writes nanoseconds.
export function duration(n) {
  if (n == null) return '-';
  if (n === 0) return '0';
  for (const [unit, size] of [['s', 1e9], ['ms', 1e6], ['us', 1e3]]) if (n >= size) return `${+(n / size).toPrecision(3)} ${unit}`;
  return `${+n.toPrecision(3)} ns`;
}

export const share = x => x > 0 && x < 0.0005 ? '<0.1%' : `${(100 * x).toFixed(x < 0.1 ? 1 : 0)}%`;
export const moment = milliseconds => new Date(milliseconds).toLocaleString('sv'); // Swedes write 2006-01-02 15:04:05
export const clock = milliseconds => new Date(milliseconds).toLocaleTimeString();
export const link = (page, instance, table, tab) => `#/${page}/${encodeURIComponent(instance)}/${encodeURIComponent(table)}${tab ? `/${tab}` : ''}`;

// tiles are figures with a name each.
export const tiles = pairs => h('dl', { class: 'tiles' }, pairs.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));

// table makes a table, to be shown by set; a column is [title, cell of an item, whether it is a number]. key tells the
// items of a long table apart: the text of a row out of sight is written anew when the key is another.
export function table(caption, columns, items, empty, key = JSON.stringify) {
  if (items.length === 0) return h('p', { class: 'soft' }, empty);
  const line = item => {
    const cells = () => columns.map(([, cell, n]) => h('td', { class: n && 'n' }, cell(item)));
    if (items.length <= long) return h('tr', {}, cells());
    const row = h('tr');
    cellsOf.set(row, { cells, key: key(item) });
    return row;
  };
  return h('div', { class: 'wide tall', tabindex: 0, role: 'region', 'aria-label': caption },
    h('table', {},
      h('thead', {}, h('tr', {}, columns.map(([title, , n]) => h('th', { scope: 'col', class: n && 'n' }, title)))),
      h('tbody', {}, items.map(line))));
}

// field is a labelled input.
export const field = (label, attributes) => h('label', { class: attributes.type === 'checkbox' && 'box' },
  ...(attributes.type === 'checkbox' ? [h('input', attributes), label] : [label, h('input', { autocomplete: 'off', spellcheck: 'false', ...attributes })]));

// action makes a listener that does something, and says what came of it.
export function action(said, f) {
  return async event => {
    event.preventDefault();
    const control = event.submitter ?? event.currentTarget;
    control.disabled = true;
    said.classList.remove('bad');
    said.textContent = 'Working ...';
    try {
      said.textContent = await f(event) ?? 'Done.';
    } catch (error) {
      if (error instanceof SessionOver) dispatchEvent(new CustomEvent('over', { detail: error.message }));
      said.classList.add('bad');
      said.textContent = error.message;
    }
    control.disabled = false;
  };
}

export const saying = () => h('p', { class: 'said', role: 'status' });
