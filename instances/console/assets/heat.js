// The heat map: which partition keys were read and written over the last half hour. Time goes to the right, keys go down.
import { ask, clock, count, h, live, set, table } from './lib.js';

const gutter = 130; // left margin of the picture, in pixels

const shortened = key => key === '' ? '""' : key.length > 24 ? `${key.slice(0, 23)}…` : key;

export function heat({ main, signal, at }) {
  const canvas = h('canvas', { class: 'heat', tabindex: 0, role: 'img', 'aria-label': 'Load by time and key. The arrow keys move over it; the text below says what is there. The table lists the last column.' });
  const said = h('p', { class: 'said', role: 'status' }), hottest = h('div'), none = h('p', { class: 'soft' });
  const kind = h('select', { name: 'kind' }, [['both', 'reads and writes'], ['reads', 'reads'], ['writes', 'writes']].map(([value, text]) => h('option', { value }, text)));
  const axis = h('p', { class: 'axis' }, h('span'), h('span', {}, 'now'));
  main.append(h('form', { submit: e => e.preventDefault() }, h('label', {}, 'Show', kind)), none, canvas, axis, said,
    h('p', { class: 'soft' }, 'The brighter, the more capacity units per second. The load of a partition is an average of about half a minute, spread over the keys of a random sample of its operations. A row of the picture is a key, or a range of keys; a key with much load has one of its own.'),
    h('h2', {}, 'Now, the busiest first'), hottest);
  let picture, cursor;
  const value = (column, row) => {
    const reads = picture.reads[column][row] ?? 0, writes = picture.writes[column][row] ?? 0;
    return kind.value === 'reads' ? reads : kind.value === 'writes' ? writes : reads + writes;
  };
  const name = row => {
    const { key, many } = picture.rows[row];
    return `${key === '' ? '""' : key}${many ? ` to ${picture.rows[row + 1]?.key ?? 'the end'}` : ''}`;
  };
  const draw = () => {
    const columns = picture.times.length, lines = picture.rows.length;
    canvas.hidden = axis.hidden = lines === 0;
    none.textContent = lines === 0 ? 'No key was used in the last half hour. The picture has a column every ten seconds.' : '';
    if (lines === 0) return;
    const ratio = devicePixelRatio || 1, width = canvas.width = canvas.clientWidth * ratio, height = canvas.height = canvas.clientHeight * ratio;
    const g = canvas.getContext('2d');
    const left = gutter * ratio;
    g.clearRect(0, 0, width, height);
    g.fillStyle = '#0b0b1e';
    g.fillRect(left, 0, width - left, height);
    g.fillStyle = getComputedStyle(canvas).color;
    g.font = `${11 * ratio}px system-ui, sans-serif`;
    for (let r = 0, free = 0; r < lines; r++) { // the names of keys, where there is room
      const y = r * height / lines;
      if (y < free) continue;
      g.fillText(shortened(picture.rows[r].key), 0, y + 11 * ratio, left - 8 * ratio);
      free = y + 15 * ratio;
    }
    let highest = 0;
    for (let c = 0; c < columns; c++) for (let r = 0; r < lines; r++) highest = Math.max(highest, value(c, r));
    const { slots } = picture, first = slots - columns, column = c => left + Math.floor((first + c) * (width - left) / slots);
    for (let c = 0; c < columns; c++) {
      for (let r = 0; r < lines; r++) {
        const v = value(c, r);
        if (v <= 0) continue;
        g.fillStyle = heatColor(Math.log1p(99 * v / highest) / Math.log(100));
        const y = Math.floor(r * height / lines);
        g.fillRect(column(c), y, column(c + 1) - column(c), Math.floor((r + 1) * height / lines) - y - 1);
      }
    }
    if (cursor) {
      g.strokeStyle = '#fff';
      g.lineWidth = 2 * ratio;
      g.strokeRect(column(cursor.column), cursor.row * height / lines, column(cursor.column + 1) - column(cursor.column), height / lines);
    }
  };
  const point = (column, row) => {
    cursor = { column: Math.min(Math.max(column, 0), picture.times.length - 1), row: Math.min(Math.max(row, 0), picture.rows.length - 1) };
    const { column: c, row: r } = cursor;
    said.textContent = `${clock(picture.times[c])}, ${name(r)}: ${count(picture.reads[c][r] ?? 0)} capacity units read/s, ${count(picture.writes[c][r] ?? 0)} written/s`;
    draw();
  };
  canvas.addEventListener('pointermove', event => {
    if (!picture?.rows.length) return;
    const box = canvas.getBoundingClientRect();
    point(Math.floor((event.clientX - box.left - gutter) / (box.width - gutter) * picture.slots) - (picture.slots - picture.times.length), Math.floor((event.clientY - box.top) / box.height * picture.rows.length));
  });
  canvas.addEventListener('keydown', event => {
    const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!move || !picture?.rows.length) return;
    event.preventDefault();
    const { column, row } = cursor ?? { column: picture.times.length - 1, row: 0 };
    point(column + move[0], row + move[1]);
  });
  kind.addEventListener('change', () => picture && draw());
  addEventListener('resize', () => picture && draw(), { signal });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => picture && draw(), { signal });
  live(signal, 5000, async () => {
    picture = await ask('GET heat', at);
    picture.slots = Math.min(picture.slots, Math.max(picture.times.length, 30)); // a server that was just started has few columns
    axis.firstChild.textContent = `${Math.round(picture.slots * picture.step_seconds / 60)} minutes ago`;
    draw();
    const last = picture.times.length - 1, used = row => picture.reads[last][row] + picture.writes[last][row];
    const busy = picture.rows.map((_, row) => row).filter(row => last >= 0 && used(row) > 0).sort((a, b) => used(b) - used(a));
    const total = busy.reduce((sum, row) => sum + used(row), 0);
    set(hottest, table('The busiest keys', [
      ['key', name], ['units read/s', row => count(picture.reads[last][row]), true], ['units written/s', row => count(picture.writes[last][row]), true],
      ['share', row => `${(100 * used(row) / total).toFixed(0)}%`, true],
    ], busy.slice(0, 20), 'The table is idle.'));
  });
}

// heatColor is a colour from dark blue over red to pale yellow, for 0 to 1.
function heatColor(x) {
  const stops = [[13, 8, 135], [126, 3, 168], [204, 71, 120], [248, 149, 64], [240, 249, 33]];
  const at = Math.min(Math.max(x, 0), 1) * (stops.length - 1), i = Math.min(Math.floor(at), stops.length - 2), part = at - i;
  return `rgb(${stops[i].map((c, k) => Math.round(c + (stops[i + 1][k] - c) * part)).join()})`;
}
