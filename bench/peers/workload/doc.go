// Package workload holds what is measured: the data, the workloads, and the
// clockwork that times them. A workload runs in a process of its own, on a store
// that it opens itself, and checks a sample of every answer it gets, in order
// and in content: a figure of a wrong answer is no figure.
package workload
