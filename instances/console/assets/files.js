// The LSM tree of a table as it is, and as it was in a recording: levels, files over the key range, and what runs.
import { action, ask, bytes, count, field, h, live, moment, saying, set, share, svg, table, tiles } from './lib.js';
import { jobs } from './activity.js';
import { amplification, latest, storeOf, tableOf } from './figures.js';

const lane = 18, gap = 26, left = 70, wide = 1000; // of the picture, in its own units

export function files({ main, signal, instance, name, at }) {
  const full = `${instance}/${name}`;
  const facts = h('div'), tree = h('div', { class: 'wide', tabindex: 0, role: 'region', 'aria-label': 'Levels' }), running = h('div'), list = h('div'), said = saying();
  const frames = []; // {now_millis, files, running, store, table} of a recording
  let recording = false, replaying = false;
  const record = h('button', { type: 'button', 'aria-pressed': 'false' }, 'Record');
  const save = h('button', { type: 'button', disabled: true }, 'Save the recording');
  const open = field('Open a recording', { type: 'file', accept: '.jsonl' });
  const slider = field('Moment of the recording', { type: 'range', min: 0, max: 0, value: 0 });
  const back = h('button', { type: 'button' }, 'Back to the present');
  slider.hidden = back.hidden = true;
  main.append(facts, tree, running,
    h('form', { submit: e => e.preventDefault() }, record, save, open, slider, back), said,
    h('p', { class: 'soft' }, 'A bar is a file, from its first key to its last: every interval between two such keys is as wide as another. Files that lie over each other have lanes of their own; orange is in a compaction that runs at its level. A recording has a picture every second.'),
    h('h2', {}, 'Files'), list);

  const turn = (on, replay) => {
    [recording, replaying] = [on, replay];
    record.textContent = on ? 'Stop recording' : 'Record';
    record.setAttribute('aria-pressed', String(on));
    record.disabled = replay;
    slider.hidden = back.hidden = !replay;
  };
  record.addEventListener('click', () => {
    if (!recording) frames.length = 0;
    turn(!recording, false);
  });
  save.addEventListener('click', () => {
    const text = frames.map(f => JSON.stringify(f)).join('\n') + '\n';
    const url = URL.createObjectURL(new Blob([text], { type: 'application/jsonl' }));
    h('a', { href: url, download: `${instance}-${name}.jsonl` }).click();
    URL.revokeObjectURL(url);
  });
  open.querySelector('input').addEventListener('change', action(said, async event => {
    const [file] = event.target.files;
    if (!file) return '';
    const read = (await file.text()).trim().split('\n').map(line => JSON.parse(line));
    if (!read.every(f => Array.isArray(f.files) && Array.isArray(f.running) && Number.isFinite(f.now_millis))) throw new Error('This is no recording of files.');
    frames.splice(0, frames.length, ...read);
    turn(false, true);
    slider.querySelector('input').max = read.length - 1;
    slider.querySelector('input').value = 0;
    show(read[0]);
    return `${read.length} pictures, from ${moment(read[0].now_millis)} to ${moment(read.at(-1).now_millis)}.`;
  }));
  slider.querySelector('input').addEventListener('input', event => {
    const frame = frames[event.target.value];
    show(frame);
    said.textContent = moment(frame.now_millis);
  });
  back.addEventListener('click', () => {
    turn(false, false);
    said.textContent = '';
  });

  function show(frame) {
    const levels = Map.groupBy(frame.files, f => f.level), size = frame.files.reduce((sum, f) => sum + f.bytes, 0);
    const deepest = Math.max(-1, ...levels.keys()), bottom = (levels.get(deepest) ?? []).reduce((sum, f) => sum + f.bytes, 0);
    set(facts, tiles([
      ['files', frame.files.length], ['in table files', bytes(size)], ['in value files', bytes(frame.files.reduce((sum, f) => sum + f.value_bytes, 0))],
      ['runs that a get may look into', (levels.get(0)?.length ?? 0) + [...levels.keys()].filter(l => l > 0).length],
      ['space amplification', bottom ? `${(size / bottom).toFixed(2)} of level ${deepest}` : '-'],
      ['tombstones', count(frame.files.reduce((sum, f) => sum + f.tombstones, 0))],
      ['deleted or expired', frame.table ? bytes(frame.table.Reclaimable) : '-'], ['left to compact', frame.table ? bytes(frame.table.Debt) : '-'],
      ['back-pressure', frame.store ? share(frame.store.Pressure) : '-'], ['write amplification of the store', amplification(frame.store)],
      ['expired and dropped, of the store', frame.store ? bytes(frame.store.DroppedBytes) : '-'],
    ]));
    const busy = new Set(frame.running.filter(e => e.kind === 'compaction').flatMap(e => [e.level, e.output]));
    set(tree, draw(frame.files, levels, busy));
    set(running, jobs(frame.running));
    const shown = frame.files.slice(0, 500);
    set(list, table('Files', [
      ['level', f => f.level, true], ['number', f => f.number, true], ['partition', f => f.partition, true], ['size', f => bytes(f.bytes), true], ['rows', f => count(f.rows), true],
      ['cells', f => count(f.cells), true], ['tombstones', f => count(f.tombstones), true], ['first key', f => keyText(f.first)], ['last key', f => keyText(f.last)], ['made', f => moment(f.created_millis)],
    ], shown, 'All rows are in memtables, or there are none.'), frame.files.length > shown.length ? h('p', { class: 'soft' }, `and ${frame.files.length - shown.length} more files`) : null);
  }

  let turnsLeft = 0;
  live(signal, 1000, async () => {
    if (replaying || (!recording && turnsLeft-- > 0)) return;
    const [found, recent] = await Promise.all([ask('GET files', at), ask('GET feed')]);
    turnsLeft = 2; // every three seconds, unless it is recorded
    if (replaying || signal.aborted) return;
    const frame = {
      now_millis: recent.now_millis, files: found, running: recent.running.filter(e => e.table === full),
      store: some(storeOf(latest(), full), 'Pressure', 'FlushedBytes', 'CompactedOut', 'DroppedBytes'), table: some(tableOf(latest(), full), 'Debt', 'Reclaimable'),
    };
    if (recording) {
      frames.push(frame);
      save.disabled = false;
      said.textContent = `${frames.length} pictures are recorded.`;
      if (frames.length >= 3600) record.click();
    }
    show(frame);
  });
}

