package main

// This file is the command stream: the streams of tables at an endpoint, and their changes.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"

	"github.com/flagstone-db/flagstone/cmd/flagstone/statefile"
	"github.com/flagstone-db/flagstone/consumer"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/instances/admin"
)

type streamCommand struct {
	List    streamListCommand    `cmd:"" help:"List streams: their retention, and their shards."`
	Tail    streamTailCommand    `cmd:"" help:"Print the changes of a table, and go on with --follow."`
	Readers streamReadersCommand `cmd:"" help:"List who reads a stream: tunnels, and access keys that read without one."`
}

// Help is the long help of the command.
func (streamCommand) Help() string {
	return `A table has a stream if it was made or changed with one, by an SDK, or if a tunnel was created for its changes.

  flagstone stream list --endpoint http://127.0.0.1:8087
  flagstone stream tail orders --endpoint http://127.0.0.1:8087 --follow --json --state orders.position
  flagstone stream readers orders`
}

// atEndpoint names an instance at an endpoint.
type atEndpoint struct {
	inInstance
	Endpoint string `env:"FLAGSTONE_ENDPOINT" placeholder:"URL" help:"The Table Store endpoint, such as http://127.0.0.1:8087. If not given, that of the server that has --dir open. The access key is in FLAGSTONE_ACCESS_KEY_ID and FLAGSTONE_ACCESS_KEY_SECRET, or in --dir."`
}

// locate finds the endpoint if none is named.
func (a *atEndpoint) locate(ctx context.Context) (err error) {
	if a.Endpoint != "" {
		return nil
	}
	a.Endpoint, err = a.endpoint(ctx)
	if errors.Is(err, admin.ErrNoServer) {
		return fmt.Errorf("%w for the store in %s; name it with --dir, or another with --endpoint", admin.ErrNoServer, a.Dir)
	}
	return err
}

type streamListCommand struct {
	atEndpoint
	Table string `arg:"" optional:"" help:"Only the stream of this table."`
	JSON  bool   `name:"json" help:"Print the list as JSON Lines."`
}

// streamLine is a stream as JSON.
type streamLine struct {
	Table  string `json:"table"`
	Stream string `json:"stream"`
	Hours  int32  `json:"hours"`
	Shards int    `json:"shards"` // those that have ended included
	Open   int    `json:"open"`   // those that have not
	Made   string `json:"made"`
}

// Run prints the streams.
func (l *streamListCommand) Run(ctx context.Context, c *output) error {
	if err := l.locate(ctx); err != nil {
		return err
	}
	client, err := endpointClient(l.Endpoint, l.Instance, l.usualKeys(), 1, requestPatience)
	if err != nil {
		return err
	}
	request := new(tablestore.ListStreamRequest)
	if l.Table != "" {
		request.TableName = &l.Table
	}
	list, err := client.ListStream(request)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	if !l.JSON {
		fmt.Fprintln(w, "TABLE\tKEPT\tSHARDS\tOPEN\tMADE\tSTREAM")
	}
	for _, s := range list.Streams {
		line, err := describeStream(ctx, client, &s)
		switch {
		case err != nil:
			return fmt.Errorf("stream of table %s: %w", *s.TableName, err)
		case l.JSON:
			err = c.jsonLine(line)
		default:
			_, err = fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\n", line.Table, streamText(line.Hours), line.Shards, line.Open, line.Made, line.Stream)
		}
		if err != nil {
			return err
		}
	}
	return w.Flush()
}

func describeStream(ctx context.Context, client *tablestore.TableStoreClient, s *tablestore.Stream) (*streamLine, error) {
	line := &streamLine{Table: *s.TableName, Stream: string(*s.Id), Made: moment(s.CreationTime / 1000)}
	parents := map[tablestore.ShardId]bool{}
	request := &tablestore.DescribeStreamRequest{StreamId: s.Id}
	for ctx.Err() == nil {
		d, err := client.DescribeStream(request)
		if err != nil {
			return nil, err
		}
		line.Hours, line.Shards = d.ExpirationTime, line.Shards+len(d.Shards)
		for _, shard := range d.Shards {
			for _, parent := range [...]*tablestore.ShardId{shard.FatherShard, shard.MotherShard} {
				if parent != nil {
					parents[*parent] = true
				}
			}
		}
		if request.InclusiveStartShardId = d.NextShardId; d.NextShardId == nil {
			line.Open = line.Shards - len(parents)
			return line, nil
		}
	}
	return nil, context.Cause(ctx)
}

type streamReadersCommand struct {
	ofTable
	JSON bool `name:"json" help:"Print the stream and its readers as JSON."`
}

