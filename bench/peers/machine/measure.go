package machine

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// limit is one measured limit of the machine.
type limit struct {
	what, value string
}

// probe measures one or a few limits.
type probe func(dir string) ([]limit, error)

// Measure measures all limits, on the device of dir where it matters, and
// prints them as a table. It takes about fifteen seconds and a gigabyte of space.
func Measure(ctx context.Context, dir string, w io.Writer) error {
	dir, err := os.MkdirTemp(dir, "flagstone-machine-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Fprintf(w, "%s\n\n| what | measured |\n|---|---:|\n", Describe(dir))
	for _, p := range []probe{copies, loads, syncs, sequential, pages} {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		limits, err := p(dir)
		if err != nil {
			return err
		}
		for _, l := range limits {
			fmt.Fprintf(w, "| %s | %s |\n", l.what, l.value)
		}
	}
	fmt.Fprintln(w)
	return nil
}

// repeat calls f until a time has passed and returns how long each call took.
func repeat(d time.Duration, f func() error) ([]time.Duration, error) {
	var took []time.Duration
	last := time.Now()
	for end := last.Add(d); last.Before(end); {
		if err := f(); err != nil {
			return nil, err
		}
		now := time.Now()
		took = append(took, now.Sub(last))
		last = now
	}
	return took, nil
}

// mean of some durations.
func mean(took []time.Duration) time.Duration {
	var sum time.Duration
	for _, d := range took {
		sum += d
	}
	return sum / time.Duration(max(len(took), 1))
}

func quantile(took []time.Duration, q float64) time.Duration {
	took = slices.Clone(took)
	slices.Sort(took)
	return took[min(int(q*float64(len(took))), len(took)-1)]
}

func us(d time.Duration) string { return fmt.Sprintf("%.3g us", float64(d)/1e3) }

func gbs(bytes int, d time.Duration) string {
	return fmt.Sprintf("%.3g GB/s", float64(bytes)/float64(max(d, 1)))
}

// copies measures copying memory, beyond the caches and within them.
func copies(string) ([]limit, error) {
	var out []limit
	for _, size := range []int{256 << 20, 64 << 10} {
		from, to := make([]byte, size), make([]byte, size)
		for i := range from {
			from[i] = byte(i)
		}
		copy(to, from)
		times := max(1, (64<<20)/size)
		took, err := repeat(300*time.Millisecond, func() error {
			for range times {
				copy(to, from)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		out = append(out, limit{fmt.Sprintf("copy of %d KiB", size>>10), gbs(size*times, quantile(took, 0.5))})
	}
	return out, nil
}

// loads measures a chain of loads, each of which waits for the one before.
func loads(string) ([]limit, error) {
	var out []limit
	for _, size := range []int{1 << 20, 16 << 20, 64 << 20, 256 << 20} {
		// One cycle through all cache lines (Sattolo's shuffle).
		const line = 64 / 4
		n := size / 64
		order := make([]uint32, n)
		for i := range order {
			order[i] = uint32(i)
		}
		rng := rand.New(rand.NewPCG(1, 2))
		for i := n - 1; i > 0; i-- {
			j := rng.IntN(i)
			order[i], order[j] = order[j], order[i]
		}
		chain := make([]uint32, n*line)
		for i, next := range order {
			chain[i*line] = next * line
		}
		at := uint32(0)
		const steps = 1 << 16
		took, err := repeat(300*time.Millisecond, func() error {
			for range steps {
				at = chain[at]
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if at%line != 0 {
			return nil, fmt.Errorf("machine: lost the chain")
		}
		out = append(out, limit{fmt.Sprintf("dependent load in %d MiB", size>>20),
			fmt.Sprintf("%.3g ns", float64(quantile(took, 0.5))/steps)})
	}
	return out, nil
}

// path names a file in a probe's directory.
func path(dir, name string) string { return filepath.Join(dir, name) }
