package main

// These commands show what is in the files of a store, and change nothing. All but the one for the tree take no lock:
// beside a server they show files as they are at the moment, and may fail where one is just being written.

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/instances/admin"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/sstable"
	"github.com/flagstone-db/flagstone/valuefile"
	"github.com/flagstone-db/flagstone/wal"
)

type inspectCommand struct {
	Tree      inspectTreeCommand      `cmd:"" help:"Show the levels of a table, with their files over the key range."`
	Manifest  inspectManifestCommand  `cmd:"" help:"Show what the manifest says: tables, partitions, files, the end of the log."`
	Log       inspectLogCommand       `cmd:"" help:"Show the records of the log."`
	TableFile inspectTableFileCommand `cmd:"" help:"Show a table file: its properties, and its rows."`
	ValueFile inspectValueFileCommand `cmd:"" help:"Show a value file: what is in it, and how much of it is referred to."`
}

// Help is the long help of the command.
func (inspectCommand) Help() string {
	return `What the files mean is in docs/format.md. 'flagstone check' verifies them. They work beside a server, whose files may change meanwhile; a capacity store is in the directory named capacity of the store's.

  flagstone inspect tree orders --svg orders.svg
  flagstone inspect manifest --files
  flagstone inspect log --changes --limit 20
  flagstone inspect table-file flagstone-data/sst/00/000042.sst --rows --limit 10`
}

type inspectTreeCommand struct {
	ofTable
	JSON bool   `name:"json" help:"Print the files as JSON."`
	SVG  string `name:"svg" type:"path" placeholder:"FILE" help:"Draw them into this file."`
}

// Run prints the levels.
func (t *inspectTreeCommand) Run(ctx context.Context, c *output) error {
	return t.with(ctx, toRead, func(home admin.Admin) error {
		files, err := home.Files(ctx, t.Instance, t.Table)
		switch {
		case err != nil:
			return err
		case t.JSON:
			return c.json(files)
		case t.SVG != "":
			return os.WriteFile(t.SVG, []byte(treeSVG(t.Table, files)), 0o600)
		}
		w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "LEVEL\tPARTITION\tFILES\tBYTES\tVALUE BYTES\tROWS\tCELLS\tTOMBSTONES\tOVER THE KEY RANGE")
		for _, run := range runs(files) {
			var sum instances.File
			for _, f := range run {
				sum.Bytes, sum.ValueBytes, sum.Rows, sum.Cells, sum.Tombstones = sum.Bytes+f.Bytes, sum.ValueBytes+f.ValueBytes, sum.Rows+f.Rows, sum.Cells+f.Cells, sum.Tombstones+f.Tombstones
			}
			fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t|%s|\n", run[0].Level, run[0].Partition, len(run), sum.Bytes, sum.ValueBytes, sum.Rows, sum.Cells, sum.Tombstones, bars(run))
		}
		return w.Flush()
	})
}

// runs divides files into those of one level and partition; a file of level 0 is a run of its own.
func runs(files []instances.File) (list [][]instances.File) {
	files = slices.Clone(files)
	slices.SortStableFunc(files, func(a, b instances.File) int { return a.Level - b.Level })
	for i, f := range files {
		if last := len(list) - 1; i > 0 && f.Level > 0 && files[i-1].Level == f.Level && files[i-1].Partition == f.Partition {
			list[last] = append(list[last], f)
			continue
		}
		list = append(list, []instances.File{f})
	}
	return list
}

// bars draws files, which do not overlap, over the key range.
func bars(run []instances.File) string {
	const width = 60
	line := []byte(strings.Repeat(" ", width))
	for _, f := range run {
		from, to := int(f.From*(width-1)), int(f.To*(width-1))
		for i := from; i <= to; i++ {
			line[i] = '='
		}
		line[from] = '['
		if to > from {
			line[to] = ']'
		}
	}
	return string(line)
}

