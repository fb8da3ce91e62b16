// A program that uses the official Table Store SDK for Node.js as any program
// would. The Go tests run it and judge what it prints.
//
//   node client.js create NAME           makes a table
//   node client.js write NAME            writes rows of every type in every way
//   node client.js read NAME             prints all rows as JSON, read in every way
//   node client.js filters NAME          prints which filters let a row pass
//   node client.js tables                prints the tables as JSON
//   node client.js refusals NAME         prints the error codes of bad requests
//
// The server's address, the instance and the access key come from the
// environment: ENDPOINT, INSTANCE, KEY_ID, KEY_SECRET.

'use strict';

const assert = require('assert');
const TableStore = require('tablestore');

const { Long, INF_MIN, INF_MAX, Direction, Condition } = TableStore;
const { IGNORE, EXPECT_EXIST, EXPECT_NOT_EXIST } = TableStore.RowExistenceExpectation;

const settings = {
  endpoint: process.env.ENDPOINT,
  instancename: process.env.INSTANCE,
  accessKeyId: process.env.KEY_ID,
  secretAccessKey: process.env.KEY_SECRET,
  maxRetries: 0,
};
const client = new TableStore.Client(settings);

const always = new Condition(IGNORE, null);

// The tables have the key (s STRING, i INTEGER, b BINARY).
function key(s, i, b) {
  return [{ s }, { i: typeof i === 'number' ? Long.fromNumber(i) : i }, { b }];
}

const lowest = key(INF_MIN, INF_MIN, INF_MIN);
const highest = key(INF_MAX, INF_MAX, INF_MAX);

// plain turns a value into JSON that says its type.
function plain(value) {
  if (Buffer.isBuffer(value) || value instanceof Uint8Array) {
    return { binary: Buffer.from(value).toString('hex') };
  }
  switch (typeof value) {
    case 'string':
      return { string: value };
    case 'boolean':
      return { boolean: value };
    case 'number':
      return { double: value };
    default:
      return { integer: value.toString() };
  }
}

// shown turns a row of the SDK into JSON.
function shown(row) {
  return {
    key: (row.primaryKey || []).map((c) => plain(c.value)),
    columns: (row.attributes || []).map((c) => ({
      name: c.columnName,
      version: c.timestamp.toString(),
      value: plain(c.columnValue),
    })),
  };
}

// asKey turns the key of a row, as the SDK returns it, into one for a request.
function asKey(columns) {
  return columns.map((c) => ({ [c.name]: c.value }));
}

async function create(tableName) {
  await client.createTable({
    tableMeta: {
      tableName,
      primaryKey: [
        { name: 's', type: 'STRING' },
        { name: 'i', type: 'INTEGER' },
        { name: 'b', type: 'BINARY' },
      ],
    },
    reservedThroughput: { capacityUnit: { read: 0, write: 0 } },
    tableOptions: { timeToLive: -1, maxVersions: 1 },
  });
  const updated = await client.updateTable({ tableName, tableOptions: { timeToLive: -1, maxVersions: 3 } });
  assert.strictEqual(updated.tableOptions.maxVersions, 3);
  return describe(tableName);
}

async function describe(tableName) {
  const d = await client.describeTable({ tableName });
  return {
    name: d.tableMeta.tableName,
    key: d.tableMeta.primaryKey.map((c) => `${c.name} ${c.type}`),
    maxVersions: d.tableOptions.maxVersions,
    timeToLive: d.tableOptions.timeToLive,
  };
}

