// Command monitor-gateway is the edge gateway of a site: sensor nodes find it by
// multicast DNS and post their readings, and it publishes these to Pub/Sub.
// monitor-gateway help lists its subcommands and settings.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"coldaisle.dev/shared/config"
)

// version is stamped by the linker: -ldflags "-X main.version=v1.2.3".
var version string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := hint(os.Args[1:], run(ctx, os.Args[1:], os.Environ()))
	stop()
	if err != nil {
		if !errors.Is(err, errProblemsFound) {
			config.PrintError(os.Stderr, "monitor-gateway", err)
		}
		os.Exit(1)
	}
}

// hint suggests sudo after a permission error of a command.
func hint(args []string, err error) error {
	if len(args) > 0 && errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w\ntry it with sudo", err)
	}
	return err
}

func run(ctx context.Context, args, environ []string) error {
	switch {
	case len(args) == 0:
		return serve(ctx, environ, time.Now)
	case args[0] == "enrol":
		return runEnrol(ctx, args[1:], environ, os.Stdin, os.Stdout, installation{"/"})
	case args[0] == "doctor":
		return runDoctor(ctx, args[1:], environ, os.Stdout, time.Now)
	case args[0] == "drill":
		return runDrill(ctx, args[1:], environ, os.Stdout, installation{"/"})
	case args[0] == "watch":
		return runWatch(ctx, args[1:], withServiceEnvironment(environ, installation{"/"}), os.Stdin, os.Stdout, time.Now)
	case len(args) > 1:
		return fmt.Errorf("unknown arguments %q: see monitor-gateway help", args)
	}
	switch strings.TrimLeft(args[0], "-") {
	case "healthy":
		return healthy(ctx, environ)
	case "version", "v":
		fmt.Println("monitor-gateway", buildVersion())
		return nil
	case "help", "h":
		return usage(os.Stdout)
	default:
		return fmt.Errorf("unknown argument %q: see monitor-gateway help", args[0])
	}
}

// buildVersion is the stamped version, or the one that the Go tool recorded.
func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); version == "" && ok {
		return info.Main.Version
	}
	return version
}
