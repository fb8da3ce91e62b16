package modeltest

// Steps that change options. Smaller limits hide at once. Larger ones may bring
// back what was surplus or expired and is not collected, and nothing else; what
// they do bring back is read at once and is certain from then on.

import (
	"context"
	"maps"
	"slices"

	"github.com/flagstone-db/flagstone/ots"
)

// alter changes options while no transaction is open: how the deletes of versions
// of an open one act changes with them (docs/semantics.md).
func (m *machine) alter() {
	for p := range maps.Clone(m.open) {
		m.finish(p)
	}
	for key := range m.rows {
		m.rows.find(&m.settings, key)
	}
	before := m.settings
	options := &ots.TableOptions{}
	switch m.random.IntN(3) {
	case 0:
		m.versions = 1 + m.random.IntN(4)
		options.MaxVersions = ptr(int32(m.versions))
	case 1:
		m.ttl = pick(m, int64(-1), -1, 3, 8, 20, 100)
		options.TimeToLive = ptr(int32(m.ttl))
	case 2:
		m.offset = pick(m, int64(2), 5, 10, 20)
		options.MaxVersionOffset = ptr(m.offset)
	}
	m.note("from %+v to %+v", before, m.settings)
	_, err := m.UpdateTable(context.Background(), instance, &ots.UpdateTableRequest{Table: tableName, Options: options})
	m.expect("update of the table", err, "")
	table, err := m.store.Table(instance + "/" + tableName)
	if err != nil {
		m.fail("%v", err)
	}
	m.floor = table.Info().ExpiryWatermark
	for _, p := range partitions {
		for _, k := range numbers {
			m.adopt(id{p, k}, &before)
		}
	}
	m.compareAll()
}

// adopt reads a row after a change of options and takes over what the model left
// open.
func (m *machine) adopt(key id, before *settings) {
	sel := everything()
	res, err := m.GetRow(context.Background(), instance, &ots.GetRowRequest{Table: tableName, Row: ots.Row{Key: key.encode()}, Selection: sel})
	m.expect("get after a change of options", err, "")
	r, found := m.rows[key], map[string]map[int64]any{}
	if res.Row != nil {
		for _, c := range res.Row.Cells {
			if found[c.Name] == nil {
				found[c.Name] = map[int64]any{}
			}
			found[c.Name][c.Version] = plain(c.Value)
		}
	}
	switch {
	case res.Row == nil && r != nil && !m.expired(r.marker):
		if !before.expired(r.marker) {
			m.fail("row %v is gone by a change of options", key)
		}
		delete(m.rows, key) // it was expired, and is collected
		return
	case res.Row == nil:
		return
	case r == nil || m.expired(r.marker):
		m.fail("row %v came into being by a change of options: %s", key, shown(res.Row))
	}
	for name, cells := range found {
		if r.columns[name] == nil {
			m.fail("row %v has the column %s by a change of options: %s", key, name, shown(res.Row))
		}
		for version, value := range cells {
			col := r.columns[name]
			if have, ok := col.shown[version]; ok && have == value {
				continue
			}
			if have, ok := col.lost[version]; !ok || have != value || m.expired(version) {
				m.fail("row %v has %s@%d by a change of options: %s", key, name, version, shown(res.Row))
			}
			col.shown[version] = value
			delete(col.lost, version)
			m.counts["brought back"]++
		}
	}
	for name, col := range r.columns {
		col.settle(&m.settings)
		if !maps.Equal(col.shown, found[name]) {
			m.fail("row %v, column %s: shows %v; the model has %v", key, name, found[name], col.shown)
		}
		// What could be shown and is not has been collected.
		oldest := int64(-1)
		if len(col.shown) == m.versions {
			oldest = slices.Min(slices.Collect(maps.Keys(col.shown)))
		}
		maps.DeleteFunc(col.lost, func(version int64, _ any) bool { return version > oldest && !m.expired(version) })
	}
}
