package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// runWatchdog notifies systemd that the gateway is ready, then keeps the watchdog
// alive for as long as /health answers. systemd restarts a gateway that stops
// answering. Without systemd it does nothing. It runs until ctx is canceled and
// always returns nil; the error is for errgroup.
func runWatchdog(ctx context.Context, address string, log *slog.Logger) error {
	notified, err := daemon.SdNotify(false, daemon.SdNotifyReady)
	if err != nil {
		log.WarnContext(ctx, "systemd notification failed", "error", err.Error())
	}
	watchdogTimeout, err := daemon.SdWatchdogEnabled(false)
	if !notified || err != nil || watchdogTimeout <= 0 {
		return nil
	}
	client := newVisitor(watchdogTimeout / 2)
	tick := time.NewTicker(watchdogTimeout / 3)
	defer tick.Stop()
	for {
		if err := alive(ctx, client, address); err == nil {
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

// newVisitor returns a client that opens a connection for each request, as a node
// that comes to the gateway does: a kept one would be answered though nobody else
// is let in.
func newVisitor(timeout time.Duration) *http.Client {
	return &http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true}}
}

// alive asks the gateway for its health as anyone else would.
func alive(ctx context.Context, client *http.Client, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/health", nil)
	if err != nil {
		return fmt.Errorf("ask for health: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask for health: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return fmt.Errorf("ask for health: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("ask for health: answered %s", response.Status)
	}
	return nil
}
