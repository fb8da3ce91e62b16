// Package prometheus holds no code, only tests: Prometheus scrapes a flagstone server, and every expression of the
// dashboard in docs is asked of it.
//
// Run it with go test. It needs prometheus and promtool in the path (Debian's package prometheus); all traffic stays
// on this machine.
package prometheus
