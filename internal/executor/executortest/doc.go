// Package executortest offers an executor that a test steps by hand, so that a history with
// background work can be repeated.
package executortest
