//go:build !race

package flagstone

const raced = false
