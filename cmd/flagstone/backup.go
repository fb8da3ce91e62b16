package main

// These commands make backups of a store, list, verify and prune them. Package backup does the work; what its objects
// are made of is in docs/format-backup.md.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/time/rate"

	"github.com/flagstone-db/flagstone/backup"
	"github.com/flagstone-db/flagstone/cmd/flagstone/bucket"
	"github.com/flagstone-db/flagstone/instances/admin"
	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

type backupCommand struct {
	Create   backupCreateCommand   `cmd:"" help:"Make a backup, also while a server runs."`
	List     backupListCommand     `cmd:"" help:"List the backups of a repository."`
	Log      backupLogCommand      `cmd:"" help:"Put what was written since, so that any moment can be restored."`
	Verify   backupVerifyCommand   `cmd:"" help:"Read all that backups have and compare it with its checksums. Exits with 1 if anything is damaged."`
	Prune    backupPruneCommand    `cmd:"" help:"Delete backups, and what no other backup needs."`
	Rehearse backupRehearseCommand `cmd:"" help:"Restore a backup into a scratch folder, check it, count its rows, compare them if it has a digest, and delete it again."`
}

// Help is the long help of the command.
func (backupCommand) Help() string {
	return `A repository is a folder, which the first backup makes, or a bucket of an S3 server, s3://bucket/prefix. A backup adds the files that the repository does not have yet. docs/backup.md says what a backup holds.

  flagstone backup create /mnt/backups
  flagstone backup list /mnt/backups
  flagstone backup verify /mnt/backups
  flagstone backup rehearse /mnt/backups
  flagstone backup prune /mnt/backups --keep 14
  flagstone restore /mnt/backups --to ./restored`
}

// inRepository names a repository.
type inRepository struct {
	Repository  string `arg:"" help:"The folder of the repository, or s3://bucket/prefix."`
	S3Endpoint  string `name:"s3-endpoint" placeholder:"URL" env:"AWS_ENDPOINT_URL" help:"The server of an s3:// repository, Amazon's if not given. The access key is in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the region in AWS_REGION."`
	S3Plaintext bool   `name:"s3-plaintext" help:"Allow http, without encryption, to a server on another machine."`
}

func (r *inRepository) repository() (backup.Repository, error) {
	scheme, _, isURL := strings.Cut(r.Repository, "://")
	switch {
	case !isURL:
		return backup.NewFolder(vfs.OS(), r.Repository), nil
	case scheme != "s3": // the rest may hold a secret
		return nil, misuse("%s:// is no repository; name a folder, or s3://bucket/prefix", scheme)
	}
	repo, err := bucket.Open(r.Repository, bucket.Options{Endpoint: r.S3Endpoint, Plaintext: r.S3Plaintext, Env: os.Getenv})
	if err != nil {
		return nil, misuse("%v", err)
	}
	return repo, nil
}

// sweepAge is how long an upload in parts must have had no new part before it counts as that of a killed command.
const sweepAge = 24 * time.Hour

// sweep deletes the parts that killed commands have left in a bucket. What fails is said, and ends no command: servers
// may not offer it, and keys may not allow it.
func (r *inRepository) sweep(ctx context.Context, c *output, repo backup.Repository) {
	in, ok := repo.(*bucket.Repository)
	if !ok {
		return
	}
	swept, err := in.Sweep(ctx, time.Now().Add(-sweepAge), backup.MayHaveParts)
	if swept > 0 {
		fmt.Fprintf(c.out, "deleted the parts of %d uploads that were not completed\n", swept)
	}
	if err != nil {
		fmt.Fprintf(c.err, "flagstone: cannot delete the parts of uploads that were not completed: %v\n", err)
	}
}

// readRepository names a repository and what decrypts it.
type readRepository struct {
	inRepository
	Identity []string `placeholder:"FILE" type:"path" env:"FLAGSTONE_BACKUP_IDENTITY" help:"File with the secret keys of age that decrypt the repository; may be given several times."`
}

func (r *readRepository) archive(ctx context.Context) (*backup.Archive, error) {
	repo, err := r.repository()
	if err != nil {
		return nil, err
	}
	return r.open(ctx, repo)
}

// open opens a repository.
func (r *readRepository) open(ctx context.Context, repo backup.Repository) (*backup.Archive, error) {
	unsealer, err := identities(r.Identity)
	if err != nil {
		return nil, err
	}
	a, err := backup.Open(ctx, repo, unsealer)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Repository, err)
	}
	return a, nil
}

