// A test of a program that uses Table Store, by Node's own test runner and an endpoint in memory. It starts
// the command that FLAGSTONE names, or flagstone of the path:
//
//   node --test orders.test.js

'use strict';

const { test, before, beforeEach, after } = require('node:test');
const assert = require('node:assert');
const { spawn } = require('node:child_process');
const { once } = require('node:events');
const TableStore = require('tablestore');

const keys = { FLAGSTONE_ACCESS_KEY_ID: 'test', FLAGSTONE_ACCESS_KEY_SECRET: 'a secret of this test' };
const always = new TableStore.Condition(TableStore.RowExistenceExpectation.IGNORE, null);
let server, url, client;

before(async () => {
  server = spawn(process.env.FLAGSTONE || 'flagstone', ['serve', '--memory', '--addr', '127.0.0.1:0', '--test-clock', '--test-faults'],
    { env: { ...process.env, ...keys }, stdio: ['ignore', 'pipe', 'inherit'] });
  const [line] = await once(server.stdout, 'data'); // flagstone: serving DIRECTORY on URL
  url = line.toString().match(/http:\S+/)[0];
  client = new TableStore.Client({ endpoint: url, instancename: 'demo',
    accessKeyId: keys.FLAGSTONE_ACCESS_KEY_ID, secretAccessKey: keys.FLAGSTONE_ACCESS_KEY_SECRET });
});

after(async () => {
  server.kill();
  await once(server, 'exit');
});

// tell sends a request to the server's test aids, and fails if it is refused.
async function tell(what, body) {
  const answer = await fetch(`${url}/flagstone/test/${what}`, { method: 'POST', body: body && JSON.stringify(body) });
  assert.ok(answer.ok, await answer.text());
}

beforeEach(async () => {
  await tell('reset');
  await client.createTable({
    tableMeta: { tableName: 'orders', primaryKey: [{ name: 'id', type: 'STRING' }] },
    reservedThroughput: { capacityUnit: { read: 0, write: 0 } },
    tableOptions: { timeToLive: 86400, maxVersions: 1 },
  });
});

const put = (id) => client.putRow({ tableName: 'orders', condition: always, primaryKey: [{ id }], attributeColumns: [{ state: 'new' }] });
const get = async (id) => (await client.getRow({ tableName: 'orders', primaryKey: [{ id }], maxVersions: 1 })).row;

// putPatiently is how the program under test puts: the SDK does not repeat a put that the service was too busy for.
async function putPatiently(id) {
  for (;;) {
    try {
      return await put(id);
    } catch (err) {
      if (!/OTSServerBusy/.test(err.message)) throw err;
    }
  }
}

test('an order lives for a day', async () => {
  await put('first');
  assert.strictEqual((await get('first')).attributes[0].columnValue, 'new');
  await tell('clock', { advance: '24h1m' });
  assert.strictEqual((await get('first')).primaryKey, undefined);
});

test('an order survives a service that is busy', async () => {
  assert.strictEqual((await get('first')).primaryKey, undefined); // the reset has dropped it
  await tell('faults', { code: 'OTSServerBusy', operation: 'PutRow', times: 2 });
  await putPatiently('second');
  assert.strictEqual((await get('second')).attributes[0].columnValue, 'new');
});
