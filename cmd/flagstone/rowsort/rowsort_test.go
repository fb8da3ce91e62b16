package rowsort

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

// TestRecordsComeSortedAndTheLastOfAKeyStays compares sorters of several sizes with a map: all in memory, some runs, and
// so many that runs are merged into larger ones.
func TestRecordsComeSortedAndTheLastOfAKeyStays(t *testing.T) {
	for _, memory := range []int{1 << 20, 4 << 10, 500, 1} {
		seed := uint64(memory)
		random := rand.New(rand.NewPCG(seed, 1))
		dir := t.TempDir()
		s := New(dir, memory)
		want := map[string]string{}
		for i := range 2000 {
			key := fmt.Appendf(nil, "%0*d", 1+random.IntN(12), random.IntN(300))
			value := bytes.Repeat([]byte{byte(i)}, random.IntN(30))
			want[string(key)] = string(value)
			if err := s.Add(t.Context(), key, value); err != nil {
				t.Fatal(err)
			}
		}
		if len(s.runs) > 3*maxRuns {
			t.Errorf("%d runs are open", len(s.runs))
		}
		var last []byte
		err := s.Each(t.Context(), func(key, value []byte) error {
			if bytes.Compare(key, last) <= 0 && last != nil {
				return fmt.Errorf("%q after %q", key, last)
			}
			last = bytes.Clone(key)
			if v, ok := want[string(key)]; !ok || v != string(value) {
				return fmt.Errorf("%q has %q, want %q", key, value, v)
			}
			delete(want, string(key))
			return nil
		})
		if err != nil || len(want) > 0 {
			t.Errorf("memory %d, seed %d: %v; %d are missing", memory, seed, err, len(want))
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
}

// TestADamagedRunIsRefused changes each part of a run, and cuts it.
func TestADamagedRunIsRefused(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "run")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	w := newRunWriter(file)
	for i := range 50 {
		if err := w.add(fmt.Appendf(nil, "key %02d", i), []byte("value")); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	try := func(content []byte) error {
		if err := file.Truncate(0); err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteAt(content, 0); err != nil {
			t.Fatal(err)
		}
		return merge(context.Background(), []*run{{file: file}}, func(_, _ []byte) error { return nil })
	}
	if err := try(whole); err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		damaged := slices.Clone(whole)
		damaged[i] ^= 0x55
		if err := try(damaged); !errors.Is(err, errRun) {
			t.Errorf("byte %d: %v", i, err)
		}
		if err := try(whole[:i]); !errors.Is(err, errRun) {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
}

func TestAnErrorOfTheReceiverEndsTheMerge(t *testing.T) {
	s := New(t.TempDir(), 1)
	defer s.Close()
	for i := range 10 {
		if err := s.Add(t.Context(), []byte{byte(i + 1)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Each(t.Context(), func(_, _ []byte) error { return io.ErrClosedPipe }); err != io.ErrClosedPipe {
		t.Error(err)
	}
}
