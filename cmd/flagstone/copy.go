package main

// This file is the command copy: the rows of an export's source, given to an import's target.

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/flagstone-db/flagstone/cmd/flagstone/bulkio"
	"github.com/flagstone-db/flagstone/cmd/flagstone/rowfile"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
)

type copyCommand struct {
	ofTable
	Endpoint   string        `placeholder:"URL" help:"The Table Store endpoint that has the table, such as http://127.0.0.1:8087, and not the folder --dir. If not given, and a server has --dir open, that of the server."`
	ToDir      string        `name:"to-dir" type:"path" placeholder:"DIR" help:"The folder to copy into, or that has the access key of --to-endpoint. If not given, --dir."`
	ToEndpoint string        `name:"to-endpoint" placeholder:"URL" help:"The endpoint to copy to, and not the folder --to-dir. If not given, and a server has that folder open, that of the server."`
	ToInstance string        `name:"to-instance" placeholder:"NAME" help:"The instance to copy to. If not given, that of the table."`
	ToTable    string        `name:"to-table" placeholder:"NAME" help:"The name of the copy. If not given, that of the table; it must be given between two addresses."`
	Progress   time.Duration `default:"5s" placeholder:"DURATION" help:"Say how far it is so often, 0 for never; on a terminal, all the time. ${default} if not given."`
	ofWriting
}

// Help is the long help of the command.
func (copyCommand) Help() string {
	return `These are copied: the key columns, Time To Live, Max Versions, Max Version Offset, whether there is a stream and for how many hours (24 at most), and the rows with all versions and types. Nothing else is: no records of the stream, tunnels, indexes, access keys or other settings. A folder is read at one moment. An endpoint is not: each page of rows is read at its own.

A table that is there already must have the same key, Time To Live and Max Versions. Its rows whose keys the source has are replaced, and so is its Max Version Offset. Its stream and its other rows stay. Until all rows are copied, the target has no Time To Live and a Max Version Offset of 4000000000 s; a table with both counts as an incomplete copy.

The access key of --endpoint is in FLAGSTONE_ACCESS_KEY_ID and FLAGSTONE_ACCESS_KEY_SECRET, or in --dir; that of --to-endpoint is in FLAGSTONE_TO_ACCESS_KEY_ID and FLAGSTONE_TO_ACCESS_KEY_SECRET, or in --to-dir if that is given, or where that of --endpoint is.

  flagstone copy orders --endpoint http://127.0.0.1:8087 --to-endpoint http://127.0.0.1:8087 --to-table orders2
  flagstone copy orders --to-endpoint https://i.cn-hangzhou.ots.aliyuncs.com --to-instance i --rate 5000 --state copy.state`
}

// places are the table and its copy.
func (p *copyCommand) places(ctx context.Context, c *output) (from, to ofFiles, err error) {
	from = ofFiles{ofTable: p.ofTable, Endpoint: p.Endpoint, Progress: p.Progress}
	to = from
	to.Endpoint, to.keys = p.ToEndpoint, []keyPlace{environmentKey("FLAGSTONE_TO_")}
	if p.ToDir != "" {
		to.keys = append(to.keys, folderKey(p.ToDir), environmentKey("FLAGSTONE_"))
	} else {
		to.keys = append(to.keys, p.usualKeys()...)
	}
	for _, set := range []struct {
		at   *string
		text string
	}{{&to.Dir, p.ToDir}, {&to.Instance, p.ToInstance}, {&to.Table, p.ToTable}} {
		if set.text != "" {
			*set.at = set.text
		}
	}
	err = from.locate(ctx, c)
	folders := p.Endpoint == "" && p.ToEndpoint == ""
	if folders && samePlace(from.Dir, to.Dir) && err == nil {
		to.Endpoint, to.at = from.Endpoint, from.at // it has one if the folder has a server
		if to.Endpoint == "" {
			err = misuse("a copy from the folder %s to itself: one process cannot open it twice; start 'flagstone serve --dir %s' first, and copy while it runs", from.Dir, from.Dir)
		}
	}
	if err == nil {
		err = to.locate(ctx, c)
	}
	if err == nil && p.ToDir != "" && to.Endpoint == "" && !exists(filepath.Join(to.Dir, "CURRENT")) {
		err = fmt.Errorf("no store in %s; name one with --to-dir, or make one with 'flagstone instance create demo --dir %s'", to.Dir, to.Dir)
	}
	if err != nil {
		return from, to, err
	}
	if from.Endpoint != "" && to.Endpoint != "" && from.Table == to.Table && strings.EqualFold(from.Instance, to.Instance) {
		switch {
		case host(from.Endpoint) == host(to.Endpoint):
			return from, to, misuse("a copy of table %s to itself; give --to-table", from.Table)
		case p.ToTable == "" && !folders: // servers of two folders are two
			return from, to, misuse("%s and %s may be one server, and the copy would be of table %s to itself; if they are not, give --to-table %s", from.Endpoint, to.Endpoint, from.Table, from.Table)
		}
	}
	return from, to, nil
}

