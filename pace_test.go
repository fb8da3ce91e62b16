package flagstone

import (
	"testing"
	"time"
)

// TestWritersDoNotPayLongAfterThePressureIsGone lets large writes owe more than
// they pay at once.
func TestWritersDoNotPayLongAfterThePressureIsGone(t *testing.T) {
	var p pacer
	for range 10_000 {
		p.charge(1<<20, 0.95)
		p.take()
	}
	var left time.Duration
	for pay := p.take(); pay > 0; pay = p.take() {
		left += pay
	}
	if left > 2*owedMost {
		t.Errorf("writers still pay for %v", left)
	}
}
