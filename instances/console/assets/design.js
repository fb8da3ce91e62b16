// Whether the primary key spreads size and load: the report of flagstone advise, as pictures.
import { action, ask, bytes, count, field, h, saying, set, share, table, tiles } from './lib.js';

export function design({ main, at }) {
  const said = saying(), report = h('div'), rows = field('Rows to sample', { name: 'rows', type: 'number', min: 100, max: 100000, value: 10000, class: 'short' });
  const form = h('form', {
    submit: action(said, async () => {
      show(report, await ask('GET report', { ...at, rows: rows.querySelector('input').value }));
      return '';
    }),
  }, rows, h('button', { class: 'main' }, 'Look'));
  main.append(h('p', {}, 'A table is divided between its partition keys, the values of its first key column, and never within one. This reads a sample of the rows, and the load: a request counts half after ten minutes, or after 20 seconds if the load is new.'), form, said, report);
  form.requestSubmit();
}

function show(into, r) {
  const verdict = (bad, yes, no) => h('span', { class: bad && 'bad' }, bad ? yes : no);
  set(into, tiles([
    ['requests', r.refused ? h('span', { class: 'bad' }, `${count(r.refused.per_second)}/s refused: ${r.refused.code}`) : 'none refused'],
    ['deleted rows', r.passed ? h('span', { class: 'bad' }, `${count(r.passed.per_second)}/s passed, ${count(r.passed.returned_per_second)}/s returned: a compaction drops them`) : 'few are passed'],
    ['size', verdict(r.size.heavy || r.size.large, r.size.large ? 'too large a key' : 'concentrated', 'even')],
    ['load', r.load ? verdict(r.load.heavy, 'concentrated', 'even') : 'not known yet'],
    ['bytes of a row', r.row_bytes ? bytes(r.row_bytes) : 'not known yet'],
    ['largest row of the sample', r.largest ? [bytes(r.largest.bytes), ' ', h('code', {}, r.largest.key)] : 'not known'],
    ['newest rows', r.newest ? verdict(r.newest.crowded, `${share(r.newest.in_tenth)} in a tenth of the range`, 'spread') : 'not known'],
    ['sampled', `${count(r.sampled)} rows of ${bytes(r.bytes)}`],
  ]),
  spread('Size by partition key', r.size, part => bytes(part * r.bytes)),
  r.load ? spread('Load by partition key', r.load, part => `${count(part * r.load_units_per_second)} units/s`) : null,
  h('h2', {}, 'Proposals'), r.proposals.length ? r.proposals.map(p => h('section', {}, h('p', {}, h('strong', {}, p.what)),
    h('p', { class: 'soft' }, `The heaviest partition key then has ${share(p.largest)} of the bytes instead of ${share(r.size.top[0]?.part ?? 0)}${p.load && r.load ? `, and the busiest about ${share(p.load)} of the load instead of ${share(r.load.top[0]?.part ?? 0)}` : ''}. Cost: ${p.cost}.`), h('pre', {}, p.go))) : h('p', { class: 'soft' }, 'Nothing to propose.'));
}

const spread = (title, s, amount) => [h('h2', {}, title), table(title, [
  ['partition key', t => t.key], ['share', t => [h('span', { class: 'meter', style: { width: `${12 * t.part}rem` } }), ' ', share(t.part)]], ['about', t => amount(t.part), true],
], s.top, 'No key stands out.')];
