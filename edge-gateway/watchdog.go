package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"coldaisle.dev/edge-gateway/doctor"
)

// runWatchdog notifies systemd that the gateway is ready, then keeps the watchdog
// alive for as long as /health answers. systemd restarts a gateway that stops
// answering. Without systemd it does nothing. It runs until ctx is canceled and
// always returns nil; the error is for errgroup.
func runWatchdog(ctx context.Context, port int, log *slog.Logger) error {
	notified, err := daemon.SdNotify(false, daemon.SdNotifyReady)
	if err != nil {
		log.WarnContext(ctx, "systemd notification failed", "error", err.Error())
	}
	watchdogTimeout, err := daemon.SdWatchdogEnabled(false)
	if !notified || err != nil || watchdogTimeout <= 0 {
		return nil
	}
	tick := time.NewTicker(watchdogTimeout / 3)
	defer tick.Stop()
	for {
		limited, cancel := context.WithTimeout(ctx, watchdogTimeout/2)
		err := alive(limited, port)
		cancel()
		if err == nil {
			_, err = daemon.SdNotify(false, daemon.SdNotifyWatchdog)
			if err != nil {
				log.WarnContext(ctx, "systemd notification failed", "error", err.Error())
			}
		} else if ctx.Err() == nil {
			log.ErrorContext(ctx, "health check failed", "error", err.Error())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
			return nil
		}
	}
}

// alive queries /health over a new connection, as a node does: a kept-alive one may work while
// new ones fail.
func alive(ctx context.Context, port int) error {
	_, _, err := doctor.State(ctx, port)
	return err
}