// host is the host and port of an address. All names of this machine's loopback are one.
func host(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil {
		return endpoint
	}
	name, port := strings.ToLower(u.Hostname()), cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	if ip := net.ParseIP(name); name == "localhost" || ip != nil && ip.IsLoopback() {
		name = "loopback"
	}
	return net.JoinHostPort(name, port)
}

// samePlace reports whether two names are of one folder or file.
func samePlace(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return place(a) == place(b) || errX == nil && errY == nil && os.SameFile(x, y)
}

// wideOffset is the Max Version Offset, in seconds, of a table that rows are copied to. It lets in versions from 1970 to
// about 2150. An endpoint refuses later ones, unless the clocks of both have come near them.
const wideOffset = 4_000_000_000

// Run copies.
func (p *copyCommand) Run(ctx context.Context, c *output) (err error) {
	from, to, err := p.places(ctx, c)
	if err != nil {
		return err
	}
	m := importCommand{ofFiles: to, ofWriting: p.ofWriting, Spread: 1, Delimiter: ","}
	if err := m.check(); err != nil {
		return err
	}
	unlock, err := lockState(m.State)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if p.Rejects != "" && (p.State == "" || !exists(p.State)) { // before the target is made or altered
		if err := bulkio.CheckFresh(p.Rejects); err != nil {
			return err
		}
	}
	// Both folders are open before the target is made or altered, so that a lock of another process changes nothing.
	release, err := from.hold(ctx, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	releaseTarget, err := m.hold(ctx, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, releaseTarget()) }()
	table, err := from.describe(ctx)
	if err != nil {
		return err
	}
	m.Files = []string{from.named(table.CreatedMillis)}
	if err := p.prepare(ctx, c, &m, table); err != nil {
		return err
	}
	if err := p.rows(ctx, c, &from, &m); err != nil {
		return leaving(err, "table %s has no Time To Live, and a Max Version Offset of %d s, until a copy is complete", to.Table, wideOffset)
	}
	if err := m.alter(ctx, table); err != nil {
		return leaving(err, "all rows are copied, and the options of table %s are not", to.Table)
	}
	return nil
}

// prepare makes the target, or changes the options of one that is there, so that it takes every cell: without a Time To
// Live none expires on the way. It also chooses the stream hours of like, which the target gets at the end. If the target
// or the state does not fit, it changes nothing.
func (p *copyCommand) prepare(ctx context.Context, c *output, m *importCommand, like *instances.Table) error {
	wide := *like
	wide.Name, wide.StreamHours, wide.TimeToLive, wide.MaxVersionOffset = m.Table, 0, -1, wideOffset
	there, err := m.describe(ctx)
	switch {
	case errors.Is(err, instances.ErrNotFound) || codeOf(err) == ots.CodeObjectNotExist:
		if p.State != "" && exists(p.State) {
			return fmt.Errorf("%s says how far a copy is, and its target, table %s, is not there; remove the file to copy from the beginning", p.State, m.Table)
		}
		chooseStream(c, like, &instances.Table{Name: m.Table})
		return m.make(ctx, &wide)
	case err != nil:
		return err
	case !slices.Equal(there.Key, like.Key):
		return fmt.Errorf("table %s is there, with the key %s, and not %s; give another --to-table", m.Table, keyColumns(there.Key), keyColumns(like.Key))
	}
	incomplete := there.TimeToLive == wide.TimeToLive && there.MaxVersionOffset == wide.MaxVersionOffset
	if there.MaxVersions != like.MaxVersions || there.TimeToLive != like.TimeToLive && !incomplete {
		return fmt.Errorf("table %s is there, with a Time To Live of %s and %d versions, and not %s and %d; make them equal by 'flagstone table alter', or give another --to-table",
			m.Table, ttlText(there.TimeToLive), there.MaxVersions, ttlText(like.TimeToLive), like.MaxVersions)
	}
	if err := m.fits(ctx, c, incomplete); err != nil {
		return err
	}
	chooseStream(c, like, there)
	if incomplete {
		return nil
	}
	return m.alter(ctx, &wide)
}