async function write(tableName) {
  const now = Date.now();
  const version = (n) => Long.fromNumber(now + n);

  const returned = await client.putRow({
    tableName,
    condition: new Condition(EXPECT_NOT_EXIST, null),
    primaryKey: key('types', -1, Buffer.from([0, 255])),
    attributeColumns: [
      { b_some: Buffer.from('00ff10', 'hex') },
      { d_half: 0.5 },
      { d_whole: 3 }, // JavaScript's numbers are doubles
      { f: false },
      { i_max: Long.fromString('9223372036854775807') },
      { i_min: Long.fromString('-9223372036854775808') },
      { s_chinese: '表格存储' },
      { s_empty: '' },
      { t: true },
    ],
    returnContent: { returnType: TableStore.ReturnType.Primarykey },
  });
  assert.deepStrictEqual(returned.row.primaryKey.map((c) => c.name), ['s', 'i', 'b']);

  const changed = key('update', 7, Buffer.from('k'));
  await client.putRow({
    tableName, condition: always, primaryKey: changed,
    attributeColumns: [
      { a: 'old', timestamp: version(-2000) }, { a: 'older', timestamp: version(-3000) },
      { gone: 'x' }, { stays: 'x' },
    ],
  });
  await client.updateRow({
    tableName, condition: new Condition(EXPECT_EXIST, null), primaryKey: changed,
    updateOfAttributeColumns: [
      { PUT: [{ a: 'new', timestamp: version(-1000) }, { n: Long.fromNumber(42) }] },
      { DELETE: [{ a: version(-3000) }] },
      { DELETE_ALL: ['gone'] },
    ],
  });

  const doomed = key('doomed', 0, Buffer.from('k'));
  await client.putRow({ tableName, condition: always, primaryKey: doomed, attributeColumns: [{ a: 'x' }] });
  await client.deleteRow({ tableName, condition: new Condition(EXPECT_EXIST, null), primaryKey: doomed });

  const batchKey = (i) => key('batch', i, Buffer.from([i]));
  const outcome = await client.batchWriteRow({
    tables: [{
      tableName,
      rows: [
        { type: 'PUT', condition: always, primaryKey: batchKey(1), attributeColumns: [{ a: 'put' }] },
        { type: 'UPDATE', condition: always, primaryKey: batchKey(2), attributeColumns: [{ PUT: [{ a: 'update' }] }] },
        { type: 'DELETE', condition: always, primaryKey: batchKey(3) },
        { type: 'PUT', condition: new Condition(EXPECT_EXIST, null), primaryKey: batchKey(4), attributeColumns: [{ a: 'refused' }] },
      ],
    }],
  });
  return outcome.tables.map((row) => (row.isOk ? 'ok' : row.errorCode));
}

// scan reads a range, a few rows at a time.
async function scan(tableName, direction, from, to) {
  const rows = [];
  for (let start = from; start;) {
    const page = await client.getRange({
      tableName, direction, maxVersions: 10, limit: 2,
      inclusiveStartPrimaryKey: start, exclusiveEndPrimaryKey: to,
    });
    rows.push(...page.rows);
    start = page.nextStartPrimaryKey ? asKey(page.nextStartPrimaryKey) : null;
  }
  return rows;
}

// read reads all rows by ranges in both directions, by GetRow and by
// BatchGetRow, and returns them if all four ways agree.
async function read(tableName) {
  const rows = await scan(tableName, Direction.FORWARD, lowest, highest);
  const result = rows.map(shown);

  const backward = await scan(tableName, Direction.BACKWARD, highest, lowest);
  assert.deepStrictEqual(backward.reverse().map(shown), result);

  const keys = rows.map((row) => asKey(row.primaryKey));
  for (const [n, primaryKey] of keys.entries()) {
    const one = await client.getRow({ tableName, primaryKey, maxVersions: 10 });
    assert.deepStrictEqual(shown(one.row), result[n]);
  }
  const missing = await client.getRow({ tableName, primaryKey: key('missing', 0, Buffer.alloc(0)), maxVersions: 1 });
  assert.deepStrictEqual(shown(missing.row), { key: [], columns: [] });

  const batch = await client.batchGetRow({ tables: [{ tableName, primaryKey: keys, maxVersions: 10 }] });
  assert.deepStrictEqual(batch.tables[0].map(shown), result);
  return result;
}

// filters reads the row of every type through filters, and returns which let it
// pass, or the columns that are left of it.
async function filters(tableName) {
  const { SingleColumnCondition, CompositeCondition, ColumnPaginationFilter, ComparatorType, LogicalOperator } = TableStore;
  const primaryKey = key('types', -1, Buffer.from([0, 255]));
  const columns = async (columnFilter) => {
    const { row } = await client.getRow({ tableName, primaryKey, maxVersions: 1, columnFilter });
    return (row.attributes || []).map((c) => c.columnName).join(' ');
  };
  const passes = async (columnFilter) => (await columns(columnFilter)) !== '';
  const is = (name, value, comparator = ComparatorType.EQUAL) => new SingleColumnCondition(name, value, comparator);
  const both = new CompositeCondition(LogicalOperator.AND);
  both.addSubCondition(is('t', true));
  both.addSubCondition(is('d_half', 0.4, ComparatorType.GREATER_THAN));
  const neither = new CompositeCondition(LogicalOperator.NOT);
  neither.addSubCondition(is('t', true));
  return {
    equal: await passes(is('f', false)),
    unequal: await passes(is('f', true)),
    doubles: await passes(is('d_whole', 3)),
    longs: await passes(is('i_max', Long.fromString('9223372036854775807'))),
    missingPasses: await passes(new SingleColumnCondition('none', 1, ComparatorType.EQUAL, true)),
    missingDoesNot: await passes(new SingleColumnCondition('none', 1, ComparatorType.EQUAL, false)),
    and: await passes(both),
    not: await passes(neither),
    page: (await columns(new ColumnPaginationFilter(1, 1))) === 'd_half',
  };
}

