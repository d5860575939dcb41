// Command server is the backend API as Cloud Run runs it. Its environment is
// in config.go.
//
//	server                  serves the API until SIGTERM
//	server migrate          brings the database's schema up to date, gives each
//	                        component exactly its rights, and ends
//	server migrate expand   the same, but takes no rights away: a release runs it
//	                        while the version before still serves
package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"time"

	"coldaisle.dev/shared/config"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/store"
)

func main() {
	// bcrypt occupies a processor for a quarter of a second, and Go preempts it only each
	// 10 ms. With twice the cores, half of them for passwords, the operating system shares
	// the cores: other requests take 0.2 ms instead of 100 ms during a burst of logins
	// (BenchmarkLoginFlood).
	runtime.GOMAXPROCS(2 * runtime.GOMAXPROCS(0))
	config.Main("server", func(ctx context.Context) error { return run(ctx, os.Args[1:], os.Environ()) })
}

func run(ctx context.Context, arguments, environment []string) error {
	switch strings.Join(arguments, " ") {
	case "":
		s, err := config.Load[Config](environment)
		if err != nil {
			return err
		}
		return serve(ctx, s, logging.New(os.Stdout, slog.LevelInfo, s.ProjectID), time.Now)
	case "migrate":
		return migrate(ctx, environment, store.Grant)
	case "migrate expand":
		return migrate(ctx, environment, store.Extend)
	default:
		return errors.New("usage: server [migrate [expand]]")
	}
}