// chooseStream sets the hours that the stream of the target gets at the end, 0 if the target has one already: a stream
// cannot be changed. One that a tunnel has made has more hours than a table can be given.
func chooseStream(c *output, like, there *instances.Table) {
	most := ots.Documented().StreamExpirationHours
	switch {
	case like.StreamHours == 0:
	case there.StreamHours != 0:
		if there.StreamHours != like.StreamHours {
			fmt.Fprintf(c.err, "flagstone: table %s keeps its stream of %d hours; that of the source has %d\n", there.Name, there.StreamHours, like.StreamHours)
		}
		like.StreamHours = 0
	case like.StreamHours > most:
		fmt.Fprintf(c.err, "flagstone: the stream of table %s will have %d hours, the most that a table can be given; that of the source has %d\n", there.Name, most, like.StreamHours)
		like.StreamHours = most
	}
}

// copyInput is the source as an import has it.
func (m *importCommand) copyInput() bulkio.Input {
	return bulkio.Input{Identity: bulkio.Identity{Name: m.Files[0]}}
}

// fits checks that the state, if there is one, is that of this copy. As long as it is not done, its target is incomplete:
// another one was made anew, and has not the rows that the state speaks of.
func (m *importCommand) fits(ctx context.Context, c *output, incomplete bool) error {
	if m.State == "" || !exists(m.State) {
		return nil
	}
	target, closeTarget, err := m.target(ctx, c)
	if err != nil {
		return err
	}
	s, err := m.state(target, []bulkio.Input{m.copyInput()})
	if err == nil && !s.Done() && !incomplete {
		err = fmt.Errorf("%s says how far a copy is, and its target, table %s, has other options than that copy left: it was made anew or altered; remove the file to copy from the beginning", m.State, m.Table)
	}
	return errors.Join(err, closeTarget())
}

// rows copies the rows.
func (p *copyCommand) rows(ctx context.Context, c *output, from *ofFiles, m *importCommand) (err error) {
	source, err := from.source(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.close()) }()
	target, closeTarget, err := m.target(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeTarget()) }()
	in := m.copyInput()
	in.Open = func(at rowfile.Position) (rowfile.Reader, error) { return newTableReader(ctx, source, from.Table, at) }
	im := bulkio.Import{Target: target, Progress: m.progress(c, "copied"), Inputs: []bulkio.Input{in}}
	if im.State, err = m.state(target, im.Inputs); err != nil {
		return err
	}
	return m.run(ctx, c, &im, target)
}

// tableReader reads the rows of a table as those of a file are read.
type tableReader struct {
	next    func() ([]rowfile.Row, error, bool)
	stop    func()
	marks   marks
	page    []rowfile.Row
	at      rowfile.Position
	encoded []byte // key of the newest row
}

// newTableReader reads the rows of a table that come after a place.
func newTableReader(ctx context.Context, source rowSource, table string, after rowfile.Position) (*tableReader, error) {
	query := instances.Query{Table: table, MaxVersions: math.MaxInt32}
	r := &tableReader{at: after}
	var err error
	if query.Next, err = keyOfState(after.Key, len(source.key())); err != nil {
		return nil, err
	}
	ranges, at, err := source.ranges(ctx, &query)
	if err != nil {
		return nil, err
	}
	r.marks = at
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

// keyOfState reads a key of so many columns as a state has it; "" is none.
func keyOfState(text string, columns int) (key []instances.Value, err error) {
	if text == "" {
		return nil, nil
	}
	encoded, err := hex.DecodeString(text)
	if err == nil {
		var values []row.Value
		values, err = row.DecodeKey(encoded, columns)
		for _, v := range values {
			key = append(key, instances.Value{Value: v})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the state has no valid key: %w", err)
	}
	return key, nil
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

// Share is about how much of the table has been read.
func (r *tableReader) Share() float64 { return r.marks.share(r.encoded) }

// Close ends the readers.
func (r *tableReader) Close() error {
	r.stop()
	return nil
}
