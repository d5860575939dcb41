// Command nodecheck tells the author of a node's firmware what it does wrong.
//
// It plays the gateway on a port: the answers are those of the gateway's own code, but
// for a few that a node must be able to take, such as none at all. Set the gateway's
// address in the firmware to this machine and its interval to a second, start it, and
// read what nodecheck says:
//
//	go run ./run/tools/nodecheck -listen :8080 -interval 1s
//
// It ends when it has seen enough, with status 1 if something is wrong. docs/nodes.md
// has the protocol.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/config"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/pause"
)

func main() {
	config.Main("nodecheck", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Stdout, time.Now) })
}

func run(ctx context.Context, arguments []string, out io.Writer, clock func() time.Time) error {
	flags := flag.NewFlagSet("nodecheck", flag.ContinueOnError)
	address := flags.String("listen", ":8080", "`address` to listen on")
	interval := flags.Duration("interval", 30*time.Second, "between two readings, as the node is set")
	if err := flags.Parse(arguments); err != nil {
		return fmt.Errorf("command line: %w", err)
	}
	if *interval <= 0 {
		return fmt.Errorf("-interval must be over 0: got %s", *interval)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	_, _ = fmt.Fprintf(out, "waiting for a node at %s\n", listener.Addr())
	findings, err := check(ctx, listener, *interval, clock)
	if err != nil {
		return err
	}
	wrong := 0
	for _, f := range findings {
		_, _ = fmt.Fprintf(out, "%-5s %s\n", f.severity, f.text)
		if f.severity == isWrong {
			wrong++
		}
	}
	if wrong > 0 {
		return fmt.Errorf("the node does %d things wrong", wrong)
	}
	return nil
}

// check plays a gateway on a listener until it has seen enough of the first node that
// calls, or that falls silent, or the context ends.
func check(ctx context.Context, listener net.Listener, interval time.Duration, clock func() time.Time) (found []finding, err error) {
	folder, err := os.MkdirTemp("", "nodecheck")
	if err != nil {
		return nil, fmt.Errorf("a folder for the outbox: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	box, err := outbox.Open(folder, outbox.Options{Retain: gateway.OutboxRetention, Clock: clock})
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	defer func() { err = errors.Join(err, box.Close()) }()
	takesAll := gateway.PublishFunc(func(context.Context, gateway.Message) error { return nil })
	site := gateway.New(gateway.Config{}, takesAll, box, clock, logging.Discard())
	e := newExamination(site, interval, clock)
	server := &http.Server{Handler: e, ReadHeaderTimeout: minSilence}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	for !e.over() && pause.For(ctx, lookEvery) == nil {
		continue
	}
	err = server.Close() // the node is not told
	if stopped := <-served; !errors.Is(stopped, http.ErrServerClosed) {
		err = errors.Join(err, stopped)
	}
	return e.findings(), err
}
