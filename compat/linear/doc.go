// Package linear holds no code, only tests: histories of single-row operations,
// conditional writes and increments that sixteen clients of the official SDK for
// Go send to a flagstone server, which is killed meanwhile, are checked for
// linearizability by porcupine.
//
//	go test                                                 # 10 histories
//	FLAGSTONE_HISTORIES=500 go test -timeout 60m -v         # 500
//	FLAGSTONE_HISTORIES_SEED=7 go test -v                   # choices as in the run that printed 7
//
// A request without an answer, because the server was killed, may have been
// carried out at any time after it was sent, or never. No history may be refuted,
// and none be left without a verdict.
package linear
