// Package assist lets an idle processor take over pieces of work of a goroutine that will need
// their results soon, such as the next blocks of a scan.
//
// The owner of a piece offers it as a Task and goes on. When it needs the result it collects the
// task. Either a helper has done the work, or a helper is doing it and the owner waits, or no
// helper came and the owner does the work itself, as if it had never offered it. So nothing is
// done twice, the owner never waits for work that has not begun, and no helper touches a task
// after it was collected: an owner that gives up collects what it has offered.
//
//	           Offer            a helper comes
//	  ┌─────────────────► offered ───────────► taken ──► done
//	the owner's              │ Collect: false              │ Collect: true
//	  ▲──────────────────────┴─────────────────────────────┘
//
// Helpers are goroutines that start when there is work, up to a limit, and end a moment after
// the last work. The moment saves wake-ups: in a virtual machine, waking a sleeping processor
// costs the goroutine that wakes it 15 to 40 us, and it takes 80 us until the processor runs.
//
// The scheduler does not say whether a processor is idle. An owner learns it from its offers
// (Stream): while helpers come, it offers; when hardly any come, because all processors are
// busy, it tries ever more rarely. Without a second processor it never offers.
//
// An offer allocates nothing, except once per Task what is needed to wait for it. It takes about
// 0.1 us while a helper is awake. Pieces of 5 to 50 us are a good size.
//
// A piece that panics fails its owner's request, not the process: Collect panics with it, and
// Cancel does not.
//
// A piece must not wait for a lock that its owner holds while it collects, nor for another
// piece.
package assist