// Help is the long help of the command.
func (streamReadersCommand) Help() string {
	return `It asks the server that has --dir open. A tunnel keeps its place in the server. Of a reader that keeps its place itself, in an iterator, the server knows only what it gave to the access key since the server was started, and forgets the readers that asked long ago if there are thousands.`
}

// Run prints the readers.
func (r *streamReadersCommand) Run(ctx context.Context, c *output) error {
	return r.with(ctx, toRead, func(home admin.Admin) error {
		s, err := home.Streams(ctx, r.Instance, r.Table)
		if err != nil {
			return err
		}
		if r.JSON {
			return c.json(s)
		}
		w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "READER\tSHARD\tWAS GIVEN\tALL\tASKED")
		for _, t := range s.Tunnels {
			for _, channel := range t.Channels {
				fmt.Fprintf(w, "tunnel %s\t%s\t%s\t%t\t-\n", t.Name, channel.ID, momentOr(channel.Millis), channel.Status == "TERMINATED")
			}
		}
		if s.Stream != nil {
			for _, reader := range s.Stream.Readers {
				fmt.Fprintf(w, "%s\t%s\t%s\t%t\t%s\n", lineText(reader.Key), reader.Shard, momentOr(reader.GivenMillis), reader.All, moment(reader.AskedMillis))
			}
		}
		return w.Flush()
	})
}

// momentOr is a moment, and - for none.
func momentOr(millis int64) string {
	if millis == 0 {
		return "-"
	}
	return moment(millis)
}

type streamTailCommand struct {
	atEndpoint
	Table  string         `arg:"" predictor:"table" help:"The table."`
	Follow bool           `short:"f" help:"Wait for further changes, until the command is interrupted or what reads its output ends."`
	JSON   bool           `name:"json" help:"Print a line of JSON for each change. docs/streams.md describes it."`
	Since  *time.Duration `placeholder:"DURATION" help:"Leave out changes that are older, such as 10m. If not given, begin at the oldest one."`
	State  string         `type:"path" placeholder:"FILE" help:"Keep the position in this file, and begin there if it exists. Changes behind the last position that was kept are printed again."`
}

// Help is the long help of the command.
func (streamTailCommand) Help() string {
	return `Prints each change at least once. The changes of a row come in their order: a shard comes after its parents, as partitions are split and merged. Changes of different shards come in no order; compare their times.

The position is kept in --state about every second and at the end, also when the command is interrupted. If it is killed, it prints some changes again. A file PATH.lock beside it keeps a second command away. If changes have expired since the position was kept, the command says so and fails: read the table again, and remove the file.

The command fails if the endpoint does not answer at the beginning. If it goes away later, the command says so and waits for up to 5 minutes.

  flagstone stream tail orders
  flagstone stream tail orders --since 10m --follow
  flagstone stream tail orders --follow --json --state orders.position`
}

// positionKind begins the file of --state.
const positionKind = "stream position 1"

// tailState is what the file has.
type tailState struct {
	Table    string             `json:"table"` // and its instance and endpoint
	Position *consumer.Position `json:"position"`
}

// Run prints changes.
func (s *streamTailCommand) Run(ctx context.Context, c *output) error {
	if s.Since != nil && *s.Since <= 0 {
		return misuse("--since is %s; give a time above 0", *s.Since)
	}
	if err := s.locate(ctx); err != nil {
		return err
	}
	client, err := endpointClient(s.Endpoint, s.Instance, s.usualKeys(), 1, requestPatience)
	if err != nil {
		return err
	}
	printer := &changePrinter{json: s.JSON, out: bufio.NewWriterSize(c.out, 64<<10)}
	options := consumer.Options{Table: s.Table, Follow: s.Follow, Handle: printer.print, Retry: onceThen((&waiting{out: c.err}).retry)}
	if s.Since != nil {
		options.Since = time.Now().Add(-*s.Since)
	}
	if s.State != "" {
		lock, err := statefile.Lock(s.State)
		if err != nil {
			return err
		}
		defer lock.Close()
		if err := s.resume(&options); err != nil {
			return err
		}
	}
	if f, ok := c.file(); ok && s.Follow {
		read, release := withReader(ctx, f)
		defer release()
		ctx = read
	}
	err = consumer.Run(ctx, client, options)
	if s.Follow && ctx.Err() != nil && err == context.Cause(ctx) {
		return nil // interrupted, as is meant, or its reader is gone, and nothing else failed
	}
	return err
}

