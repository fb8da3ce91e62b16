// Package external is a store's side of a log that belongs to another program. It applies the entries of that
// log, puts commands and batches into it, and knows the form of their payloads. It gives each entry its sequence
// numbers and time, which follow from the log alone.
package external
