// Package assist lets a processor that has nothing to do take over pieces of work
// of a goroutine that will need their results soon: a scan's next blocks, the
// values of a row that are to be decoded.
//
// The owner of a piece offers it and goes on. When it needs the result it collects
// the piece: then a helper has done it, or is at it and is waited for, or none came
// and the owner does the work itself, as if it had never been offered. So nothing
// is done twice, nobody waits for work that nobody has begun, and a piece that was
// collected is not touched any more: who gives up collects what he has offered.
//
//	           Offer            a helper comes
//	  ┌─────────────────► offered ───────────► taken ──► done
//	the owner's              │ Collect: false              │ Collect: true
//	  ▲──────────────────────┴─────────────────────────────┘
//
// Helpers are goroutines that are started when there is work, no more of them than
// a limit, and end when there was none for a moment. That moment is there because it
// is dear to wake a processor that sleeps: in a virtual machine 15 to 40 us for the
// one who wakes it, and 80 until it runs.
//
// Nobody can ask the scheduler whether a processor is idle. So an owner learns it by
// what becomes of his offers (Stream): while helpers come, he offers; when hardly any
// comes, because everybody is at work, he tries it ever more rarely. Without a second
// processor nothing is ever offered.
//
// An offer allocates nothing but, once, what a Task needs to be waited for. It takes
// some 0.1 us while a helper is awake. Pieces of 5 to 50 us are of a good size.
//
// A piece that panics ends its owner's request, not the process: Collect panics for
// it. One that is cancelled does not.
//
// A piece must not wait for what its owner holds while he collects it, nor for
// another piece.
package assist
