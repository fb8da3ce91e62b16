// One table: its load, the heat of its keys, its files, its rows, its key and its options.
import { action, ask, bytes, count, duration, field, h, link, live, moment, once, saying, set, share, table, tiles } from './lib.js';
import { chart, follow, latest, pace, paces, rise, rowBytes, tableOf } from './figures.js';
import { heat } from './heat.js';
import { files } from './files.js';
import { rows } from './rows.js';
import { design } from './design.js';
import { stream } from './stream.js';

const tabs = { load: ['Load', load], heat: ['Heat map', heat], files: ['Files', files], rows: ['Rows', rows], stream: ['Stream', stream], key: ['Key', design], options: ['Options', options] };

export function tablePage({ main, signal, parts: [instance, name, tab = 'load'] }) {
  main.append(h('h1', {}, `${instance}/${name}`), h('nav', { class: 'tabs', 'aria-label': 'Of this table' }, Object.entries(tabs).map(([key, [title]]) =>
    h('a', { href: link('table', instance, name, key), 'aria-current': key === tab && 'page' }, title))));
  const body = h('div');
  main.append(body);
  (tabs[tab]?.[1] ?? load)({ main: body, signal, instance, name, at: { instance, table: name } });
}

const keyText = key => key == null ? '(end)' : key === '' ? '""' : key;

function load({ main, signal, instance, name, at }) {
  const full = `${instance}/${name}`, of = kind => picture => tableOf(picture, full)?.[kind];
  const facts = h('div'), partitions = h('div'), said = saying(), cut = field('Value of the first key column', { name: 'at' });
  const nano = kind => [['p50', () => paces(of(kind)).map(p => p.p50 ?? null)], ['p99', () => paces(of(kind)).map(p => p.p99 ?? null)]];
  const charts = [
    chart('Operations per second', [['gets', () => paces(of('Gets')).map(p => p.rate)], ['scans', () => paces(of('Scans')).map(p => p.rate)], ['updates', () => paces(of('Updates')).map(p => p.rate)]], count),
    chart('Time of a get', nano('Gets'), duration), chart('Time of a scan', nano('Scans'), duration), chart('Time of an update', nano('Updates'), duration),
  ];
  main.append(facts, h('p', { class: 'soft' }, 'Gets and updates of single rows, and scans, each a page of a range, as the engine takes; it times one in 64. Rows of ranges and batches are in the capacity units, and in the rates of partitions.'),
    h('div', { class: 'charts' }, charts.map(c => c.figure)), h('h2', {}, 'Partitions'), partitions,
    h('form', {
      submit: action(said, async event => {
        const kind = event.submitter.value;
        await ask(`${kind === 'split' ? 'POST' : 'DELETE'} partitions`, { ...at, at: cut.querySelector('input').value });
        return kind === 'split' ? 'A partition begins there now.' : 'The partitions on both sides are one now.';
      }),
    }, cut, h('button', { value: 'split' }, 'Split there'), h('button', { value: 'merge' }, 'Merge there')), said);
  follow(signal, () => {
    const gets = pace(of('Gets')), scans = pace(of('Scans')), updates = pace(of('Updates')), refused = rise(of('Refused'));
    set(facts, tiles([['capacity units/s', count(of('Units')(latest()) ?? 0)], ['refused/s', h('span', { class: refused > 0 && 'bad' }, count(refused))], ['bytes of a row', bytes(rowBytes(of))], ['gets/s', count(gets.rate)], ['p99 of a get', duration(gets.p99)], ['scans/s', count(scans.rate)], ['p99 of a scan', duration(scans.p99)], ['deleted rows passed/s', count(of('PassedRate')(latest()) ?? 0)], ['updates/s', count(updates.rate)], ['p99 of an update', duration(updates.p99)]]));
    for (const c of charts) c.draw();
  });
  live(signal, 2000, async () => {
    const list = await ask('GET partitions', at), highest = Math.max(...list.map(p => p.units_per_second), 1e-9);
    set(partitions, table('Partitions', [
      ['id', p => p.id, true], ['from', p => keyText(p.start ?? '(start)')], ['to', p => keyText(p.end)], ['size', p => bytes(p.bytes), true],
      ['rows read/s', p => count(p.reads_per_second), true], ['rows written/s', p => count(p.writes_per_second), true],
      ['bytes of a row', p => bytes(p.bytes_per_second / (p.reads_per_second + p.writes_per_second || 1)), true],
      ['capacity units/s', p => [h('span', { class: 'meter', style: { width: `${5 * p.units_per_second / highest}rem` } }), ' ', count(p.units_per_second)]],
      ['busiest key', p => p.busiest == null ? '' : h('a', { href: link('table', instance, name, 'heat') }, `${keyText(p.busiest)} (${share(p.busiest_units_per_second / p.units_per_second)})`)],
      ['findings', p => (p.findings ?? []).map(f => h('div', { class: 'bad' }, `${f.kind}${f.key == null ? '' : `: ${f.key}`} (${f.kind.includes('large') ? bytes(f.figure) : `${count(f.figure)} ${f.kind.includes('refused') ? 'requests' : f.kind.includes('pass over') ? 'rows' : 'units'}/s`})`))],
    ], list, 'There are no partitions.', p => JSON.stringify([p.id, p.start, p.end])));
  });
}

function options({ main, signal, at }) {
  const facts = h('div'), said = saying(), compacted = saying();
  const inputs = [
    ['time_to_live', 'Time To Live in seconds, -1 for ever'], ['max_versions', 'Max Versions'], ['max_version_offset', 'Max Version Offset in seconds'], ['stream_hours', 'Stream: hours, 0 for none'],
  ].map(([name, label]) => [name, field(label, { name, type: 'number', disabled: true })]);
  const read = async () => {
    const t = await ask('GET table', at);
    set(facts, tiles([
      ['key', t.key.map(k => `${k.name} ${k.type}${k.auto_increment ? ' (numbered)' : ''}`).join(', ')], ['size', bytes(t.bytes)], ['partitions', t.partitions], ['made', moment(t.created_millis)],
      ['reserved units', `${t.reserved_read} read, ${t.reserved_write} write`], ['updates', t.allow_update ? 'allowed' : 'not allowed'],
    ]));
    for (const [name, label] of inputs) {
      const input = label.querySelector('input');
      input.value = input.dataset.was = t[name];
      input.disabled = false;
    }
  };
  main.append(facts, h('h2', {}, 'Options'), h('form', {
    submit: action(said, async () => {
      const change = {};
      let loses = false;
      for (const [name, label] of inputs) {
        const { value, dataset } = label.querySelector('input');
        if (value === '') throw new Error('A value is missing.');
        if (value === dataset.was) continue;
        change[name] = Number(value);
        const forEver = x => Number(x) < 0 ? Infinity : Number(x);
        loses ||= forEver(value) < forEver(dataset.was);
      }
      if (Object.keys(change).length === 0) return 'Nothing was changed.';
      if (loses && !confirm('A smaller value can make versions, rows or records of the stream go. Change it?')) return 'Nothing was changed.';
      await ask('PATCH table', at, { body: change });
      await read();
      return 'Changed.';
    }),
  }, inputs.map(([, input]) => input), h('button', { class: 'main' }, 'Change')), said,
    h('h2', {}, 'Compaction'), h('p', {}, 'Each byte of the table is read and written once. The store compacts by itself; this is for measurements, and to have the space of deleted or expired data back now.'),
    h('form', { submit: action(compacted, async () => { await ask('POST compact', at); return 'Compacted.'; }) }, h('button', {}, 'Compact now')), compacted);
  once(signal, read);
}
