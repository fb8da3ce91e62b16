//go:build !race

package flagstone

const poolsForget = false