// some are a few of the figures of a store or a table, undefined before there are any.
const some = (of, ...names) => of && Object.fromEntries(names.map(name => [name, of[name]]));

const keyText = key => key.map(v => typeof v === 'object' ? Object.values(v)[0] : String(v)).join(', ');

// draw is the picture of the levels: each has as many lanes as files lie over each other.
function draw(all, levels, busy) {
  let y = 6;
  const parts = [], newest = Math.max(0, ...all.map(f => f.created_millis));
  for (const level of [...levels.keys()].sort((a, b) => a - b)) {
    const ends = [], of = levels.get(level);
    const placed = of.toSorted((a, b) => a.from - b.from).map(f => {
      let row = ends.findIndex(end => end < f.from || (end === f.from && f.from !== f.to && level > 0));
      if (row < 0) row = ends.push(0) - 1;
      ends[row] = f.to;
      return [f, row];
    });
    const rows = Math.min(ends.length, 24);
    parts.push(svg('text', { x: 6, y: y + 13 }, `L${level}`), svg('text', { x: 30, y: y + 13 }, `${of.length}`));
    for (const [f, row] of placed) {
      const old = newest - f.created_millis > 3600e3;
      parts.push(svg('rect', {
        class: `file ${busy.has(level) ? 'busy' : old ? 'old' : ''}`, x: left + f.from * (wide - left), y: y + (row % 24) * lane, width: Math.max(2, (f.to - f.from) * (wide - left)), height: lane - 3,
      }, svg('title', {}, `file ${f.number}, level ${level}: ${bytes(f.bytes)}, ${count(f.rows)} rows, from ${keyText(f.first)} to ${keyText(f.last)}`)));
    }
    y += rows * lane + gap - lane;
    parts.push(svg('line', { x1: 0, x2: wide + 6, y1: y - 5, y2: y - 5 }));
  }
  const summary = [...levels.keys()].sort((a, b) => a - b).map(l => `level ${l}: ${levels.get(l).length} files`).join(', ');
  return svg('svg', { class: 'tree', viewBox: `0 0 ${wide + 6} ${Math.max(y, 20)}`, role: 'img', 'aria-label': `Table files by level and key range. ${summary || 'There are none.'}` }, parts);
}
