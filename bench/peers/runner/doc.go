// Package runner runs workloads side by side: every run of a workload on an
// engine in a child process of its own, with a fresh directory or a copy of a
// loaded one; the engines of a workload one after the other, in an order that
// rotates from round to round; and a record of each run in a file, by which an
// interrupted pass is resumed.
package runner
