package main

// This file is the command copy: the rows of an export's source, given to an import's target.

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/flagstone-db/flagstone/cmd/flagstone/bulkio"
	"github.com/flagstone-db/flagstone/cmd/flagstone/rowfile"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
)

type copyCommand struct {
	ofTable
	Endpoint   string        `placeholder:"URL" help:"The Table Store endpoint that has the table, such as http://127.0.0.1:8087, and not the folder --dir."`
	ToDir      string        `name:"to-dir" type:"path" placeholder:"DIR" help:"The folder to copy into, or that has the access key of --to-endpoint. If not given, --dir."`
	ToEndpoint string        `name:"to-endpoint" placeholder:"URL" help:"The endpoint to copy to, and not the folder --to-dir."`
	ToInstance string        `name:"to-instance" placeholder:"NAME" help:"The instance to copy to. If not given, that of the table."`
	ToTable    string        `name:"to-table" placeholder:"NAME" help:"The name of the copy. If not given, that of the table."`
	Progress   time.Duration `default:"5s" placeholder:"DURATION" help:"Say how far it is so often, 0 for never; on a terminal, all the time. ${default} if not given."`
	ofWriting
}

// Help is the long help of the command.
func (copyCommand) Help() string {
	return `The copy has the key, the options and the rows of the table, with all versions and types. A table that is there already must have the same key, Time To Live and Max Versions; its rows that have no key of the table stay. A folder is read at one moment. An endpoint is not: each page of rows is read at its own.

The access key of --endpoint is in FLAGSTONE_ACCESS_KEY_ID and FLAGSTONE_ACCESS_KEY_SECRET, or in --dir; that of --to-endpoint is in FLAGSTONE_TO_ACCESS_KEY_ID and FLAGSTONE_TO_ACCESS_KEY_SECRET, or else in these places, with --to-dir.

  flagstone copy orders --endpoint http://127.0.0.1:8087 --to-endpoint http://127.0.0.1:8087 --to-table orders2
  flagstone copy orders --to-endpoint https://i.cn-hangzhou.ots.aliyuncs.com --to-instance i --rate 5000 --state copy.state`
}

// places are the table and its copy.
func (p *copyCommand) places() (from, to ofFiles, err error) {
	from = ofFiles{ofTable: p.ofTable, Endpoint: p.Endpoint, Progress: p.Progress}
	to = from
	to.Endpoint, to.second = p.ToEndpoint, true
	for _, set := range []struct {
		at   *string
		text string
	}{{&to.Dir, p.ToDir}, {&to.Instance, p.ToInstance}, {&to.Table, p.ToTable}} {
		if set.text != "" {
			*set.at = set.text
		}
	}
	if from.Endpoint == "" && to.Endpoint == "" && place(from.Dir) == place(to.Dir) {
		return from, to, misuse("a copy from the folder %s to itself; serve it, and copy at its endpoint", from.Dir)
	}
	if from.Endpoint == to.Endpoint && from.Instance == to.Instance && from.Table == to.Table && from.Endpoint != "" {
		return from, to, misuse("a copy of table %s to itself; give --to-table", from.Table)
	}
	return from, to, nil
}

// wideOffset is the Max Version Offset of a table that rows are copied to: every version is inside of it.
const wideOffset = 4_000_000_000

// Run copies.
func (p *copyCommand) Run(ctx context.Context, c *output) (err error) {
	from, to, err := p.places()
	if err != nil {
		return err
	}
	m := importCommand{ofFiles: to, ofWriting: p.ofWriting, Spread: 1, Delimiter: ","}
	if err := m.check(); err != nil {
		return err
	}
	unlock, err := m.lock()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	table, err := from.describe(ctx)
	if err != nil {
		return err
	}
	offset := table.MaxVersionOffset
	table.Name, table.MaxVersionOffset = to.Table, wideOffset
	if err := to.makeLike(ctx, table); err != nil {
		return err
	}
	if err := p.rows(ctx, c, &from, &m); err != nil {
		return err
	}
	table.MaxVersionOffset = offset
	if err := to.alter(ctx, table); err != nil {
		return fmt.Errorf("all rows are copied, and the options of table %s are not: %w", to.Table, err)
	}
	return nil
}