// refusals returns how the server answers what it must refuse.
async function refusals(tableName) {
  const code = async (call) => {
    try {
      await call();
      return 'none';
    } catch (err) {
      return `${err.code} ${err.message}`; // the SDK leaves the server's code in the message
    }
  };
  const one = key('types', -1, Buffer.from([0, 255]));
  const stranger = new TableStore.Client({ ...settings, secretAccessKey: 'wrong' });
  return {
    existing: await code(() => client.createTable({
      tableMeta: { tableName, primaryKey: [{ name: 's', type: 'STRING' }] },
      reservedThroughput: { capacityUnit: { read: 0, write: 0 } },
      tableOptions: { timeToLive: -1, maxVersions: 1 },
    })),
    condition: await code(() => client.putRow({
      tableName, primaryKey: one, attributeColumns: [{ a: 1 }], condition: new Condition(EXPECT_NOT_EXIST, null),
    })),
    columnCondition: await code(() => client.putRow({
      tableName, primaryKey: one, attributeColumns: [{ a: 1 }],
      condition: new Condition(IGNORE, new TableStore.SingleColumnCondition('t', false, TableStore.ComparatorType.EQUAL)),
    })),
    table: await code(() => client.getRow({ tableName: 'Nowhere', primaryKey: one, maxVersions: 1 })),
    secret: await code(() => stranger.listTable({})),
  };
}

// transactions writes a batch in a transaction and commits it, and one in a
// transaction that it aborts. It returns the outcomes, and how many rows of the
// partition key were seen within and outside at each step.
async function transactions(tableName) {
  const name = 'transaction';
  const rowKey = (i) => key(name, i, Buffer.alloc(0));
  const count = async (transactionId) => {
    const { rows } = await client.getRange({
      tableName, direction: Direction.FORWARD, maxVersions: 1, transactionId,
      inclusiveStartPrimaryKey: [{ s: name }, { i: TableStore.INF_MIN }, { b: TableStore.INF_MIN }],
      exclusiveEndPrimaryKey: [{ s: name }, { i: TableStore.INF_MAX }, { b: TableStore.INF_MAX }],
    });
    return rows.length;
  };
  const put = (i) => ({ type: 'PUT', condition: always, primaryKey: rowKey(i), attributeColumns: [{ a: `row ${i}` }] });
  const begin = async (rows) => {
    const { transactionId } = await client.startLocalTransaction({ tableName, primaryKey: [{ s: name }] });
    const outcome = await client.batchWriteRow({ transactionId, tables: [{ tableName, rows }] });
    return { transactionId, outcomes: outcome.tables.map((row) => (row.isOk ? 'ok' : row.errorCode)).join(' ') };
  };

  const first = await begin([put(1), put(2), { ...put(3), primaryKey: key('elsewhere', 3, Buffer.alloc(0)) }]);
  const outside = await client.batchWriteRow({ tables: [{ tableName, rows: [put(1)] }] });
  const within = await count(first.transactionId);
  const before = await count();
  await client.commitTransaction({ transactionId: first.transactionId });
  const committed = await count();
  const second = await begin([put(4), { type: 'DELETE', condition: always, primaryKey: rowKey(1) }, put(5)]);
  const again = await count(second.transactionId);
  await client.abortTransaction({ transactionId: second.transactionId });
  return {
    first: first.outcomes, outside: outside.tables[0].errorCode, second: second.outcomes,
    counts: [within, before, committed, again, await count()].join(' '),
  };
}

const commands = {
  create, write, read, filters, refusals, transactions,
  tables: async () => (await client.listTable({})).tableNames,
};

async function main() {
  const [command, ...args] = process.argv.slice(2);
  console.log(JSON.stringify(await commands[command](...args)));
}

main().catch((err) => {
  console.error(err);
  process.exit(1);
});
