// The frame of the console: its session, its pages by the address, and its theme.
import { begin, end, h, SessionOver } from './lib.js';
import * as figures from './figures.js';
import { overview } from './overview.js';
import { tables } from './tables.js';
import { tablePage } from './table.js';
import { activity } from './activity.js';

const pages = { '': ['Overview', overview], tables: ['Tables', tables], activity: ['Activity', activity] };
const main = document.getElementById('main');
let leave = new AbortController(); // of the present page
const whole = new AbortController(); // of the session

function show() {
  if (whole.signal.aborted) return;
  leave.abort();
  leave = new AbortController();
  let page = '', parts = [];
  try {
    [, page = '', ...parts] = location.hash.split('/').map(decodeURIComponent);
  } catch { page = 'unknown'; }
  document.querySelector('nav').replaceChildren(...Object.entries(pages).map(([name, [title]]) =>
    h('a', { href: `#/${name}`, 'aria-current': name === page && 'page' }, title)));
  main.replaceChildren();
  const make = page === 'table' ? tablePage : pages[page]?.[1];
  if (!make) main.append(h('h1', {}, 'No such page'));
  else make({ main, signal: leave.signal, parts });
  document.title = `${main.querySelector('h1')?.textContent ?? ''} - Flagstone`;
}

function over(why) {
  leave.abort();
  whole.abort();
  document.getElementById('state').textContent = '';
  main.replaceChildren(h('h1', {}, 'No session'), h('p', {}, why), h('p', {}, 'Run ', h('code', {}, 'flagstone console'), ' on the machine of the server, and open the link that it prints.'));
}

const theme = () => localStorage.getItem('theme');
document.getElementById('theme').addEventListener('click', () => {
  const dark = theme() ? theme() === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  localStorage.setItem('theme', dark ? 'light' : 'dark');
  document.documentElement.dataset.theme = theme();
  show();
});
if (theme()) document.documentElement.dataset.theme = theme();
document.querySelector('.skip').addEventListener('click', () => main.focus());
document.getElementById('end').addEventListener('click', async () => {
  over('You have ended it.');
  try {
    await end();
  } catch {
    over('The server did not answer: the session may still be open. "flagstone console --end" ends it.');
  }
});
addEventListener('over', event => over(event.detail));
addEventListener('keydown', event => {
  if (event.key === '/' && !event.target.closest('input, textarea, select')) {
    const first = main.querySelector('input');
    if (first) { event.preventDefault(); first.focus(); }
  }
});

const isCode = hash => /^#[A-Z2-7]{26}$/.test(hash);

async function enter() {
  try {
    if (isCode(location.hash)) {
      await begin(location.hash.slice(1));
      history.replaceState(null, '', '#/'); // the code stays in no history
    } else if (!sessionStorage.getItem('token')) {
      throw new SessionOver('This page needs a session.');
    }
  } catch (error) {
    over(error.message);
    return;
  }
  figures.start(whole.signal);
  show();
}

addEventListener('hashchange', () => { // also where a new link is opened in a tab that has the console
  if (isCode(location.hash)) location.reload();
  else show();
});
enter();