// treeSVG draws the runs of a table one above the other.
func treeSVG(table string, files []instances.File) string {
	const width, left, height = 1000, 60, 18
	var b strings.Builder
	list := runs(files)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n", width, height*len(list)+30)
	fmt.Fprintf(&b, "<text x=\"0\" y=\"14\">%s: %d files by level and key range</text>\n", escapeXML(table), len(files))
	for i, run := range list {
		y := 24 + i*height
		fmt.Fprintf(&b, "<text x=\"0\" y=\"%d\">level %d</text>\n", y+12, run[0].Level)
		for _, f := range run {
			fmt.Fprintf(&b, "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"#3b7ea1\" stroke=\"#fff\"><title>%s</title></rect>\n",
				left+f.From*(width-left), y, max(2, (f.To-f.From)*(width-left)), height-3,
				escapeXML(fmt.Sprintf("file %d: %s, %d rows, from %s to %s", f.Number, bytesText(f.Bytes), f.Rows, keyLine(f.First), keyLine(f.Last))))
		}
	}
	return b.String() + "</svg>\n"
}

// escapeXML makes text fit for XML.
func escapeXML(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a builder takes all
	return b.String()
}

// keyLine writes a key, or the beginning of one, as people read it.
func keyLine(key []instances.Value) string {
	var columns []string
	for _, v := range key {
		columns = append(columns, lineText(v.Text()))
	}
	return strings.Join(columns, ", ")
}

type inspectManifestCommand struct {
	at
	Files bool `help:"List the files of each partition, too."`
}

// Run prints the state.
func (m *inspectManifestCommand) Run(c *output) error {
	state, report, err := loadManifest(m.Dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "%s: %d bytes, %d records; ", report.Name, report.Size, report.Records)
	switch {
	case report.Closed:
		fmt.Fprintln(c.out, "closed in good order")
	case report.Torn != 0:
		fmt.Fprintf(c.out, "open, with a torn record at offset %d\n", report.Torn)
	default:
		fmt.Fprintln(c.out, "open")
	}
	fmt.Fprintf(c.out, "store %x; next file %d, table %d, partition %d\n", state.StoreID, state.NextFile, state.NextTable, state.NextPartition)
	fmt.Fprintf(c.out, "log: needed from segment %d on; the newest known is segment %d, offset %d\n", state.MinLog, state.NewestLog.Segment, state.NewestLog.Offset)
	for _, t := range state.Tables {
		fmt.Fprintf(c.out, "\ntable %d %s: ", t.ID, lineText(t.Name))
		if t.Log != nil {
			fmt.Fprintf(c.out, "the stream of table %d\n", t.Log.Of)
		} else {
			var key []string
			for _, k := range t.Key {
				key = append(key, fmt.Sprintf("%s %s", lineText(k.Name), k.Type))
			}
			fmt.Fprintf(c.out, "key %s; %d versions, time to live %d s, version offset %d s; made %s\n", strings.Join(key, ", "),
				t.Options.MaxVersions, t.Options.TTLSeconds, t.Options.MaxVersionOffsetSeconds, moment(t.CreatedMillis))
		}
		for _, p := range t.Partitions {
			m.partition(c, t, p)
		}
	}
	return nil
}

func (m *inspectManifestCommand) partition(c *output, t *manifest.Table, p *manifest.Partition) {
	fmt.Fprintf(c.out, "  partition %d, from %s to %s: epoch %d, flushed up to sequence number %d\n", p.ID,
		encodedKey(p.Start, len(t.Key), "the start"), encodedKey(p.End, len(t.Key), "the end"), p.Epoch, p.FlushedSeq)
	for level, files := range p.Levels {
		if len(files) == 0 {
			continue
		}
		var size int64
		for _, f := range files {
			size += f.Size
		}
		fmt.Fprintf(c.out, "    level %d: %d files, %d bytes\n", level, len(files), size)
		for _, f := range files {
			if m.Files {
				fmt.Fprintf(c.out, "      %s: %d bytes, %d rows, %d cells, %d tombstones, sequence numbers %d to %d, keys %s to %s\n", manifest.TableName(f.Number), f.Size,
					f.Rows, f.Cells, f.Tombstones, f.SmallestSeq, f.LargestSeq, encodedKey(f.Smallest, len(t.Key), ""), encodedKey(f.Largest, len(t.Key), ""))
			}
		}
	}
}

