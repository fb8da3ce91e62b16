// Package backup keeps backups of a store, or of the home of a server, in a repository: a folder, or another place
// that keeps whole objects by name. A backup is made from a checkpoint, so the store is in use meanwhile.
//
//	repository.go   what a repository must be able to do, and the names in it
//	folder.go       a repository in a folder
//	archive.go      an open repository: its marker, and the list of its backups
//	source.go       the files of a checkpoint, and what is known of them before they are read
//	object.go       a file of a backup, as the repository keeps it
//	description.go  which files a backup has
//	create.go       makes a backup
//	unfinished.go   what a create announces, so that a prune spares it
//	verify.go       reads everything and compares checksums
//	prune.go        deletes backups, and then objects that no backup refers to
//	restore.go      makes a directory of a backup
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
// # Create beside prune
//
// A repository has no locks. It must show what was put, and no longer show what was deleted, to every later call.
// A description is put last, and makes the backup exist. The danger is an object that a create finds and a prune
// deletes. Three rules exclude that:
//
//   - The name of an object ends in random bytes, so a name that was deleted never comes back.
//   - A create puts a notice, then lists the plans of prunes, then the objects. It uses no object that a plan names.
//     It deletes the notice after it has put the description, and the backup counts only if the notice was still there
//     then.
//   - A prune puts its plan before it looks for notices and, after that, for new backups. It deletes objects only if it
//     finds neither, or only notices that it has deleted itself because they are old.
//
// If a create has read the plans before the plan was put, its notice was there before. So the prune finds the
// notice, or the create has ended and the prune finds the backup. Or a prune has deleted the notice as old: then
// that prune looks for backups later, and either it finds this one, or the create does not find its notice and
// takes the backup back.
package backup
