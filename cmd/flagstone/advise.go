package main

import (
	"context"
	"fmt"

	"github.com/flagstone-db/flagstone/instances/admin"
)

type adviseCommand struct {
	at
	Table    string `arg:"" predictor:"table" help:"The table."`
	Instance string `default:"demo" env:"FLAGSTONE_INSTANCE" help:"Its instance."`
	Rows     int    `default:"10000" help:"About how many rows to look at, 100000 at most."`
	JSON     bool   `name:"json" help:"Print the report as JSON."`
}

// Help is the long help of the command.
func (adviseCommand) Help() string {
	return `Looks at rows that are spread over the table's bytes, and, if a server has the store open, at what requests to each partition key cost lately: a request counts half after ten minutes, or after 20 seconds if the load is new. Says whether partition keys concentrate size or load, and whether new rows come next to each other; and for splices of key columns and hash prefixes that would help, what they would change in this table. Package keydesign makes such keys.

Nothing is changed. A table under load can be asked.`
}

// Run prints the report.
func (a *adviseCommand) Run(ctx context.Context, c *output) error {
	return a.with(ctx, toRead, func(home admin.Admin) error {
		report, err := home.KeyReport(ctx, a.Instance, a.Table, a.Rows)
		if err != nil {
			return err
		}
		if !a.JSON {
			report.Table = a.Instance + "/" + a.Table // as the commands that it names take it
			fmt.Fprint(c.out, report.Text())
			return nil
		}
		return c.json(report)
	})
}