// loadManifest reads the manifest of the store in dir.
func loadManifest(dir string) (*manifest.State, manifest.Report, error) {
	if !exists(filepath.Join(dir, manifest.CurrentName)) {
		return nil, manifest.Report{}, fmt.Errorf("no store in %s; name it with --dir", dir)
	}
	return manifest.Load(vfs.OS(), dir)
}

// encodedKey writes an encoded key of so many columns, or the beginning of one; nil is unbounded.
func encodedKey(key []byte, columns int, unbounded string) string {
	if key == nil {
		return unbounded
	}
	values, err := row.DecodeKey(key, columns)
	rest := ""
	if err != nil {
		if values = shortenedKey(key, columns); values == nil {
			return fmt.Sprintf("%x (%v)", key, err)
		}
		rest = "..."
	}
	var list []instances.Value
	for _, v := range values {
		list = append(list, instances.Value{Value: v})
	}
	return "(" + keyLine(list) + rest + ")"
}

// shortenedKey is what can be read of a bound that was cut within a column: a string as far as it goes, the least
// integer that begins so. It is nil for what is no such bound.
func shortenedKey(key []byte, columns int) []row.Value {
	const integer = 8 // bytes
	for ; columns > 0; columns-- {
		for missing := range integer + 1 {
			if values, err := row.DecodeKey(append(bytes.Clone(key), make([]byte, missing)...), columns); err == nil {
				return values
			}
		}
	}
	return nil
}

type inspectLogCommand struct {
	at
	Changes bool `help:"Show the changes of each record: table, key and cells."`
	Limit   int  `default:"100" placeholder:"N" help:"Show so many records, the oldest first; 0 shows all. ${default} if not given."`
}

// errEnough ends a walk that has shown what it should.
var errEnough = errors.New("enough")

// Run prints the records.
func (l *inspectLogCommand) Run(ctx context.Context, c *output) error {
	state, _, err := loadManifest(l.Dir)
	if err != nil {
		return err
	}
	opts := wal.Options{FS: vfs.OS(), Dir: filepath.Join(l.Dir, manifest.WALDir), StoreID: state.StoreID, Newest: wal.End(state.NewestLog)}
	shown := 0
	result, err := wal.Recover(opts, state.KnownSegment(), func(r wal.Record) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if shown++; l.Limit > 0 && shown > l.Limit {
			return errEnough
		}
		return l.record(c, state, &r)
	})
	if errors.Is(err, errEnough) {
		fmt.Fprintln(c.err, "flagstone: there are more records; --limit shows them")
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(c.err, "flagstone: %d records in %d bytes\n", result.Records, result.Bytes)
	if result.Torn != "" {
		fmt.Fprintf(c.err, "flagstone: the log was not closed; behind the last record: %s\n", result.Torn)
	}
	return nil
}

func (l *inspectLogCommand) record(c *output, state *manifest.State, r *wal.Record) error {
	batch, err := row.NewBatchReader(r.Payload)
	if err != nil {
		return fmt.Errorf("segment %d, offset %d: %w", r.Segment, r.Offset, err)
	}
	compressed := ""
	if r.Compressed {
		compressed = ", in a compressed group"
	}
	fmt.Fprintf(c.out, "segment %d, offset %d: stream %d, position %d, %d bytes%s, committed %s\n", r.Segment, r.Offset, r.Stream, r.Position,
		len(r.Payload), compressed, moment(batch.Time()/1000))
	var change row.Change
	for more := l.Changes; more; {
		if more, err = batch.Next(&change); err != nil {
			return fmt.Errorf("segment %d, offset %d: %w", r.Segment, r.Offset, err)
		}
		if !more {
			break
		}
		name, key := fmt.Sprintf("table %d (dropped)", change.Table), fmt.Sprintf("%x", change.Key)
		if t := state.Table(change.Table); t != nil {
			name = lineText(t.Name)
			if t.Log == nil {
				key = encodedKey(change.Key, len(t.Key), "")
			}
		}
		what := ""
		if change.DeleteRow {
			what += " delete-row"
		}
		if change.PutRow {
			what += " put-row"
		}
		fmt.Fprintf(c.out, "  %s %s%s\n", name, key, what)
		cells := change.Cells().Reader()
		var cell row.Cell
		for range change.Cells().Len() {
			if err := cells.Next(&cell); err != nil {
				return fmt.Errorf("segment %d, offset %d: %w", r.Segment, r.Offset, err)
			}
			fmt.Fprintf(c.out, "    %s\n", cellLine(&cell))
		}
	}
	return nil
}

