package clock

import (
	"fmt"
	"time"
)

// Span is a duration in milliseconds for people to read: a number of the largest
// unit that it has two of, rounded.
func Span(millis int64) string {
	units := []struct {
		name   string
		millis int64
	}{
		{"years", 365 * 24 * time.Hour.Milliseconds()}, {"days", 24 * time.Hour.Milliseconds()},
		{"hours", time.Hour.Milliseconds()}, {"minutes", time.Minute.Milliseconds()},
	}
	for _, unit := range units {
		if n := millis / unit.millis; n >= 2 {
			return fmt.Sprintf("%d %s", n+millis%unit.millis*2/unit.millis, unit.name)
		}
	}
	return fmt.Sprintf("%d seconds", millis/1000)
}
