package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

type healthCommand struct {
	MetricsAddr string        `default:"127.0.0.1:9187" env:"FLAGSTONE_METRICS_ADDR" help:"The --metrics-addr of the server, ${default} if not given."`
	Timeout     time.Duration `default:"5s" help:"How long to wait for the answer, ${default} if not given."`
}

// Run fails with the reason that the server gives if it is not ready. It is for health checks of machines without curl.
func (h *healthCommand) Run(ctx context.Context, c *output) error {
	if _, _, err := net.SplitHostPort(h.MetricsAddr); err != nil || strings.Contains(h.MetricsAddr, "/") {
		return misuse("--metrics-addr is %q; write host and port, like 127.0.0.1:9187", h.MetricsAddr)
	}
	if h.Timeout <= 0 {
		return misuse("--timeout is %s; give a time above 0", h.Timeout)
	}
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.MetricsAddr+"/readyz", nil)
	if err != nil {
		return misuse("--metrics-addr: %w", err)
	}
	// The check is of this machine, so no proxy stands between.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the server is not ready: %s: %s", answer.Status, text)
	}
	_, err = fmt.Fprintln(c.out, strings.TrimSpace(string(text)))
	return err
}