// quietly says whether progress is shown.
type quietly struct {
	Quiet bool `short:"q" help:"Show no progress."`
}

// progressEvery is how long the lines of progress are apart.
const progressEvery = 5 * time.Second

// due returns a function that says whether a line of progress is due by a clock, and how long the work takes so far.
func (q *quietly) due(clock func() time.Time) func() (took time.Duration, due bool) {
	begun := clock()
	next := begun.Add(progressEvery)
	return func() (time.Duration, bool) {
		now := clock()
		if q.Quiet || now.Before(next) {
			return 0, false
		}
		next = now.Add(progressEvery)
		return now.Sub(begun), true
	}
}

// progress returns a function that prints how far something has come, every few seconds.
func (q *quietly) progress(c *output, what string) func(backup.Progress) {
	due := q.due(time.Now)
	return func(done backup.Progress) {
		if took, ok := due(); ok {
			fmt.Fprintf(c.err, "%s: %d of %d files%s\n", what, done.Files, done.AllFiles, howFar(took, done.Bytes, done.AllBytes))
		}
	}
}

// howFar says how much of all bytes is done after some time, and how long the rest takes. It says nothing of no bytes.
func howFar(took time.Duration, done, all int64) string {
	if all <= 0 {
		return ""
	}
	text := fmt.Sprintf(", %s of %s done", bytesText(done), bytesText(all))
	if done > 0 {
		rest := took.Seconds() / float64(done) * float64(all-done)
		text += fmt.Sprintf(", about %s left", time.Duration(rest)*time.Second)
	}
	return text
}

type backupCreateCommand struct {
	at
	inRepository
	quietly
	Rate      byteRate `default:"${backupRate}" placeholder:"SIZE" help:"Bytes to read per second at most, ${default} if not given."`
	Digest    bool     `help:"Read every row, too, and put counts and checksums of the tables into the backup, with which 'backup rehearse' compares what it restores."`
	KeepLog   string   `placeholder:"SIZE" help:"From now on, the stores keep their logs for 'backup log', up to so many bytes each, as 1GiB. Without this flag, they go on as before; 0 ends it."`
	Recipient []string `placeholder:"age1..." env:"FLAGSTONE_BACKUP_RECIPIENT" help:"Encrypt for this public key of age; may be given several times. All backups of a repository have the same recipients."`
}

// backupRate is the default of --rate. docs/backup.md has what it costs a server.
const backupRate = "8MiB"

// Help is the long help of the command.
func (backupCreateCommand) Help() string {
	return `A server that has the store open makes a checkpoint, of links to its files, and this command reads it. Without a server it opens the store itself. A backup that was killed leaves no backup; the next one goes on with the files that are there.

  flagstone backup create /mnt/backups
  flagstone backup create /mnt/backups --recipient age1...`
}

// Run makes a backup.
func (b *backupCreateCommand) Run(ctx context.Context, c *output) error {
	repo, err := b.repository()
	if err != nil {
		return err
	}
	sealer, err := recipients(b.Recipient)
	if err != nil {
		return err
	}
	if _, isFolder := repo.(*backup.Folder); isFolder && liesWithin(b.Repository, b.Dir) {
		return misuse("the repository %s lies in the store's folder; give a folder elsewhere, best on another disk", b.Repository)
	}
	limit, keep, err := b.keepLog()
	if err != nil {
		return err
	}
	if b.Digest { // which takes long; without it, Create looks first
		if err := backup.CheckMarker(ctx, repo, sealer); err != nil {
			return err
		}
	}
	err = b.with(ctx, toChange, func(home admin.Admin) (err error) {
		if keep {
			if err := home.KeepLogs(ctx, limit); err != nil {
				return err
			}
		}
		made, err := home.Checkpoint(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, made.Release()) }()
		var beside []string
		if credentials := filepath.Join(b.Dir, credentialsFile); exists(credentials) {
			beside = append(beside, credentials)
		}
		if b.Digest {
			file, err := b.digest(ctx, c, filepath.Join(b.Dir, made.Within))
			if err != nil {
				return err
			}
			beside = append(beside, file)
		}
		info, err := backup.Create(ctx, repo, vfs.OS(), filepath.Join(b.Dir, made.Within), backup.CreateOptions{
			Sealer: sealer, BytesPerSecond: int64(b.Rate), Beside: beside, Progress: b.progress(c, "backup"),
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(c.out, "%s: %d files, %s, of which %s are new\n", info.Name, info.Files, bytesText(info.Bytes), bytesText(info.AddedBytes))
		if sealer == nil { // this command cannot read encrypted ones
			if err := b.sayOthers(ctx, c, repo, info); err != nil {
				fmt.Fprintf(c.err, "flagstone: the backup is made; whether the one before it is of another store is unknown: %s\n", oneLine(err))
			}
		}
		return nil
	})
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted; no backup was made, and the next create goes on with what is there")
	}
	if err == nil {
		b.sweep(ctx, c, repo)
	}
	return err
}