// cellLine writes a cell of a file as a line.
func cellLine(cell *row.Cell) string {
	line := cell.Kind.String()
	if !cell.Kind.IsRowLevel() {
		line += " " + lineText(string(cell.Column))
	}
	if cell.Version != row.MaxVersion {
		line += " @" + strconv.FormatInt(cell.Version, 10)
	}
	if cell.Seq != 0 {
		line += " #" + strconv.FormatUint(cell.Seq, 10)
	}
	if cell.Kind != row.KindPut {
		return line
	}
	if cell.Separate {
		ref, err := row.ParseReference(cell.Value)
		if err != nil {
			return fmt.Sprintf("%s: %v", line, err)
		}
		return fmt.Sprintf("%s = %s of %d bytes, %d stored in %s at offset %d", line, cell.Type, ref.Raw, ref.Stored, manifest.ValueName(ref.File), ref.Offset)
	}
	payload := cell.Value
	if cell.Packed {
		var buffer []byte
		unpacked, err := valuefile.Unpack(&buffer, payload)
		if err != nil {
			return fmt.Sprintf("%s: %v", line, err)
		}
		payload = unpacked
	}
	v, err := row.PayloadValue(cell.Type, payload)
	if err != nil {
		return fmt.Sprintf("%s: %v", line, err)
	}
	text := lineText(instances.Value{Value: v}.Text())
	if r := []rune(text); len(r) > 60 {
		text = string(r[:60]) + fmt.Sprintf("... (%d bytes)", v.Size())
	}
	return fmt.Sprintf("%s = %s %s", line, v.Type(), text)
}

// placeInStore divides the path of a file into the directory of its store, and the rest, which has its number.
func placeInStore(file string) (dir, name string) {
	dir = filepath.Dir(filepath.Dir(filepath.Dir(file)))
	name, err := filepath.Rel(dir, file)
	if err != nil {
		name = file
	}
	return dir, name
}

type inspectTableFileCommand struct {
	File  string `arg:"" type:"existingfile" help:"The file."`
	Rows  bool   `help:"Show the rows, with all cells."`
	Limit int    `default:"100" placeholder:"N" help:"Show so many rows; 0 shows all. ${default} if not given."`
}

