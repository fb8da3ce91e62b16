package offheaptest

import "testing"

// mustPanic runs f and fails the test if it does not panic.
func mustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s does not panic", what)
		}
	}()
	f()
}

func TestPoisonFindsWritesAfterFree(t *testing.T) {
	for _, n := range []int{100, 9000, 1 << 20} {
		var p poisoned
		b := p.Map(n)
		p.Unmap(b)
		for i, x := range b {
			if x != 0xDB {
				t.Fatalf("byte %d is %#x after Free", i, x)
			}
		}
		b[n-1] = 1
		mustPanic(t, "the end of a test that wrote after Free", p.close)
		b[n-1] = 0xDB
		for range quarantine {
			p.Unmap(p.Map(1))
		}
		if len(p.freed) != quarantine {
			t.Errorf("%d allocations are kept", len(p.freed))
		}
		p.close()
	}
}