// sayOthers says it if the backup before is of another store.
func (b *backupCreateCommand) sayOthers(ctx context.Context, c *output, repo backup.Repository, made backup.Info) error {
	archive, err := backup.Open(ctx, repo, nil)
	if err != nil {
		return err
	}
	names, err := archive.Names(ctx)
	at := slices.Index(names, made.Name)
	if err != nil || at < 1 {
		return err
	}
	// One that cannot be read is for 'backup verify'.
	if before, err := archive.Info(ctx, names[at-1]); err == nil && before.Store != "" && before.Store != made.Store {
		fmt.Fprintf(c.err, "flagstone: the backup before it is of another store, %.8s; this one is %.8s. To restore the newest, name it, or --store\n", before.Store, made.Store)
	}
	return nil
}

// digest makes the file of the digest of a checkpoint, in the checkpoint.
func (b *backupCreateCommand) digest(ctx context.Context, c *output, checkpoint string) (file string, err error) {
	limiter := rate.NewLimiter(rate.Limit(b.Rate), int(b.Rate))
	rows, read, due := 0, int64(0), b.due(time.Now)
	d, err := takeDigest(ctx, checkpoint, clock.System().NowMillis(), func(n int) error {
		rows++
		read += int64(n)
		if _, ok := due(); ok {
			fmt.Fprintf(c.err, "digest: %d rows, %s read\n", rows, bytesText(read))
		}
		return limiter.WaitN(ctx, min(n, int(b.Rate)))
	})
	file = filepath.Join(checkpoint, digestFile)
	if err == nil {
		err = d.write(file)
	}
	return file, err
}

// liesWithin reports whether a path is that of a folder or lies below it.
func liesWithin(path, folder string) bool {
	path, err1 := filepath.Abs(path)
	folder, err2 := filepath.Abs(folder)
	below, err3 := filepath.Rel(folder, path)
	return err1 == nil && err2 == nil && err3 == nil && (below == "." || filepath.IsLocal(below))
}

type backupListCommand struct {
	readRepository
	JSON bool `name:"json" help:"Print an object per backup."`
}

// Help is the long help of the command.
func (backupListCommand) Help() string {
	return `A backup whose description cannot be read has the error in its line, and the exit status is 1. STORE is the beginning of the id of the store, which differs for stores that share a repository. RESTORABLE FROM and UNTIL bound the moments that 'restore --at' restores with the backup and the log behind it.`
}

