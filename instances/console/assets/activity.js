// What the stores do in the background, and slow requests.
import { ask, bytes, clock, count, duration, field, h, link, live, set, table } from './lib.js';

const level = e => e.kind === 'compaction' ? `${e.level} to ${e.output}` : e.kind === 'flush' ? 'memtables to 0' : '';
const columns = [
  ['what', e => e.kind + (e.reason ? ` (${e.reason})` : '')], ['table', e => e.table ?? e.store], ['level', level],
  ['files', e => e.files ?? '', true], ['takes', e => e.input ? bytes(e.input) : '', true],
];

// jobs is a table of work that has begun.
export const jobs = running => table('Running now', [...columns, ['since', e => clock(e.at_millis)]], running, 'Nothing runs.');

export function activity({ main, signal }) {
  const running = h('div'), done = h('div'), slow = h('div');
  const filter = field('Only with this text', { type: 'search', name: 'filter' });
  main.append(h('h1', {}, 'Activity'), h('h2', {}, 'Running now'), running, h('h2', {}, 'Slow requests'), slow,
    h('h2', {}, 'Done lately'), h('form', { submit: e => e.preventDefault() }, filter), done);
  let last;
  const show = () => {
    const text = filter.querySelector('input').value.toLowerCase();
    const matching = last.done.filter(e => JSON.stringify(e).toLowerCase().includes(text)).reverse();
    set(done, table('Done lately', [['at', e => clock(e.at_millis)], ...columns, ['wrote', e => e.written ? bytes(e.written) : '', true],
      ['took', e => e.took_seconds ? duration(Math.round(e.took_seconds * 1e9)) : '', true],
      ['result', e => e.error ? h('span', { class: 'bad' }, e.error) : [e.cancelled && 'ended early', e.moved && 'moved unchanged', e.dropped && `left out ${count(e.dropped)} cells`, e.made && `made ${e.made.join(', ')}`].filter(Boolean).join(', ')],
    ], matching, text ? 'Nothing has this text.' : 'Nothing was done since the server was started.'));
  };
  filter.addEventListener('input', () => last && show());
  live(signal, 2000, async () => {
    last = await ask('GET feed');
    set(running, jobs(last.running));
    set(slow, table('Slow requests', [
      ['at', r => clock(r.at_millis)], ['took', r => duration(Math.round(r.took_seconds * 1e9)), true], ['operation', r => r.operation], ['table', r => r.table ? h('a', { href: link('table', r.instance, r.table, 'heat') }, `${r.instance}/${r.table}`) : r.instance],
      ['code', r => r.code], ['received', r => bytes(r.received), true], ['sent', r => bytes(r.sent), true], ['units', r => `${r.read_units} + ${r.write_units}`, true], ['rows of a batch', r => r.rows || '', true], ['request id', r => h('code', {}, r.id)],
    ], [...last.slow].reverse(), 'None since the server was started. serve --slow-request says what is slow.'));
    show();
  });
}
