package instances

// This file keeps the logs of a home's stores, for restores to a moment. Another process copies them.

import (
	"context"
	"fmt"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/ots"
)

// StoreLog is what a store of a home keeps of its log.
type StoreLog struct {
	// Within is the directory of the store, relative to that of the home.
	Within string
	flagstone.KeptLog
}

// eachStore calls use for each store, while none is made.
func (h *Home) eachStore(ctx context.Context, use func(within string, store *flagstone.Store) error) error {
	if h.opts.Store.Seams.FS != nil {
		return fmt.Errorf("%w: the stores are in memory, and have no log to copy", ErrInvalid)
	}
	done, err := h.beginChange(ctx)
	if err != nil {
		return err
	}
	defer done()
	h.mu.Lock()
	err = h.changeable()
	first, second := h.rooms[ots.HighPerformance], h.rooms[ots.Capacity]
	h.mu.Unlock()
	if err == nil {
		err = use(".", first.store)
	}
	if err == nil && second != nil {
		err = use(CapacityDir, second.store)
	}
	return err
}

// KeepLogs is flagstone.Store.KeepLog for all stores. The limit is that of each.
func (h *Home) KeepLogs(ctx context.Context, limit int64) error {
	return h.eachStore(ctx, func(_ string, store *flagstone.Store) error { return store.KeepLog(ctx, limit) })
}

// KeptLogs is flagstone.Store.KeptLog for all stores. If one of them does not keep its log, as one that was made since
// KeepLogs, the error says so: without its log the others restore no moment of the home.
func (h *Home) KeptLogs(ctx context.Context) (list []StoreLog, err error) {
	err = h.eachStore(ctx, func(within string, store *flagstone.Store) error {
		kept, err := store.KeptLog(ctx)
		list = append(list, StoreLog{within, kept})
		return err
	})
	return list, err
}

// LogShipped is flagstone.Store.LogShipped. It does not read the notes.
func (h *Home) LogShipped(ctx context.Context, log StoreLog) error {
	return h.eachStore(ctx, func(within string, store *flagstone.Store) error {
		if within != log.Within {
			return nil
		}
		return store.LogShipped(ctx, log.KeptLog)
	})
}