// onceThen sends the first request once, so that a wrong address is told at once, and further ones with retry. One caller
// sends at a time.
func onceThen(retry func(context.Context, func() error) error) func(context.Context, func() error) error {
	begun := false
	return func(ctx context.Context, request func() error) error {
		if begun {
			return retry(ctx, request)
		}
		begun = true
		return request()
	}
}

// resume loads the position and has it kept.
func (s *streamTailCommand) resume(options *consumer.Options) error {
	state := tailState{Table: s.Table + " of instance " + s.Instance + " at " + s.where(s.Endpoint)}
	var kept tailState
	switch err := statefile.Read(s.State, positionKind, &kept); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case kept.Table != state.Table || kept.Position == nil:
		return fmt.Errorf("%s is the position in table %s, and not in table %s; give another --state", s.State, kept.Table, state.Table)
	default:
		options.From = kept.Position
	}
	options.Save = func(p *consumer.Position) error {
		state.Position = p
		return statefile.Write(s.State, positionKind, &state)
	}
	return nil
}

// changePrinter prints changes.
type changePrinter struct {
	json bool
	out  *bufio.Writer
}

// changeLine is a change as JSON.
type changeLine struct {
	Time   int64                `json:"time"` // of the commit, microseconds since the epoch
	Shard  string               `json:"shard"`
	Action string               `json:"action"` // put, update or delete
	Key    []instances.KeyValue `json:"key"`
	Cells  []changedCell        `json:"columns"`
	Before []changedCell        `json:"before,omitempty"` // if the stream records it
}

// changedCell is a cell that was put, or deleted: in a version, or in all.
type changedCell struct {
	Name    string           `json:"name"`
	Version *int64           `json:"version,omitempty"`
	Value   *instances.Value `json:"value,omitempty"`
	Deleted string           `json:"deleted,omitempty"` // version or all
}

// print prints a page, and hands it on before its position is kept.
func (p *changePrinter) print(_ context.Context, shard string, records []*tablestore.StreamRecord) error {
	for _, r := range records {
		line, err := changeOf(shard, r)
		if err != nil {
			return err
		}
		if p.json {
			err = (&output{out: p.out}).jsonLine(line)
		} else {
			_, err = p.out.WriteString(line.text())
		}
		if err != nil {
			return err
		}
	}
	return p.out.Flush()
}

func changeOf(shard string, r *tablestore.StreamRecord) (*changeLine, error) {
	line := &changeLine{
		Time: r.Info.Timestamp, Shard: shard,
		Action: map[tablestore.ActionType]string{tablestore.AT_Put: "put", tablestore.AT_Update: "update", tablestore.AT_Delete: "delete"}[r.Type],
	}
	for _, k := range r.PrimaryKey.PrimaryKeys {
		v, err := fromSDK(k.Value)
		if err != nil {
			return nil, fmt.Errorf("key column %s: %w", k.ColumnName, err)
		}
		line.Key = append(line.Key, instances.KeyValue{Name: k.ColumnName, Value: instances.Value{Value: v}})
	}
	var err error
	if line.Cells, err = changedCells(r.Columns); err == nil {
		line.Before, err = changedCells(r.OriginColumns)
	}
	return line, err
}

func changedCells(columns []*tablestore.RecordColumn) ([]changedCell, error) {
	cells := make([]changedCell, 0, len(columns))
	for _, c := range columns {
		cell := changedCell{Name: *c.Name, Version: c.Timestamp}
		switch c.Type {
		case tablestore.RCT_DeleteOneVersion:
			cell.Deleted = "version"
		case tablestore.RCT_DeleteAllVersions:
			cell.Deleted, cell.Version = "all", nil
		default:
			v, err := fromSDK(c.Value)
			if err != nil {
				return nil, fmt.Errorf("column %s: %w", *c.Name, err)
			}
			cell.Value = &instances.Value{Value: v}
		}
		cells = append(cells, cell)
	}
	return cells, nil
}

// text is a line for people: time, action, key, and columns, with a minus if they were deleted.
func (l *changeLine) text() string {
	fields := []string{time.UnixMicro(l.Time).UTC().Format("2006-01-02T15:04:05.000000Z"), l.Action}
	for _, k := range l.Key {
		fields = append(fields, lineText(k.Value.Text()))
	}
	var plain outputOptions
	for _, c := range l.Cells {
		switch name := lineText(c.Name); c.Deleted {
		case "":
			fields = append(fields, name+"="+plain.cellText(&instances.Cell{Value: *c.Value}))
		case "all":
			fields = append(fields, "-"+name)
		default:
			fields = append(fields, "-"+name+"@"+strconv.FormatInt(*c.Version, 10))
		}
	}
	return strings.Join(fields, "  ") + "\n"
}
