// The rows of a table: pages of a range, versions, filters, and changes of a row, under the rules of the endpoint.
import { action, ask, field, h, moment, once, Raw, saying, SessionOver, set, table } from './lib.js';

const kinds = ['string', 'integer', 'double', 'boolean', 'binary'];

// typeOf and textOf take a value of ask with typed.
const typeOf = v => typeof v === 'string' ? 'string' : typeof v === 'boolean' ? 'boolean' : 'number' in v ? (/[.eE]/.test(v.number) ? 'double' : 'integer') : Object.keys(v)[0];
const textOf = v => typeof v === 'object' ? Object.values(v)[0] : String(v);

// valueOf reads a value of a type, for a request.
function valueOf(type, text) {
  switch (type) {
    case 'string': return text;
    case 'binary': return { binary: text };
    case 'boolean': if (text === 'true' || text === 'false') return text === 'true'; break;
    case 'integer': if (/^-?(0|[1-9]\d*)$/.test(text)) return new Raw(text); break;
    case 'double':
      if (['NaN', '+Inf', '-Inf'].includes(text)) return { double: text };
      if (/^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/.test(text)) return new Raw(/[.eE]/.test(text) ? text : `${text}.0`);
  }
  throw new Error(`${text} is no ${type}.`);
}

export function rows({ main, signal, instance, name }) {
  const form = h('form'), said = saying(), list = h('div');
  const more = h('button', { type: 'button', hidden: true }, 'Next page'), add = h('button', { type: 'button', hidden: true, click: () => edit() }, 'New row');
  main.append(form, said, list, h('p', {}, more, ' ', add));
  let key, query, place, shown = [], newest = 0; // place is where the page begins, shown its rows, newest the number of the last request
  list.addEventListener('click', event => { // the buttons of a long page are made as they come into sight
    const row = event.target.closest('[data-row]');
    if (row) edit(shown[row.dataset.row]);
  });
  once(signal, async () => {
    ({ key } = await ask('GET table', { instance, table: name }));
    const get = form.elements;
    form.replaceChildren(
      ...key.map((k, i) => field(`${k.name} (${k.type})`, { name: `key${i}` })),
      field('From, of the next column', { name: 'from' }), field('To, excluded', { name: 'to' }),
      field('Filter', { name: 'where', placeholder: 'state == "paid" and total > 10.0', size: 34 }), field('Columns, with commas', { name: 'columns' }),
      field('Versions', { name: 'versions', type: 'number', min: 1, value: 1, class: 'short' }), field('Rows', { name: 'limit', type: 'number', min: 1, max: 5000, value: 50, class: 'short' }),
      field('Backward', { name: 'backward', type: 'checkbox' }), h('button', { class: 'main' }, 'Show'));
    form.addEventListener('submit', action(said, async () => {
      const prefix = [];
      for (let i = 0; i < key.length && get[`key${i}`].value !== ''; i++) prefix.push(get[`key${i}`].value);
      return read(undefined, {
        table: name, prefix, from: get.from.value || undefined, to: get.to.value || undefined, where: get.where.value || undefined,
        columns: get.columns.value ? get.columns.value.split(',') : undefined, max_versions: Number(get.versions.value) || 1, limit: Number(get.limit.value) || 50, backward: get.backward.checked,
      });
    }));
    add.hidden = false;
    said.textContent = await read(undefined, { table: name, max_versions: 1, limit: 50 });
  });

  // read shows a page. A query that is refused leaves the one before it in place.
  async function read(next, asked = query) {
    const number = ++newest;
    const page = await ask('POST rows', { instance }, { typed: true, body: { ...asked, next: next?.map(v => typeOf(v) === 'string' ? v : valueOf(typeOf(v), textOf(v))) } });
    if (number !== newest) return '';
    query = asked;
    place = next;
    shown = page.rows;
    set(list, table('Rows', [
      ...key.map((k, i) => [k.name, r => i === 0 ? h('button', { type: 'button', title: textOf(r.key[i].value), 'data-row': page.rows.indexOf(r) }, textOf(r.key[i].value)) : textOf(r.key[i].value)]),
      ['columns', r => summary(r.columns)],
    ], page.rows, 'No row is there.'));
    more.hidden = !page.next;
    more.onclick = action(said, () => read(page.next));
    return `${page.rows.length} rows${page.next ? ', and there are more' : ''}.`;
  }

  // edit shows a row with all its versions, to be changed; without a row, a new one.
  function edit(r) {
    const at = r?.key.map(k => textOf(k.value)), told = saying(), cells = h('div');
    const keys = key.map((k, i) => field(`${k.name} (${k.type}${k.auto_increment ? ', auto numbers it' : ''})`, { name: `of${i}`, value: at?.[i] ?? (k.auto_increment ? 'auto' : ''), readonly: r !== undefined }));
    // A text field leaves line breaks out, so the key of a row that is there does not come from the fields.
    const keyOf = () => at ?? keys.map(k => k.querySelector('input').value);
    const column = field('Column', { name: 'column' }), value = field('Value', { name: 'value' });
    const kind = h('select', { name: 'type' }, kinds.map(k => h('option', {}, k)));
    const dialog = h('dialog', { 'aria-label': r ? `Row ${at.join(', ')}` : 'New row', close: () => dialog.remove() });
    const change = async (kindOf, rest) => {
      const done = await ask('POST change', { instance }, { typed: true, body: { table: name, kind: kindOf, key: keyOf(), ...rest } });
      done?.forEach((k, i) => { keys[i].querySelector('input').value = textOf(k.value); });
      try {
        said.textContent = await read(place);
      } catch (error) { // the row was changed nevertheless
        if (error instanceof SessionOver) throw error;
        said.textContent = error.message;
      }
    };
    const fresh = async () => {
      const page = await ask('POST rows', { instance }, { typed: true, body: { table: name, prefix: keyOf(), max_versions: 100 } });
      set(cells, table('Cells', [['column', c => c.name], ['type', c => typeOf(c.value)], ['value', c => textOf(c.value)], ['version', c => `${textOf(c.version)} (${moment(Number(textOf(c.version)))})`]],
        page.rows[0]?.columns ?? [], page.rows.length ? 'The row has no columns.' : 'The row is not there.'));
    };
    dialog.append(h('h2', {}, r ? 'Row' : 'New row'), h('form', {
      submit: action(told, async event => {
        const named = column.querySelector('input').value;
        switch (event.submitter.value) {
          case 'set':
            await change('update', { set: [{ name: named, value: valueOf(kind.value, value.querySelector('input').value) }] });
            break;
          case 'unset': await change('update', { unset: [named] }); break;
          case 'delete':
            if (!confirm('Delete the row with all its columns?')) return 'Nothing was changed.';
            await change('delete', r ? { expect: 'exists' } : {});
        }
        await fresh();
        return 'Changed.';
      }),
    }, keys, column, h('label', {}, 'Type', kind), value, h('button', { class: 'main', value: 'set' }, 'Set the column'),
    h('button', { value: 'unset' }, 'Delete the column'), h('button', { value: 'delete' }, 'Delete the row')), told, cells,
    h('p', {}, h('button', { type: 'button', click: () => dialog.close() }, 'Close')));
    document.body.append(dialog);
    dialog.showModal();
    if (r) fresh().catch(error => { told.textContent = error.message; });
  }
}

// summary is the cells of a row as a line, cut.
function summary(cells) {
  const line = cells.map(c => `${c.name}=${textOf(c.value).slice(0, 60)}`).join('  ');
  return line.length > 400 ? `${line.slice(0, 400)} ...` : line;
}
