package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/flagstone-db/flagstone/instances/admin"
)

type consoleCommand struct {
	at
	End bool `help:"End all sessions instead."`
}

// Help is the long help of the command.
func (consoleCommand) Help() string {
	return `The console shows the stores, tables, rows, table files, background work and the load of keys of a server, in pages that the server has in itself. The link works once, within five minutes, and opens a session that ends twelve hours after it was used last. It works in browsers of this machine only; from elsewhere, forward the port by ssh. Paste it: arguments of commands can be seen by other users of the machine.`
}

// Run prints the link.
func (k *consoleCommand) Run(ctx context.Context, c *output) error {
	server, err := k.server(ctx)
	if err != nil {
		return err
	}
	defer server.Close()
	if k.End {
		return server.EndSessions(ctx)
	}
	url, err := server.Console(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintln(c.out, url)
	return nil
}

// endpoint is the address at which a server serves the store. The error matches admin.ErrNoServer if there is no server.
func (a *at) endpoint(ctx context.Context) (string, error) {
	server, err := admin.Connect(ctx, a.Dir)
	if err != nil {
		return "", err
	}
	endpoint, keyID, err := server.Endpoint(), server.KeyID(), server.Close()
	if err == nil && endpoint == "" {
		return "", fmt.Errorf("the server that has %s open is older than this program, and does not tell its address; give it with --endpoint", a.Dir)
	}
	a.found, a.keyID = err == nil, keyID
	return endpoint, err
}

// server connects to the server that has the store open.
func (a *at) server(ctx context.Context) (*admin.Client, error) {
	client, err := admin.Connect(ctx, a.Dir)
	if errors.Is(err, admin.ErrNoServer) {
		return nil, fmt.Errorf("%w for the store in %s; name it with --dir, or start one with 'flagstone serve'", admin.ErrNoServer, a.Dir)
	}
	return client, err
}
