# Short words for the commands of CONTRIBUTING.md. What must hold before a change lands is
# decided by .ci/run alone, which needs no make.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c

.PHONY: build test race fuzz bench ci release

build:
	go build ./...

test:
	go test ./...

race:
	go test -race -short ./...

fuzz:
	go test ./... -list '^Fuzz' | awk '/^Fuzz/ {t[n++]=$$1} /^ok/ {for (i=0; i<n; i++) print $$2, t[i]; n=0}' | while read -r pkg target; do go test "$$pkg" -run '^$$' -fuzz "^$$target\$$" -fuzztime 2s -fuzzminimizetime 10x; done

bench:
	go test -run '^$$' -bench . -skip 'Backup|KeptLog' -benchmem -timeout 1h ./bench

ci:
	.ci/run

release:
	go run -C tools ./release -out ../dist
