package compaction_test

// Golden choices in testdata/pick/*. Rewrite them with -rewrite and read the difference.
//
//	define   a file per line: level number smallest-largest, then any of
//	         size= seq=lo-hi versions=lo-hi cells= puts= tombstones= newest=
//	         permanent clipped. Level 0 from the oldest to the newest. The
//	         configuration: trigger 4 or 1000 bytes, base 1000, multiplier 10, file size 100.
//	pick     picks and puts the candidate among the running ones: cutoff= (in
//	         seconds) horizon= oldest= (the oldest view) idle (no writes) lost= (to
//	         level 0) lost-to-N= (to file N)
//	done     forgets the running ones
//	debt     the debt in bytes

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/row"
)

func TestGoldenPicks(t *testing.T) {
	cfg := compaction.Config{L0Trigger: 4, L0Size: 1000, LevelBase: 1000, Multiplier: 10, TableFileSize: 100}
	datadriven.Walk(t, "testdata/pick", func(t *testing.T, path string) {
		var levels compaction.Levels
		var clipped []*manifest.FileMeta
		var running []*compaction.Candidate
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "define":
				levels, clipped, running = compaction.Levels{}, nil, nil
				for line := range strings.Lines(d.Input) {
					inside, isClipped := strings.CutSuffix(strings.TrimSpace(line), " clipped")
					level, f := parseFile(t, inside)
					levels[level] = append(levels[level], f)
					if isClipped {
						clipped = append(clipped, f)
					}
				}
				return ""
			case "done":
				running = nil
				return ""
			case "debt":
				return fmt.Sprintln(compaction.Debt(&levels, cfg))
			case "pick":
				p := mvcc.Policy{ExpiryCutoff: mvcc.NoExpiry}
				d.MaybeScanArgs(t, "cutoff", &p.ExpiryCutoff)
				d.MaybeScanArgs(t, "horizon", &p.TombstoneHorizon)
				view := mvcc.View{Seq: row.MaxSequence, Cutoff: math.MaxInt64}
				if d.HasArg("oldest") {
					old := view
					d.ScanArgs(t, "oldest", &old.Seq)
					d.MaybeScanArgs(t, "oldest-cutoff", &old.Cutoff)
					p.Views = append(p.Views, old)
				}
				p.Views = append(p.Views, view)
				in := compaction.Input{
					Levels: &levels, Clipped: clipped, Config: cfg, Running: running, Policy: p,
					LostTo: map[uint64]int64{}, Idle: d.HasArg("idle"), Trim: d.HasArg("trim"),
				}
				d.MaybeScanArgs(t, "lost", &in.Lost)
				for _, arg := range d.CmdArgs {
					var number uint64
					var lost int64
					if n, _ := fmt.Sscanf(arg.String(), "lost-to-%d=%d", &number, &lost); n == 2 {
						in.LostTo[number] = lost
					}
				}
				c := compaction.Pick(in)
				if c == nil {
					return "nothing\n"
				}
				running = append(running, c)
				s := fmt.Sprintf("%s score=%.2f", describeCandidate(c), c.Score)
				if len(c.Grandparents) > 0 {
					s += fmt.Sprintf(" grandparents=%d", len(c.Grandparents))
				}
				return s + "\n"
			}
			d.Fatalf(t, "unknown command %q", d.Cmd)
			return ""
		})
	})
}

func parseFile(t *testing.T, line string) (level int, f *manifest.FileMeta) {
	fields := strings.Fields(line)
	f = &manifest.FileMeta{
		Size: 100, Cells: 100, Puts: 50, SmallestSeq: 1, LargestSeq: 1,
		MinVersion: math.MaxInt64, MaxVersion: math.MinInt64,
	}
	scan := func(s, format string, to ...any) {
		if n, err := fmt.Sscanf(s, format, to...); n != len(to) {
			t.Fatalf("%q in %q: %v", s, line, err)
		}
	}
	scan(fields[0], "%d", &level)
	scan(fields[1], "%d", &f.Number)
	smallest, largest, _ := strings.Cut(fields[2], "-")
	f.Smallest, f.Largest = []byte(smallest), []byte(largest)
	for _, field := range fields[3:] {
		name, value, _ := strings.Cut(field, "=")
		switch name {
		case "size":
			scan(value, "%d", &f.Size)
		case "seq":
			scan(value, "%d-%d", &f.SmallestSeq, &f.LargestSeq)
		case "versions":
			scan(value, "%d-%d", &f.MinVersion, &f.MaxVersion)
		case "cells":
			scan(value, "%d", &f.Cells)
		case "puts":
			scan(value, "%d", &f.Puts)
		case "tombstones":
			scan(value, "%d", &f.Tombstones)
		case "newest":
			scan(value, "%d", &f.NewestTombstone)
		case "permanent":
			f.Permanent = true
		default:
			t.Fatalf("what is %q?", field)
		}
	}
	return level, f
}

