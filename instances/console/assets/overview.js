// The stores, as a whole.
import { ask, bytes, count, duration, h, live, moment, set, share, table, tiles } from './lib.js';
import { amplification, chart, follow, latest, rates } from './figures.js';
import { jobs } from './activity.js';

export function overview({ main, signal }) {
  const stores = h('div'), instances = h('div'), running = h('div');
  main.append(h('h1', {}, 'Overview'), stores, h('h2', {}, 'Running now'), running, h('h2', {}, 'Instances'), instances);
  const shown = new Map();
  follow(signal, () => {
    for (const [kind, m] of Object.entries(latest().figures)) {
      if (!shown.has(kind)) {
        shown.set(kind, store(kind));
        stores.append(...shown.get(kind).elements);
      }
      shown.get(kind).draw(m);
    }
  });
  live(signal, 2000, async () => set(running, jobs((await ask('GET feed')).running)));
  live(signal, 10000, async () => set(instances, table('Instances', [
    ['name', i => h('a', { href: `#/tables/${encodeURIComponent(i.name)}` }, i.name)], ['type', i => i.type], ['tables', i => i.tables, true],
    ['size', i => bytes(i.bytes), true], ['access keys', i => i.keys.length, true], ['made', i => moment(i.created_millis)],
  ], await ask('GET instances'), 'There are no instances.')));
}

// store is the part of the page about one store.
function store(kind) {
  const of = p => p.figures[kind];
  const facts = h('div');
  const sum = (f, m) => (m?.Tables ?? []).reduce((total, t) => total + f(t), 0);
  const charts = [
    chart('Operations per second', [['gets', () => rates(p => p.gets[kind])], ['scans', () => rates(p => p.scans[kind])], ['updates', () => rates(p => p.updates[kind])]], count),
    chart('Bytes written per second', [['log', () => rates(p => of(p)?.LogBytes)], ['flushes', () => rates(p => of(p)?.FlushedBytes)], ['compactions', () => rates(p => of(p)?.CompactedOut)]], bytes),
  ];
  return {
    elements: [h('h2', {}, `Store of ${kind} instances`), facts, h('div', { class: 'charts' }, charts.map(c => c.figure))],
    draw(m) {
      const asked = m.CacheHits + m.CacheMisses;
      set(facts, m.Poisoned ? h('p', { class: 'bad' }, 'The store takes no writes until the server is started again; its log says why.') : m.Refusal ? h('p', { class: 'bad' }, `Writes are refused: ${m.Refusal}`) : null, tiles([
        ['back-pressure', share(m.Pressure)], ['writers held back', duration(m.Stalled)],
        ['memtables', `${bytes(m.MemoryBytes)} of ${bytes(m.MemoryBudget)}`], ['block cache', bytes(m.CacheBytes)],
        ['cache hits', asked ? share(m.CacheHits / asked) : '-'], ['write amplification', amplification(m)],
        ['compaction debt', bytes(sum(t => t.Debt, m))], ['table files', sum(t => t.Files.reduce((a, b) => a + b, 0), m)],
        ['snapshots', m.OpenSnapshots], ['log waits for the device', duration(m.LogWaiting)],
      ]), h('p', { class: 'soft' }, 'Cache hits, write amplification, and for how long writers were held back: since the server was started.'));
      for (const c of charts) c.draw();
    },
  };
}
