// Package external applies the entries of a log that belongs to another program, and knows the form of
// their payloads. It gives each entry its sequence numbers and time, which follow from the log alone.
package external
