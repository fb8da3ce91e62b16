package commit

import "sync"

// spinLock is a mutex for sections of about a microsecond. Its Lock tries for that long before it
// sleeps. A sync.Mutex spins only while no goroutine waits for a processor, so with more writers
// than processors each collision costs two switches of goroutines, and the sleeper keeps the
// latches of its rows meanwhile. Eight writers on two processors, with 1,000 partitions, put 17%,
// 7% and -4% more rows per second with it in three comparisons on a noisy machine.
type spinLock struct{ sync.Mutex }

// spins is how often Lock tries: about a microsecond. A holder that lost its processor takes longer.
const spins = 1000

func (l *spinLock) Lock() {
	for range spins {
		if l.TryLock() {
			return
		}
	}
	l.Mutex.Lock()
}
