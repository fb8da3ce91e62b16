// The stream of changes of a table, and the tunnels that read the table.
import { ask, h, live, moment, set, table, tiles } from './lib.js';

// gives has what a tunnel of each type gives its workers.
const gives = { BaseData: 'rows', Stream: 'changes', BaseAndStream: 'rows, then changes' };

// place is up to where a channel was consumed.
function place(channel, now) {
  if (channel.status === 'TERMINATED') return 'the end';
  if (channel.key != null) return `the key ${channel.key === '' ? '""' : channel.key}`;
  return channel.millis ? `${moment(channel.millis)} (${ago(now, channel.millis)})` : 'the begin';
}

const ago = (now, then) => `${Math.max(0, Math.round((now - then) / 1000))} s ago`;

// given is what a reader without a tunnel was given.
const given = r => r.ended ? 'the end' : `${r.given_millis ? `changes up to ${moment(r.given_millis)}` : 'no change'}${r.all ? ', all there were' : ''}`;

export function stream({ main, signal, at }) {
  const facts = h('div'), shards = h('div'), readers = h('div'), tunnels = h('div');
  main.append(h('h2', {}, 'Stream'), facts, shards, readers, h('h2', {}, 'Tunnels'),
    h('p', { class: 'soft' }, 'A tunnel keeps its place in the server.'), tunnels);
  live(signal, 5000, async () => {
    const found = await ask('GET streams', at);
    if (found.stream == null) {
      set(facts, h('p', { class: 'soft' }, 'The table has no stream. Options can give it one.'));
      set(shards);
      set(readers);
    } else {
      const { hours, created_millis: made, shards: list, readers: known, id } = found.stream;
      set(facts, tiles([['records are kept for', `${hours} h`], ['since', moment(made)], ['shards', list.length], ['of these ended', list.filter(s => s.ended).length]]), h('p', { class: 'soft' }, 'Its id is ', h('code', {}, id), '.'));
      set(shards, table('Shards', [
        ['shard', s => h('code', {}, s.id)], ['came from', s => s.parents.length ? s.parents.map(p => h('div', {}, h('code', {}, p))) : 'none'], ['state', s => s.ended ? 'ended' : 'open'],
      ], list, 'All shards have expired.'));
      set(readers, h('h2', {}, 'Readers without a tunnel'), h('p', { class: 'soft' }, 'A reader with an iterator (GetStreamRecord) keeps its place itself. This is what the server gave, since it was started, to the access keys that asked last.'), table('Readers', [
        ['access key', r => h('code', {}, r.access_key)], ['shard', r => h('code', {}, r.shard)], ['was given', r => given(r)], ['asked', r => ago(found.now_millis, r.asked_millis)],
      ], known, 'No access key has read the stream yet.'));
    }
    set(tunnels, found.tunnels.length ? found.tunnels.flatMap(t => [h('h3', {}, t.name), tiles([
      ['gives', gives[t.type] ?? t.type], ['rows of the table', t.type === 'Stream' ? 'not read' : t.base_done ? 'all read' : 'being read'], ['made', moment(t.created_millis)],
    ]), h('p', { class: 'soft' }, 'Its id is ', h('code', {}, t.id), '.'), t.expired ? h('p', { class: 'bad' }, `It cannot be read any more: ${t.expired}`) : '', table(`Channels of ${t.name}`, [
      ['channel', c => h('code', {}, c.id)], ['state', c => c.status], ['consumed up to', c => place(c, found.now_millis)], ['client', c => c.client ? h('code', {}, c.client) : 'none'],
    ], t.channels, 'It has no channels.')]) : h('p', { class: 'soft' }, 'The table has no tunnels.'));
  });
}
