// Package backup keeps backups of a store, or of the home of a server, in a repository: a folder, or another place
// that keeps whole objects by name, as a bucket of cmd/flagstone/bucket. A backup is made from a checkpoint, so the store is in use meanwhile.
//
//	repository.go   what a repository must be able to do, and the names in it
//	folder.go       a repository in a folder
//	archive.go      an open repository: its marker, and the list of its backups
//	source.go       the files of a checkpoint, and what is known of them before they are read
//	object.go       a file of a backup, as the repository keeps it
//	description.go  which files a backup has
//	create.go       makes a backup
//	unfinished.go   the notice of a create, so that a prune spares what it uses
//	verify.go       reads everything and compares checksums
//	prune.go        deletes backups, and then objects that no backup refers to
//	restore.go      makes a directory of a backup
//	log.go          a part of the log of a store, as the repository keeps it
//	ship.go         puts what a store keeps of its log
//	moment.go       restores to a moment: which parts of logs it takes, and what makes it impossible
//
// docs/backup.md says how it is used, and docs/format-backup.md what every byte means.
//
// # Incremental by identity
//
// A table or value file never changes, and its unique id is 16 random bytes. The id, the size and the checksum that the
// manifest has of the file give the name of its object, so a create knows before it reads a file whether the repository
// has it. It reads no earlier backup for that. So a create that was killed goes on with the objects that are there, and
// a create that only knows the recipients of an encrypted repository is incremental, too.
//
// # Parts of logs
//
// The name of a part says which segments it has, and up to which time its store's log is complete with it. It is put as
// a whole, and the store gives its segments up only after that. So a ship that is killed leaves nothing that misleads,
// and two of them put parts that overlap, of which any counts. A prune deletes parts that lie before the logs of all
// backups of their store. A backup that is made meanwhile, of the same store, needs only later ones.
//
// # Create beside prune
//
// A repository has no locks. It must show what was put, and no longer show what was deleted, to every later call.
// A description is put last, and makes the backup exist. The danger is an object that a create finds and a prune
// deletes. Three rules exclude that:
//
//   - The name of an object ends in random bytes, so a name that was deleted never comes back.
//   - A create puts a notice, then lists the plans of prunes, then the objects. It uses no object that a plan names.
//     It deletes the notice after it has put the description.
//   - A prune puts its plan before it looks for notices and, after that, for new backups. It deletes objects only if it
//     finds neither.
//
// If a create has read the plans before the plan was put, its notice was there before. So the prune finds the
// notice, or the create has ended and the prune finds the backup.
//
// # Dead creates
//
// A create that is killed leaves its notice. When that is old, a prune settles, once and for all, whether the backup
// counts:
//
//   - The prune puts a doubt, which is its own. Then it looks for the description.
//   - If there is none, it puts the name of the backup below abandoned, where it stays for ever. A description of that
//     name does not count.
//   - It deletes the notice, and then the doubt.
//
// A create that has put its description looks for doubts first, and then for the first object of its notice. It reports
// success only if it finds no doubt, and finds that object. It never takes its description back.
//
// A backup that was reported counts: if it is abandoned, a prune has put its doubt before the description was there. So
// the create found the doubt; or the doubt had gone, and the notice before it.
//
// A backup that counts is whole, also if its create died or failed. A prune deletes objects beside that create only if
// it finds no notice of it. Then some prune has deleted the notice. Either that prune has put the name below
// abandoned before; or it has seen the description, and so does the one that deletes objects, which looks for backups
// after it looked for notices.
//
// A backup counts as one to keep, so that older ones may go, only if it will count later, too. A prune lists
// descriptions, then notices, then doubts, then what is abandoned. A backup that is yet to be abandoned was put after
// the doubt, and the doubt stays until it is abandoned. So the prune finds the doubt, or what followed it. This alone
// needs time: doubts of dead prunes are deleted when they are as old as notices of dead creates. A prune must not stand
// still for so long between its doubt and what follows.
//
// # Over a network
//
// A request whose answer does not come may be carried out later, and one that is sent again may be carried out twice. So
// a name that was deleted can come back: its put was sent twice, and the first one is carried out after the delete. The
// proofs above hold if a server is done with a request before a create or prune that follows it by minutes deletes what
// it put. S3 refuses requests that are older than 15 minutes. What is left of each kind of request:
//
//   - The put of a description that fails. The create puts its own name below abandoned, before it deletes its notice.
//     If that fails, too, the notice stays, and a prune settles it.
//   - The put of a description that was sent twice. If one is carried out after a prune has deleted the backup, the
//     description is there again, without its objects: verify names them.
//   - The put of an object that comes back takes space until a prune deletes it. A create may use it: it is whole.
//   - The put of a notice, a doubt or a plan that comes back delays prunes, until it is as old as that of a dead process
//     (notices and doubts), or another prune deletes it (plans).
//   - The delete of an object that fails. The prune leaves its plan, so no create uses the object. A later prune deletes
//     that plan only after it has itself deleted all that the plan names. A delete that was sent twice, and is carried
//     out late, finds nothing, unless the object has come back as above.
//   - The marker is put without a condition. Of two first creates with different settings the last put holds, also one
//     that is carried out late. A create compares the marker before it puts its description; the other kind is refused
//     from then on, and its objects stay.
package backup
