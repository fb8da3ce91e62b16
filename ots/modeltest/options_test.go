package modeltest

// This file holds the steps that change options. Smaller limits hide versions at once. Larger
// ones may bring back surplus or expired versions that are not collected yet, and no others.
// The test reads such versions at once; from then on they are certain.

import (
	"context"
	"maps"
	"slices"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
)

// deed is the effect of a transaction on a row, as values: the results of increments, and the
// versions that the clock gave.
type deed struct {
	key    id
	change ots.RowChange
}

// remember records the effect of a transaction.
func (m *machine) remember(tx *string, key id, c *ots.RowChange, sums map[string]sum) {
	if tx == nil {
		return
	}
	d := deed{key, *c}
	d.change.Row.Cells = slices.Clone(c.Row.Cells)
	for i := range d.change.Row.Cells {
		switch cell := &d.change.Row.Cells[i]; cell.Op {
		case ots.OpPut:
			if !cell.HasVersion {
				cell.Version, cell.HasVersion = m.now, true
			}
		case ots.OpIncrement:
			made := sums[cell.Name]
			*cell = ots.Cell{Name: cell.Name, Value: row.Integer(made.value), Version: made.version, HasVersion: true}
		}
	}
	m.open[key.p].done = append(m.open[key.p].done, d)
}

// alter changes options. The new options apply to the changes of open transactions.
func (m *machine) alter() {
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
	for p, tx := range m.open {
		tx.rows = m.rows.clone(p)
		for i := range tx.done {
			tx.rows.apply(&m.settings, tx.done[i].key, &tx.done[i].change)
		}
		for _, k := range numbers {
			m.getRow(&tx.id, tx.rows, id{p, k}, everything())
		}
	}
}

// adopt reads a row after a change of options, and takes over what the model could not know.
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
		// A version that could be visible and is not has been collected.
		oldest := int64(-1)
		if len(col.shown) == m.versions {
			oldest = slices.Min(slices.Collect(maps.Keys(col.shown)))
		}
		maps.DeleteFunc(col.lost, func(version int64, _ any) bool { return version > oldest && !m.expired(version) })
	}
}