// Run prints the backups.
func (l *backupListCommand) Run(ctx context.Context, c *output) error {
	archive, err := l.archive(ctx)
	if err != nil {
		return err
	}
	names, err := archive.Names(ctx)
	if err != nil {
		return err
	}
	moments, err := archive.Moments(ctx, names)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	if !l.JSON {
		fmt.Fprintln(w, "NAME\tSTORE\tBEGUN\tFILES\tBYTES\tNEW BYTES\tRESTORABLE FROM\tUNTIL")
	}
	unreadable := 0
	for _, name := range names {
		info, err := archive.Info(ctx, name)
		line := listed(info, moments[name])
		switch {
		case errors.Is(err, fs.ErrNotExist): // pruned meanwhile
			err = nil
		case err != nil && ctx.Err() == nil:
			unreadable++
			if !l.JSON {
				_, err = fmt.Fprintf(w, "%s\t%s\n", name, oneLine(err))
			} else {
				err = c.jsonLine(map[string]string{"name": name, "error": oneLine(err)})
			}
		case err != nil:
			return errors.Join(w.Flush(), err)
		case l.JSON:
			err = c.jsonLine(line)
		default:
			_, err = fmt.Fprintf(w, "%s\t%.8s\t%s\t%d\t%d\t%d\t%s\t%s\n", info.Name, cmp.Or(info.Store, "-"), moment(info.CreatedMillis), info.Files, info.Bytes, info.AddedBytes,
				cmp.Or(line.RestorableFrom, "-"), cmp.Or(line.RestorableUntil, "-"))
		}
		if err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil || unreadable == 0 {
		return err
	}
	return fmt.Errorf("%d backups of %s cannot be read", unreadable, l.Repository)
}

// ofBackup names a backup.
type ofBackup struct {
	readRepository
	Backup string `arg:"" optional:"" help:"The backup, or the beginning of its name."`
	Store  string `placeholder:"ID" help:"Look at backups of this store only, in a repository of several: the beginning of its id, as 'backup list' prints it."`
}

// archive opens the repository, for one store if that is named.
func (b *ofBackup) archive(ctx context.Context) (*backup.Archive, error) {
	a, err := b.readRepository.archive(ctx)
	if err != nil || b.Store == "" {
		return a, err
	}
	return a.Of(ctx, b.Store)
}

type backupVerifyCommand struct {
	ofBackup
	quietly
}

// Help is the long help of the command.
func (backupVerifyCommand) Help() string {
	return `Verifies one backup, or all and the logs if none is named. Each problem is one line on standard output.`
}

// Run verifies backups.
func (v *backupVerifyCommand) Run(ctx context.Context, c *output) error {
	archive, err := v.archive(ctx)
	if err != nil {
		return err
	}
	names, err := archive.Names(ctx)
	if err == nil && v.Backup != "" {
		var name string
		name, err = archive.Find(ctx, v.Backup)
		names = []string{name}
	}
	if err != nil {
		return err
	}
	report, err := archive.Verify(ctx, names, v.progress(c, "verified"))
	if err == nil && v.Backup == "" {
		err = archive.VerifyLogs(ctx, &report)
	}
	if err != nil {
		return err
	}
	for _, problem := range report.Problems {
		fmt.Fprintln(c.out, oneLine(problem))
	}
	fmt.Fprintf(c.out, "%d backups, %d objects, %s read\n", report.Backups, report.Objects, bytesText(report.Bytes))
	if n := len(report.Problems); n > 0 {
		return fmt.Errorf("%s found in %s", countText(n, "problem"), v.Repository)
	}
	return nil
}

type backupPruneCommand struct {
	readRepository
	Keep            int           `placeholder:"N" help:"Keep the newest N of each store."`
	OlderThan       inDays        `placeholder:"DURATION" help:"Delete only what is older, as 36h or 30d. Without --keep the newest of each store stays."`
	UnfinishedAfter time.Duration `default:"24h" placeholder:"DURATION" help:"When a backup that was begun, and shows no sign of life, counts as dead: ${default} if not given, at least 2h."`
}

// Help is the long help of the command.
func (backupPruneCommand) Help() string {
	return `Deletes backups by --keep, --older-than or, if both are given, those that both would delete. Each store that shares the repository keeps its own. Then it deletes what no backup needs any more, unless a backup is being made: that stays until the next prune.

  flagstone backup prune /mnt/backups --keep 14`
}

// Run deletes backups.
func (p *backupPruneCommand) Run(ctx context.Context, c *output) error {
	if p.UnfinishedAfter < backup.LeastUnfinishedAfter {
		return misuse("--unfinished-after: at least %v", backup.LeastUnfinishedAfter)
	}
	if p.Keep < 0 || p.OlderThan < 0 || p.Keep == 0 && p.OlderThan == 0 {
		return misuse("say what to keep: --keep N, or --older-than DURATION, or both")
	}
	repo, err := p.repository()
	if err != nil {
		return err
	}
	archive, err := p.open(ctx, repo)
	if err != nil {
		return err
	}
	report, err := archive.Prune(ctx, backup.PruneOptions{Keep: p.Keep, OlderThan: time.Duration(p.OlderThan), UnfinishedAfter: p.UnfinishedAfter})
	for _, name := range report.Backups {
		fmt.Fprintf(c.out, "deleted %s\n", name)
	}
	fmt.Fprintf(c.out, "deleted %d objects, %s\n", report.Objects, bytesText(report.Bytes))
	if report.Unfinished != "" {
		fmt.Fprintf(c.out, "objects that no backup needs stay: backup %s is being made, or was just made; if that was killed, they go when it has shown no sign of life for %v (--unfinished-after)\n", lineText(report.Unfinished), p.UnfinishedAfter)
	}
	if err == nil {
		p.sweep(ctx, c, repo)
	}
	return err
}
