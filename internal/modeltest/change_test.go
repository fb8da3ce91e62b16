package modeltest

// A request to change one row, as a list of calls that both sides get: the
// engine through a RowChange, the model by folding them into a mutation.

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

type callKind uint8

const (
	callPut callKind = iota
	callPutRow
	callDeleteRow
	callDeleteColumn
	callDeleteVersion
)

// call is one call of a method of RowChange.
type call struct {
	kind    callKind
	column  string
	version int64
	value   row.Value
}

func (c call) String() string {
	switch c.kind {
	case callPut:
		return fmt.Sprintf("Put(%.20q, %d, %s %.60s)", c.column, c.version, c.value.Type(), c.value)
	case callPutRow:
		return "PutRow()"
	case callDeleteRow:
		return "DeleteRow()"
	case callDeleteColumn:
		return fmt.Sprintf("DeleteColumn(%.20q)", c.column)
	}
	return fmt.Sprintf("DeleteVersion(%.20q, %d)", c.column, c.version)
}

// change is what is to be done to one row.
type change struct {
	row      *mrow
	calls    []call
	mutation mutation
}

func (c *change) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s:", c.row.table.name, showKey(c.row.key))
	for _, call := range c.calls {
		b.WriteString(" ")
		b.WriteString(call.String())
	}
	return b.String()
}

// on makes the calls.
func (c *change) on(rc *flagstone.RowChange) {
	for _, call := range c.calls {
		switch call.kind {
		case callPut:
			rc.Put(call.column, call.version, call.value)
		case callPutRow:
			rc.PutRow()
		case callDeleteRow:
			rc.DeleteRow()
		case callDeleteColumn:
			rc.DeleteColumn(call.column)
		case callDeleteVersion:
			rc.DeleteVersion(call.column, call.version)
		}
	}
}

// fold works out what the calls come to: they act one after the other, and what
// a later one undoes is gone.
func (c *change) fold() {
	mu := mutation{}
	for _, call := range c.calls {
		switch call.kind {
		case callPutRow:
			mu = mutation{deleteRow: true, putRow: true}
			continue
		case callDeleteRow:
			mu = mutation{deleteRow: true}
			continue
		}
		col := mu.column(call.column)
		if call.kind == callDeleteColumn {
			*col = columnChange{name: call.column, trim: noTrim, deleted: true}
			continue
		}
		col.puts = slices.DeleteFunc(col.puts, func(p *put) bool { return p.version == call.version })
		col.removed = slices.DeleteFunc(col.removed, func(v int64) bool { return v == call.version })
		if call.kind == callPut {
			col.puts = append(col.puts, &put{version: call.version, value: call.value})
		} else {
			col.removed = append(col.removed, call.version)
		}
	}
	c.mutation = mu
}

// stamp gives the puts at flagstone.Now, which were just made, their version.
func (c *change) stamp(now int64) {
	for i := range c.calls {
		if call := &c.calls[i]; call.kind == callPut && call.version == flagstone.Now {
			call.version = now
		}
	}
	c.fold()
}

func (mu *mutation) column(name string) *columnChange {
	for i := range mu.columns {
		if mu.columns[i].name == name {
			return &mu.columns[i]
		}
	}
	mu.columns = append(mu.columns, columnChange{name: name, trim: noTrim})
	return &mu.columns[len(mu.columns)-1]
}

// refusal is the error with which the change must be refused, nil if it is
// right. limit is the first version that lies too far ahead of the clock.
func (c *change) refusal(limit int64) error {
	var err error
	for _, col := range c.mutation.columns {
		if col.name == "" || len(col.name) > 1024 {
			return flagstone.ErrInvalid
		}
		for _, v := range col.removed {
			if v < 0 || v == math.MaxInt64 {
				return flagstone.ErrInvalid
			}
		}
		for _, p := range col.puts {
			if p.version < 0 || p.version == math.MaxInt64 {
				return flagstone.ErrInvalid
			}
			if p.version >= limit {
				err = flagstone.ErrVersionOutOfRange
			}
		}
	}
	return err
}

// trim works out which older versions go with the deletes of single versions:
// if the column shows its full number of versions, deleting one that it shows,
// or one below them, hides all below the smallest shown. What it shows is
// judged by the expiry watermark, not the clock.
func (c *change) trim(watermark int64) {
	if c.mutation.deleteRow {
		return
	}
	for i := range c.mutation.columns {
		col := &c.mutation.columns[i]
		if len(col.removed) == 0 {
			continue
		}
		shown := c.row.trimView(col.name, watermark)
		if int64(len(shown.puts)) < shown.limit {
			continue
		}
		smallest := shown.puts[shown.limit-1].version
		for _, removed := range col.removed {
			if removed <= smallest || slices.ContainsFunc(shown.puts, func(p *put) bool { return p.version == removed }) {
				col.trim = smallest - 1
			}
		}
	}
}

// trimView is what a delete of single versions takes the column to show.
func (r *mrow) trimView(name string, watermark int64) columnAnswer {
	v := view{
		at: math.MaxUint64, event: math.MaxUint64,
		limit: r.table.options.MaxVersions, ttl: -1, watermark: watermark,
	}
	return r.now.column(name).answer(&v)
}

// showCell prints a cell that was read.
func showCell(c *row.Cell) string {
	v, err := row.PayloadValue(c.Type, c.Value)
	if err != nil {
		return fmt.Sprintf("%.20q@%d: %v", c.Column, c.Version, err)
	}
	return fmt.Sprintf("%.20q@%d#%d=%.60s", c.Column, c.Version, c.Seq, v)
}

// showOptions prints what a read asks for.
func showOptions(o *flagstone.ReadOptions) string {
	return fmt.Sprintf("columns %.20q (nil: %v), from %.20q to %.20q, versions %d to %d, at most %d",
		o.Columns, o.Columns == nil, o.StartColumn, o.EndColumn, o.MinVersion, o.MaxVersion, o.MaxVersions)
}

func showKey(key []row.Value) string {
	parts := make([]string, len(key))
	for i, v := range key {
		parts[i] = v.String()
	}
	return "(" + strings.Join(parts, ", ") + ")"
}

// String prints a mutation for failure messages.
func (mu *mutation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "#%d", mu.at)
	switch {
	case mu.putRow:
		b.WriteString(" put-row")
	case mu.deleteRow:
		b.WriteString(" delete-row")
	}
	for _, c := range mu.columns {
		fmt.Fprintf(&b, " %.20q{", c.name)
		if c.deleted {
			b.WriteString(" delete-column")
		}
		for _, v := range c.removed {
			fmt.Fprintf(&b, " delete@%d", v)
		}
		if c.trim != noTrim {
			fmt.Fprintf(&b, " trim<=%d", c.trim)
		}
		for _, p := range c.puts {
			fmt.Fprintf(&b, " put@%d=%.40s", p.version, p.value)
		}
		b.WriteString(" }")
	}
	return b.String()
}
