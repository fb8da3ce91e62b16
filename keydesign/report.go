package keydesign

import (
	"fmt"
	"strings"
	"time"
)

// Text formats the report for people.
func (r *Report) Text() string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	say("%s, keyed by %s: about %s, %d rows sampled", r.Table, strings.Join(r.Columns, ", "), bytesText(r.Bytes), r.Sampled)
	r.sayRequests(say)
	if r.Sampled < leastSample {
		say("\nToo few rows to say anything; %d are needed.", leastSample)
		return b.String()
	}
	r.saySize(say)
	r.sayLoad(say)
	r.sayNewest(say)
	if len(r.Proposals) == 0 {
		say("\nNothing to propose.")
	}
	for i, p := range r.Proposals {
		say("\nProposal %d: %s", i+1, p.What)
		say("  size: the heaviest partition key %s instead of %s; as even as %.0f equal ones instead of %.0f",
			percent(p.Largest), percent(r.Size.largest()), p.Even, r.Size.Even)
		switch {
		case r.Load == nil:
		case p.Load != nil && *p.Load == 0:
			say("  load: no partition key is busy, as now")
		case p.Load != nil:
			say("  load: the busiest partition key about %s instead of %s", percent(*p.Load), percent(r.Load.largest()))
		default:
			say("  load: not known; only %d rows of a busy partition key were found", p.LoadRows)
		}
		if r.Newest != nil && p.InTenth > 0 {
			say("  newest rows: %s in a tenth of the key range instead of %s", percent(p.InTenth), percent(r.Newest.InTenth))
		}
		say("  cost: %s", p.Cost)
		say("  in Go: %s", p.Go)
	}
	return b.String()
}

func verdict(bad bool, yes, no string) string {
	if bad {
		return yes
	}
	return no
}

// sayRequests says what is wrong with the requests, and which row is the largest, whatever the key is.
func (r *Report) sayRequests(say func(string, ...any)) {
	if r.Refused != nil {
		of := "all partition keys"
		if r.Refused.Key != "" {
			of = r.Refused.Key
		}
		say("\nRequests to %s are REFUSED: %s/s lately, %s", of, rateText(r.Refused.Rate), r.Refused.Code)
	}
	if r.Passed != nil {
		say("\nReads pass over DELETED ROWS: %s/s, and return %s/s\n  they were deleted or have expired, and a compaction drops them: flagstone table compact %s",
			rateText(r.Passed.Rate), rateText(r.Passed.Returned), r.Table)
	}
	if r.Largest != nil {
		say("\nLargest row of the sample: %s  %s", bytesText(r.Largest.Bytes), shortened(r.Largest.Key))
	}
	if r.RowBytes >= largeRow {
		say("\nRows: LARGE\n  a row that is read or written has %s on average: requests take long for their bytes", bytesText(int64(r.RowBytes)))
	}
}

func (r *Report) saySize(say func(string, ...any)) {
	s := &r.Size
	say("\nSize: %s", verdict(s.Large, "TOO LARGE", verdict(s.Heavy, "CONCENTRATED", "even")))
	say("  %d partition keys in the sample, as even as %.0f equal ones", s.Distinct, s.Even)
	sayTop(say, s.Top, func(part float64) string { return bytesText(int64(part * float64(r.Bytes))) })
	const most = "  one partition key should have %s at most, since a partition (%s) is never divided within one"
	switch {
	case s.Large:
		say(most, bytesText(maxKeyBytes), bytesText(partitionBytes))
	case s.Heavy:
		say(most+":\n  at these shares the first has that when the table has %s",
			bytesText(maxKeyBytes), bytesText(partitionBytes), bytesText(int64(maxKeyBytes/s.largest())))
	}
}

func (r *Report) sayLoad(say func(string, ...any)) {
	if r.Load == nil {
		say("\nLoad: not known; a server counts it while it runs, and there was little lately (%d capacity units, %d are needed)", r.LoadUnits, LeastLoad)
		return
	}
	say("\nLoad: %s", verdict(r.Load.Heavy, "CONCENTRATED", "even"))
	say("  %s capacity units per second, on average over about the last %s", rateText(r.LoadRate), time.Duration(r.LoadOver)*time.Second)
	sayTop(say, r.Load.Top, func(part float64) string { return rateText(part*r.LoadRate) + " units/s" })
	switch {
	case r.Refused != nil:
		say("  a partition key gets %d units per second; requests beyond a limit are refused now", maxKeyUnits)
	case r.Load.Heavy:
		say("  a partition key gets %d units per second: at these shares the table gets %.0f",
			maxKeyUnits, maxKeyUnits/r.Load.largest())
	}
}

func sayTop(say func(string, ...any), top []Share, amount func(part float64) string) {
	for i, t := range top {
		if i > 0 && t.Part < goodShare { // in a sample, this may be chance
			return
		}
		say("  %7s  %-10s  %s", percent(t.Part), amount(t.Part), shortened(t.Key))
	}
}

// shortened is a key as a line has room for it.
func shortened(key string) string {
	const most = 60
	if len(key) > most {
		key = strings.ToValidUTF8(key[:most], "") + "..."
	}
	return key
}

func (r *Report) sayNewest(say func(string, ...any)) {
	if r.Newest == nil {
		say("\nNewest rows: not known; all were written at once")
		return
	}
	say("\nNewest rows: %s", verdict(r.Newest.Crowded, "CROWDED", "spread"))
	say("  of the %d rows of the sample that were written last, %s are in one tenth of the key range; 10%% would be by chance",
		r.Newest.Rows, percent(r.Newest.InTenth))
	if r.Newest.Crowded {
		say("  new rows come next to each other: one partition takes the writes of all")
	}
}

// rateText writes a number per second.
func rateText(n float64) string {
	if n < 10 {
		return fmt.Sprintf("%.1f", n)
	}
	return fmt.Sprintf("%.0f", n)
}

func percent(part float64) string {
	switch p := part * 100; {
	case p >= 10:
		return fmt.Sprintf("%.0f%%", p)
	case p >= 1:
		return fmt.Sprintf("%.1f%%", p)
	default:
		return fmt.Sprintf("%.2f%%", p)
	}
}

func bytesText(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	v, i := float64(n), 0
	for v >= 1024 && i < len(units)-1 {
		v /= 1024
		i++
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", v, units[i])
}
