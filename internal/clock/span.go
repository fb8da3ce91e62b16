package clock

import (
	"fmt"
	"time"
)

// Span formats a duration in milliseconds for people: a rounded number of the largest unit of
// which it has at least two.
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