// Run prints the file.
func (f *inspectTableFileCommand) Run(ctx context.Context, c *output) (err error) {
	dir, name := placeInStore(f.File)
	number, ok := manifest.ParseTableName(name)
	if !ok {
		return misuse("%s is not the path of a table file; in the directory of a store they are named as %s", f.File, manifest.TableName(42))
	}
	file, err := vfs.OS().Open(f.File, vfs.OpenOptions{})
	if err != nil {
		return err
	}
	r, err := sstable.Open(file, sstable.ReaderOptions{FileName: f.File})
	if err != nil {
		return errors.Join(err, file.Close())
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	t := tableOfFile(dir, number)
	columns := 0
	if t != nil {
		columns = len(t.Key)
		fmt.Fprintf(c.out, "of table %d %s\n", t.ID, lineText(t.Name))
	} else {
		fmt.Fprintln(c.out, "not in the manifest of its store: left over")
	}
	p := r.Properties()
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	for _, line := range [][2]any{
		{"id", fmt.Sprintf("%x", p.UniqueID)}, {"bytes", p.FileSize}, {"rows", p.Rows}, {"cells", p.Cells}, {"puts", p.Puts}, {"tombstones", p.Tombstones},
		{"smallest key", fileKey(p.SmallestKey, columns)}, {"largest key", fileKey(p.LargestKey, columns)},
		{"sequence numbers", fmt.Sprintf("%d to %d", p.SmallestSeq, p.LargestSeq)}, {"versions", fmt.Sprintf("%d to %d", p.MinVersion, p.MaxVersion)},
		{"newest tombstone", p.NewestTombstone}, {"data blocks", p.DataBlocks}, {"bytes before compression", p.RawBytes},
		{"bytes of keys", p.KeyBytes}, {"bytes of values", p.ValueBytes}, {"value files", len(p.ValueFiles)},
	} {
		fmt.Fprintf(w, "%s\t%v\n", line[0], line[1])
	}
	if err := w.Flush(); err != nil || !f.Rows {
		return err
	}
	var it sstable.Iterator
	it.Init(r, sstable.IterOptions{NoCacheFill: true})
	defer func() { err = errors.Join(err, it.Close()) }()
	shown := 0
	for more := it.First(); more && ctx.Err() == nil; more = it.NextRow() {
		if shown++; f.Limit > 0 && shown > f.Limit {
			fmt.Fprintln(c.err, "flagstone: there are more rows; --limit shows them")
			break
		}
		fmt.Fprintln(c.out, fileKey(it.RowKey(), columns))
		for cell := it.FirstCell(); cell; cell = it.NextCell() {
			fmt.Fprintf(c.out, "  %s\n", cellLine(it.Cell()))
		}
	}
	return errors.Join(it.Error(), ctx.Err())
}

// fileKey writes an encoded key; without the number of columns, in hexadecimal.
func fileKey(key []byte, columns int) string {
	if columns == 0 {
		return fmt.Sprintf("%x", key)
	}
	return encodedKey(key, columns, "none")
}

// tableOfFile finds the table of a file by the manifest of the store, nil if there is none.
func tableOfFile(dir string, number uint64) *manifest.Table {
	state, _, err := loadManifest(dir)
	if err != nil {
		return nil // the file is shown as it is
	}
	for _, t := range state.Tables {
		for _, p := range t.Partitions {
			for _, files := range p.Levels {
				if t.Log == nil && slices.ContainsFunc(files, func(f *manifest.FileMeta) bool { return f.Number == number }) {
					return t
				}
			}
		}
	}
	return nil
}

type inspectValueFileCommand struct {
	File string `arg:"" type:"existingfile" help:"The file, in the directory of its store."`
}

// Run prints the file.
func (f *inspectValueFileCommand) Run(c *output) error {
	dir, name := placeInStore(f.File)
	number, ok := manifest.ParseValueName(name)
	if !ok {
		return misuse("%s is not the path of a value file; in the directory of a store they are named as %s", f.File, manifest.ValueName(42))
	}
	state, _, err := loadManifest(dir)
	if err != nil {
		return err
	}
	v, ok := state.ValueFile(number)
	if !ok {
		return fmt.Errorf("the manifest of %s does not name %s: it is left over", dir, name)
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	table := fmt.Sprint(v.Table)
	if t := state.Table(v.Table); t != nil {
		table += " " + lineText(t.Name)
	}
	for _, line := range [][2]any{
		{"of table", table}, {"id", fmt.Sprintf("%x", v.UniqueID)}, {"bytes", v.Size}, {"values", v.Values}, {"bytes of records", v.Bytes},
		{"referred to", v.Live}, {"garbage", v.Garbage()}, {"table files that refer to it", v.Files}, {"made", moment(v.CreatedMillis)},
	} {
		fmt.Fprintf(w, "%s\t%v\n", line[0], line[1])
	}
	return w.Flush()
}
