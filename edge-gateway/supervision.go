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

// supervise tells systemd, if that started the gateway, that it serves, and goes
// on telling it for as long as /health answers. A gateway that has stopped
// answering is thereby started again, on a machine that no one looks after. It
// ends with its context; the error is always nil, for an errgroup.
func supervise(ctx context.Context, address string, log *slog.Logger) error {
	told, err := daemon.SdNotify(false, daemon.SdNotifyReady)
	if err != nil {
		log.WarnContext(ctx, "systemd cannot be told", "error", err.Error())
	}
	patience, err := daemon.SdWatchdogEnabled(false)
	if !told || err != nil || patience <= 0 {
		return nil
	}
	client := newVisitor(patience / 2)
	tick := time.NewTicker(patience / 3)
	defer tick.Stop()
	for {
		if err := alive(ctx, client, address); err == nil {
			_, err = daemon.SdNotify(false, daemon.SdNotifyWatchdog)
			if err != nil {
				log.WarnContext(ctx, "systemd cannot be told", "error", err.Error())
			}
		} else if ctx.Err() == nil {
			log.ErrorContext(ctx, "gateway does not answer itself", "error", err.Error())
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
