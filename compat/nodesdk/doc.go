// Package nodesdk holds no code, only tests: the official Table Store SDK for
// Node.js, unmodified, against a flagstone server, and together with the one
// for Go: each reads what the other wrote.
//
// Run it with go test. It needs node and npm in the path, and a registry (or
// npm's cache) that has the packages of package-lock.json; all other traffic
// stays on this machine. The JavaScript is client.js.
package nodesdk
