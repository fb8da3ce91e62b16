package main

import (
	"fmt"
	"net"

	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/server/faults"
)

// testAids are the controls that tests have over a server; nil is off.
type testAids struct {
	clock  *clock.Shifted
	faults *faults.Injector
}

func (s *serveCommand) makeAids() (aids testAids) {
	if s.TestClock {
		aids.clock = clock.NewShifted(clock.System())
	}
	if s.TestFaults {
		aids.faults = new(faults.Injector)
	}
	return aids
}

// checkAids refuses test aids on an address that other machines can reach, since their requests
// are not signed.
func (s *serveCommand) checkAids(addr net.Addr) error {
	if !s.TestClock && !s.TestFaults && !s.Memory {
		return nil
	}
	if tcp, ok := addr.(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		return fmt.Errorf("--test-clock, --test-faults and --memory are for servers that only this machine can reach, not for %s; choose a loopback --addr", addr)
	}
	return nil
}
