//go:build !unix

package offheaptest

func newSource() *poisoned { return new(poisoned) }