func file(number uint64, smallest, largest string) *manifest.FileMeta {
	return &manifest.FileMeta{Number: number, Smallest: []byte(smallest), Largest: []byte(largest), SmallestSeq: number}
}

func TestBelowKnowsWhatOlderFilesMayHold(t *testing.T) {
	var levels compaction.Levels
	levels[3] = []*manifest.FileMeta{file(9, "a", "z")} // the output level itself does not count
	levels[4] = []*manifest.FileMeta{file(1, "b", "d"), file(2, "h", "h")}
	levels[6] = []*manifest.FileMeta{file(3, "c", "c"), file(4, "e", "g")}
	levels[6][0].Permanent = true
	c := compaction.Candidate{Level: 2, OutputLevel: 3}
	below := c.Below(&levels)
	for _, q := range []struct {
		key  string
		want mvcc.Below
	}{
		{"a", mvcc.BelowNothing}, {"b", mvcc.BelowExpiring}, {"bb", mvcc.BelowExpiring}, {"c", mvcc.BelowAnything},
		{"c0", mvcc.BelowExpiring}, {"d", mvcc.BelowExpiring}, {"d0", mvcc.BelowNothing}, {"e", mvcc.BelowExpiring},
		{"g", mvcc.BelowExpiring}, {"g0", mvcc.BelowNothing}, {"h", mvcc.BelowExpiring}, {"h0", mvcc.BelowNothing},
	} {
		if got := below([]byte(q.key)); got != q.want {
			t.Errorf("below %s: %d, want %d", q.key, got, q.want)
		}
	}
	c.OutputLevel = 6
	if got := c.Below(&levels)([]byte("c")); got != mvcc.BelowNothing {
		t.Errorf("below the last level: %d", got)
	}
	// In place in level 0, whose older files lie below; these overlap each other.
	levels[0] = []*manifest.FileMeta{file(20, "i", "n"), file(21, "k", "k"), file(22, "h", "z"), file(23, "o", "p")}
	levels[0][1].Permanent = true
	below = (&compaction.Candidate{Upper: levels[0][2:3]}).Below(&levels)
	for _, q := range []struct {
		key  string
		want mvcc.Below
	}{
		{"a", mvcc.BelowExpiring}, {"c", mvcc.BelowAnything}, {"h", mvcc.BelowExpiring}, {"i", mvcc.BelowExpiring},
		{"k", mvcc.BelowAnything}, {"l", mvcc.BelowExpiring}, {"o", mvcc.BelowExpiring}, {"zz", mvcc.BelowNothing},
	} {
		if got := below([]byte(q.key)); got != q.want {
			t.Errorf("below %s in level 0: %d, want %d", q.key, got, q.want)
		}
	}
}

func TestNewerSeqLooksAtNewerFilesThatMayShareRows(t *testing.T) {
	var levels compaction.Levels
	levels[0] = []*manifest.FileMeta{file(50, "x", "z"), file(40, "a", "c")}
	levels[2] = []*manifest.FileMeta{file(20, "a", "b"), file(10, "p", "q")}
	levels[3] = []*manifest.FileMeta{file(5, "a", "z")}
	levels[4] = []*manifest.FileMeta{file(1, "a", "z")}
	for _, c := range []struct {
		candidate compaction.Candidate
		want      uint64
	}{
		{compaction.Candidate{Level: 2, OutputLevel: 3, Upper: levels[2][:1], Smallest: []byte("a"), Largest: []byte("b")}, 40},
		{compaction.Candidate{Level: 2, OutputLevel: 3, Upper: levels[2][1:], Smallest: []byte("p"), Largest: []byte("q")}, math.MaxUint64},
		// The lower file reaches to rows that another file of level 2 holds.
		{compaction.Candidate{Level: 2, OutputLevel: 3, Upper: levels[2][:1], Lower: levels[3], Smallest: []byte("a"), Largest: []byte("z")}, 10},
		// In place: newer levels count, older ones do not.
		{compaction.Candidate{Level: 4, OutputLevel: 4, Upper: levels[4], Smallest: []byte("a"), Largest: []byte("z")}, 5},
		{compaction.Candidate{Level: 0, OutputLevel: 1, Upper: levels[0][1:], Smallest: []byte("a"), Largest: []byte("c")}, math.MaxUint64},
		// In place in level 0: its other files count.
		{compaction.Candidate{Upper: levels[0][1:], Smallest: []byte("a"), Largest: []byte("x")}, 50},
	} {
		if got := c.candidate.NewerSeq(&levels); got != c.want {
			t.Errorf("level %d %s-%s: %d, want %d", c.candidate.Level, c.candidate.Smallest, c.candidate.Largest, got, c.want)
		}
	}
}
