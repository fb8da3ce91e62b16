// The figures of the stores over the last minutes: one loop reads them, pages draw them.
import uPlot from './uplot/uPlot.js';
import { ask, bytes, clock, h, live } from './lib.js';

const step = 2000, kept = 150; // milliseconds, pictures
const every = 64; // the engine times one operation in so many

// operations is about how many operations a latency of the engine stands for.
const operations = latency => every * Object.values(latency.buckets).reduce((a, b) => a + b, 0);

const pictures = []; // {at: seconds, figures, gets, scans, updates: by store, tables: by name}, the newest last
const listeners = new Set();

// start reads the figures until signal ends it.
export function start(signal) {
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { for (const f of listeners) f(); });
  live(signal, step, async () => {
    const figures = await ask('GET figures');
    const tables = new Map(Object.values(figures).flatMap(store => (store.Tables ?? []).map(t => [t.Name, t])));
    const total = name => Object.fromEntries(Object.entries(figures).map(([kind, store]) =>
      [kind, (store.Tables ?? []).reduce((sum, t) => sum + operations(t[name]), 0)]));
    pictures.push({ at: Date.now() / 1000, figures, tables, gets: total('Gets'), scans: total('Scans'), updates: total('Updates') });
    if (pictures.length > kept) pictures.shift();
    for (const f of listeners) f();
  });
}

// follow calls f now and after each picture until signal ends it.
export function follow(signal, f) {
  listeners.add(f);
  signal.addEventListener('abort', () => listeners.delete(f));
  if (pictures.length) f();
}

export const latest = () => pictures.at(-1);
export const storeOf = (picture, name) => Object.values(picture?.figures ?? {}).find(store => store.Tables?.some(t => t.Name === name));
export const tableOf = (picture, name) => picture?.tables.get(name);

// amplification is how often a store wrote a byte to table files, since it was opened.
export const amplification = store => store?.FlushedBytes ? ((store.FlushedBytes + store.CompactedOut) / store.FlushedBytes).toFixed(2) : '-';

// rates are how fast a figure rose, by picture: null where it is unknown.
export const rates = (of, list) => between((now, before, seconds) => {
  const a = of(before), b = of(now);
  return a == null || b == null || b < a ? null : (b - a) / seconds;
}, list);

// rise is how fast a figure rose over the last few pictures, 0 if that is unknown; rowBytes is the size of a row that is
// read or written, of the figures of a table.
export const rise = of => rates(of, pictures.slice(-6)).filter(r => r != null).reduce((sum, r, _, all) => sum + r / all.length, 0);
export const rowBytes = of => (of('RowRate')(latest()) ?? 0) < 0.05 ? 0 : of('ByteRate')(latest()) / of('RowRate')(latest());

// between calls f with each picture, the one before and the seconds between.
const between = (f, list = pictures) => list.slice(1).map((p, i) => f(p, list[i], p.at - list[i].at));

export const times = () => pictures.slice(1).map(p => p.at);

// pace is how many operations per second a latency of the engine counted, and the times in nanoseconds within which half
// and 99% of them were done, over the last few pictures.
export function pace(of, pictureCount = 5) {
  const now = pictures.at(-1), before = pictures[Math.max(0, pictures.length - 1 - pictureCount)];
  return paceBetween(of(now), of(before), now && before ? now.at - before.at : 0);
}

function paceBetween(now, before, seconds) {
  if (!now || !before || !(seconds > 0)) return { rate: 0 };
  const counts = Object.entries(now.buckets).map(([end, n]) => [+end, n - (before.buckets[end] ?? 0)]).filter(([, n]) => n > 0).sort((a, b) => a[0] - b[0]);
  const total = counts.reduce((sum, [, n]) => sum + n, 0);
  const quantile = q => {
    let left = q * total;
    for (const [end, n] of counts) if ((left -= n) <= 0) return end;
    return undefined;
  };
  return { rate: total * every / seconds, p50: quantile(0.5), p99: quantile(0.99) };
}

const known = new WeakMap(); // by latency: its pace since the picture before, which several lines of a chart ask for
export const paces = of => between((now, before, seconds) => {
  const latency = of(now);
  if (!latency) return { rate: 0 };
  if (!known.has(latency)) known.set(latency, paceBetween(latency, of(before), seconds));
  return known.get(latency);
});

const probe = h('span', { hidden: true });
function resolved(name) {
  if (!probe.isConnected) document.body.append(probe);
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

const shortClock = seconds => new Date(1000 * seconds).toLocaleTimeString([], { hour: 'numeric', minute: '2-digit' });

const binary = Array.from({ length: 50 }, (_, i) => 2 ** i); // steps of an axis of bytes

// chart is a figure with lines, which are [name, values()]. draw draws it anew.
export function chart(title, lines, format) {
  const figure = h('figure', {}, h('figcaption', {}, title));
  const colors = ['--accent', '--second', '--third'];
  const axis = { stroke: () => resolved('--soft'), grid: { stroke: () => resolved('--edge'), width: 1 }, ticks: { show: false }, font: '11px system-ui' };
  let plot, drawnIn; // a color of the theme, since the legend keeps those that it began with
  const shown = write => (u, v, series, at) => { // where the pointer is, or the newest
    const value = at == null ? u.data[series].at(-1) : v;
    return value == null ? '-' : write(value);
  };
  const room = () => figure.clientWidth - 18;
  const draw = () => {
    const data = [times(), ...lines.map(([, values]) => values())];
    if (!figure.isConnected || data[0].length === 0) return;
    const width = room();
    if (plot && drawnIn !== resolved('--accent')) {
      plot.destroy();
      plot = undefined;
    }
    if (plot) {
      if (plot.width !== width) plot.setSize({ width, height: 170 });
      plot.setData(data);
      return;
    }
    drawnIn = resolved('--accent');
    plot = new uPlot({
      width, height: 170, padding: [12, 22, 0, 0],
      scales: { x: { range: u => [u.data[0].at(-1) - step / 1000 * kept, u.data[0].at(-1)] }, y: { range: (u, min, max) => [0, Math.max(max || 0, 1) * 1.1] } },
      axes: [{ ...axis, size: 28, incrs: [60], values: (u, splits) => splits.map(at => shortClock(at)) }, { ...axis, size: 62, values: (u, splits) => splits.map(format), ...(format === bytes && { incrs: binary }) }],
      series: [{ label: 'at', value: shown(at => clock(1000 * at)) }, ...lines.map(([label], i) => ({ label, stroke: () => resolved(colors[i]), width: 2, points: { show: false }, value: shown(format) }))],
    }, data, figure);
  };
  new ResizeObserver(() => { if (plot?.width !== room()) draw(); }).observe(figure);
  return { figure, draw };
}
