// Command recordings replays a recording, a CSV file of readings, through a system of
// its own, and compares what was stored with what was sent: `make replay FILE=…`.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/config"
)

func main() {
	config.Main("recordings", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Environ()) })
}

func run(ctx context.Context, arguments, environ []string) error {
	if len(arguments) != 1 {
		return errors.New("usage: recordings FILE.csv")
	}
	o, err := config.Load[system.Options](environ)
	if err != nil {
		return err
	}
	report, err := replay(ctx, o, arguments[0], time.Now)
	if err != nil {
		return err
	}
	fmt.Println(report)
	return report.Check()
}
