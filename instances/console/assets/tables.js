// All tables, or those of one instance.
import { ask, bytes, count, duration, field, h, link, live, set, table } from './lib.js';
import { follow, latest, pace, rise, rowBytes, tableOf } from './figures.js';

// special are the options of a table that are not those of a new one.
const special = t => [
  t.max_versions !== 1 && `${t.max_versions} versions`, t.time_to_live >= 0 && `rows live ${t.time_to_live} s`,
  t.stream_hours && h('a', { href: link('table', t.instance, t.name, 'stream') }, `stream of ${t.stream_hours} h`),
].filter(Boolean);

export function tables({ main, signal, parts: [only] }) {
  const list = h('div'), filter = field('Only names with', { type: 'search', name: 'filter' });
  main.append(h('h1', {}, only ? `Tables of ${only}` : 'Tables'), only ? h('p', {}, h('a', { href: '#/tables' }, 'Of all instances')) : '',
    h('form', { submit: e => e.preventDefault() }, filter), list);
  let known, order = 'name';
  const show = () => {
    if (!known) return;
    const text = filter.querySelector('input').value.toLowerCase();
    const items = known.filter(t => t.full.toLowerCase().includes(text)).map(t => {
      const of = name => picture => tableOf(picture, t.full)?.[name];
      return { ...t, units: of('Units')(latest()) ?? 0, refused: rise(of('Refused')), row: rowBytes(of), gets: pace(of('Gets')), scans: pace(of('Scans')), updates: pace(of('Updates')) };
    });
    const by = { name: (a, b) => a.full < b.full ? -1 : 1, size: (a, b) => b.bytes - a.bytes, partitions: (a, b) => b.partitions - a.partitions, 'units/s': (a, b) => b.units - a.units, 'refused/s': (a, b) => b.refused - a.refused, 'bytes/row': (a, b) => b.row - a.row, 'gets/s': (a, b) => b.gets.rate - a.gets.rate, 'scans/s': (a, b) => b.scans.rate - a.scans.rate, 'updates/s': (a, b) => b.updates.rate - a.updates.rate };
    items.sort(by[order]);
    const sorted = name => h('button', { type: 'button', 'aria-pressed': String(order === name), click: () => { order = name; show(); } }, name);
    set(list, table('Tables', [
      [sorted('name'), t => h('a', { href: link('table', t.instance, t.name) }, only ? t.name : t.full)],
      [sorted('units/s'), t => count(t.units), true], [sorted('refused/s'), t => h('span', { class: t.refused > 0 && 'bad' }, count(t.refused)), true], [sorted('bytes/row'), t => bytes(t.row), true], [sorted('gets/s'), t => count(t.gets.rate), true], ['p99', t => duration(t.gets.p99), true],
      [sorted('scans/s'), t => count(t.scans.rate), true], ['p99', t => duration(t.scans.p99), true],
      [sorted('updates/s'), t => count(t.updates.rate), true], ['p99', t => duration(t.updates.p99), true],
      [sorted('size'), t => bytes(t.bytes), true], [sorted('partitions'), t => t.partitions, true], ['key and options', t => [t.key.map(k => `${k.name} ${k.type}`).join(', '), h('div', { class: 'soft' }, special(t).flatMap((option, i) => i ? [', ', option] : [option]))]],
    ], items, known.length ? 'No name has this text.' : 'There are no tables yet.', t => t.full));
  };
  filter.addEventListener('input', show);
  follow(signal, show);
  live(signal, 10000, async () => {
    const names = only ? [only] : (await ask('GET instances')).map(i => i.name);
    const of = await Promise.all(names.map(async instance => (await ask('GET tables', { instance })).map(t => ({ ...t, instance, full: `${instance}/${t.name}` }))));
    known = of.flat();
    show();
  });
}
