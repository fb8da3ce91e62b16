package main

// These commands keep the logs of a home's stores, and put them into a repository.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"time"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/backup"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/instances/admin"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

type backupLogCommand struct {
	at
	inRepository
	Every     time.Duration `placeholder:"DURATION" help:"Go on until interrupted, and put what is new each time, as 1m. A failure is reported, and tried again; the first time must succeed."`
	Rate      byteRate      `default:"64MiB" placeholder:"SIZE" help:"Bytes to read per second at most, ${default} if not given."`
	Recipient []string      `placeholder:"age1..." env:"FLAGSTONE_BACKUP_RECIPIENT" help:"Encrypt for this public key of age, as the backups of the repository."`
}

// Help is the long help of the command.
func (backupLogCommand) Help() string {
	return `Puts into the repository what the stores have kept of their logs since 'backup create --keep-log', and deletes it there, so that 'restore --at' restores any moment up to now. A log goes to one repository.

  flagstone backup create /mnt/backups --keep-log 1GiB
  flagstone backup log /mnt/backups --every 1m
  flagstone restore /mnt/backups --at 2026-11-27T10:00:00Z --to ./restored`
}

// Run puts the log once, or again and again.
func (l *backupLogCommand) Run(ctx context.Context, c *output) error {
	if l.Every < 0 {
		return misuse("--every: at least 0s")
	}
	repo, err := l.repository()
	if err != nil {
		return err
	}
	sealer, err := recipients(l.Recipient)
	if err != nil {
		return err
	}
	err = l.ship(ctx, c, repo, sealer)
	for again := false; l.Every > 0 && (err == nil || again) && ctx.Err() == nil; again = true {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(l.Every):
		}
		if err = l.ship(ctx, c, repo, sealer); err != nil && ctx.Err() == nil {
			fmt.Fprintf(c.err, "%s: tried again in %v: %s\n", moment(time.Now().UnixMilli()), l.Every, oneLine(err))
		}
	}
	if ctx.Err() != nil {
		return errors.New("interrupted; the next 'backup log' goes on")
	}
	return err
}

// ship puts what the stores have kept.
func (l *backupLogCommand) ship(ctx context.Context, c *output, repo backup.Repository, sealer backup.Sealer) error {
	return l.with(ctx, toChange, func(home admin.Admin) error {
		logs, err := home.KeptLogs(ctx)
		if err != nil {
			return fmt.Errorf("%w; 'flagstone backup create %s --keep-log SIZE' makes a backup and begins to keep all logs", err, l.Repository)
		}
		records, bytes, complete := 0, int64(0), int64(math.MaxInt64)
		for _, log := range logs {
			report, err := backup.Ship(ctx, repo, vfs.OS(), filepath.Join(l.Dir, log.Within), log.KeptLog, backup.CreateOptions{Sealer: sealer, BytesPerSecond: int64(l.Rate)}, func(part flagstone.KeptLog) error {
				return home.LogShipped(ctx, instances.StoreLog{Within: log.Within, KeptLog: part})
			})
			if err != nil {
				return fmt.Errorf("log of store %s: %w", log.Within, err)
			}
			for _, n := range log.Notes {
				if len(n.Edit) == 0 {
					fmt.Fprintf(c.err, "flagstone: moments from %s on need another backup: the log does not have %s\n", backup.FormatMicros(n.Micros), lineText(n.What))
				}
			}
			records, bytes, complete = records+report.Records, bytes+report.Bytes, min(complete, log.Micros)
		}
		fmt.Fprintf(c.out, "complete up to %s: %d records, %s\n", backup.FormatMicros(complete), records, bytesText(bytes))
		return nil
	})
}

// keepLog is the value of --keep-log in bytes; given is false without one.
func (b *backupCreateCommand) keepLog() (limit int64, given bool, err error) {
	var s size
	switch {
	case b.KeepLog == "":
		return 0, false, nil
	case b.KeepLog != "0":
		if err := s.UnmarshalText([]byte(b.KeepLog)); err != nil {
			return 0, false, misuse("--keep-log: %v", err)
		}
	}
	return int64(s), true, nil
}

// listedBackup is a backup in a list, with the moments to which it can be brought.
type listedBackup struct {
	backup.Info
	RestorableFrom  string `json:"restorable_from,omitempty"`
	RestorableUntil string `json:"restorable_until,omitempty"`
}

func listed(info backup.Info, m backup.Moments) listedBackup {
	if !m.Any() {
		return listedBackup{Info: info}
	}
	return listedBackup{info, backup.FormatMicros(m.From), backup.FormatMicros(m.Until)}
}