// makeLike makes a table, without a stream, or gives its Max Version Offset to one that is there.
func (a *ofFiles) makeLike(ctx context.Context, like *instances.Table) error {
	bare := *like
	bare.StreamHours = 0
	there, err := a.describe(ctx)
	switch {
	case errors.Is(err, instances.ErrNotFound) || codeOf(err) == ots.CodeObjectNotExist:
		return a.make(ctx, &bare)
	case err != nil:
		return err
	case !slices.Equal(there.Key, like.Key):
		return fmt.Errorf("table %s is there, with the key %s, and not %s; give another --to-table", a.Table, keyColumns(there.Key), keyColumns(like.Key))
	case there.TimeToLive != like.TimeToLive || there.MaxVersions != like.MaxVersions:
		return fmt.Errorf("table %s is there, with a Time To Live of %s and %d versions, and not %s and %d; make them equal by 'flagstone table alter', or give another --to-table",
			a.Table, ttlText(there.TimeToLive), there.MaxVersions, ttlText(like.TimeToLive), like.MaxVersions)
	case there.MaxVersionOffset == like.MaxVersionOffset:
		return nil
	}
	return a.alter(ctx, &bare)
}

// rows copies the rows.
func (p *copyCommand) rows(ctx context.Context, c *output, from *ofFiles, m *importCommand) (err error) {
	source, err := from.source(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.close()) }()
	where := from.Endpoint
	if where == "" {
		where = place(from.Dir)
	}
	name := fmt.Sprintf("table %s of instance %s at %s", from.Table, from.Instance, where)
	m.Files = []string{name}
	target, closeTarget, err := m.target(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeTarget()) }()
	in := bulkio.Input{Identity: bulkio.Identity{Name: name}, Open: func(at rowfile.Position) (rowfile.Reader, error) {
		return newTableReader(ctx, source, from.Table, at)
	}}
	im := bulkio.Import{Target: target, Progress: m.progress(c, "copied"), Inputs: []bulkio.Input{in}}
	if im.State, err = m.state(target, im.Inputs, nil); err != nil {
		return err
	}
	return m.run(ctx, c, &im, target)
}

// tableReader reads the rows of a table as those of a file are read.
type tableReader struct {
	next    func() ([]rowfile.Row, error, bool)
	stop    func()
	page    []rowfile.Row
	at      rowfile.Position
	encoded []byte // key of the newest row
}

// newTableReader reads the rows of a table that come after a place.
func newTableReader(ctx context.Context, source rowSource, table string, after rowfile.Position) (*tableReader, error) {
	query := instances.Query{Table: table, MaxVersions: math.MaxInt32}
	r := &tableReader{at: after}
	if after.Key != "" {
		key, err := hex.DecodeString(after.Key)
		if err == nil {
			var values []row.Value
			values, err = row.DecodeKey(key, len(source.key()))
			for _, v := range values {
				query.Next = append(query.Next, instances.Value{Value: v})
			}
		}
		if err != nil {
			return nil, fmt.Errorf("the state has no valid key: %w", err)
		}
	}
	ranges, err := source.ranges(&query)
	if err != nil {
		return nil, err
	}
	r.next, r.stop = iter.Pull2(func(yield func([]rowfile.Row, error) bool) {
		err := eachPage(ctx, ranges, func(page []rowfile.Row) error {
			if !yield(page, nil) {
				return io.EOF
			}
			return nil
		})
		if err != nil && err != io.EOF {
			yield(nil, err)
		}
	})
	return r, nil
}

// Next reads the next row.
func (r *tableReader) Next(out *rowfile.Row) (err error) {
	for {
		for len(r.page) == 0 {
			page, err, more := r.next()
			if err != nil {
				return err
			}
			if !more {
				return io.EOF
			}
			r.page = page
		}
		*out, r.page = r.page[0], r.page[1:]
		if r.encoded, err = row.AppendKey(r.encoded[:0], len(out.Key), out.Key...); err != nil {
			return err
		}
		key := hex.EncodeToString(r.encoded)
		if key == r.at.Key { // the row behind which another run has ended
			continue
		}
		r.at = rowfile.Position{Offset: r.at.Offset + 1, Line: r.at.Line + 1, Key: key}
		out.Line = r.at.Line
		return nil
	}
}

// Position is the place behind the row that was read last.
func (r *tableReader) Position() rowfile.Position { return r.at }

// Size is 0: the number of rows is unknown.
func (r *tableReader) Size() int64 { return 0 }

// Close ends the readers.
func (r *tableReader) Close() error {
	r.stop()
	return nil
}
