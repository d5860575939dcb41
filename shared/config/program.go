package config

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/signal"
	"syscall"
)

// Main is the body of a program's main. The context of run ends with an interrupt
// or SIGTERM. An error is printed by [PrintError] and ends the program with status
// 1; a request for help is not an error.
func Main(program string, run func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		PrintError(os.Stderr, program, err)
		os.Exit(1)
	}
}
