//go:build race

package flagstone

// poolsForget: under the race detector a sync.Pool drops at random what it is
// given.
const poolsForget = true
