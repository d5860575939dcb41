package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"coldaisle.dev/edge-gateway/nodesim"
	"coldaisle.dev/run/local/system"
	"coldaisle.dev/run/tools/ledger"
	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/config"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/pause"
	"coldaisle.dev/shared/recording"
)

// replayReport is the result of a replay: rows sent, rows stored, alerts.
type replayReport struct {
	ledger.Totals

	answered, settled time.Duration // from the first row sent until all were answered, and delivered
}

// String lists the figures, one a line.
func (r replayReport) String() string {
	return fmt.Sprintf("sent %d\nstored %d\nduplicates %d\nalerts %d\nunexplained %d\nreadings/s %.0f to the gateway's answer, %.0f to the stored row",
		r.Sent, r.Stored, r.Duplicated, r.Alerted, r.Unexplained,
		float64(r.Answered)/r.answered.Seconds(), float64(r.Stored)/r.settled.Seconds())
}

// replayFile replays a recording through a system in a folder.
func replayFile(ctx context.Context, path, dir string, environ []string, clock func() time.Time) (report replayReport, err error) {
	o, err := config.Load[system.Options](environ)
	if err != nil {
		return report, err
	}
	file, err := os.Open(path) //nolint:gosec // the file that the user names
	if err != nil {
		return report, fmt.Errorf("replay: %w", err)
	}
	defer func() { _ = file.Close() }()
	o.DataDir, o.Clock, o.Log = dir, clock, logging.Discard()
	return replayThrough(ctx, o, file)
}

// replayThrough replays a recording through a system of its own.
func replayThrough(ctx context.Context, o system.Options, file io.Reader) (report replayReport, err error) {
	running, err := system.Start(ctx, o)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, running.Stop()) }()
	return replay(ctx, running, file, o.Clock, 0)
}

// replay registers the recording's nodes as sensors of a new customer of a system that
// has no others, sends the recording as fast as the gateway answers, waits until it is
// delivered, and compares: the error says what does not match. The system's clock may be ahead by so much.
func replay(ctx context.Context, running *system.System, file io.Reader, clock func() time.Time, ahead time.Duration) (report replayReport, err error) {
	recorded, err := recording.Read(file, nil)
	if err != nil {
		return report, err
	}
	user := &system.APIUser{Base: running.APIURL}
	credentials := system.Credentials{Email: "replay-" + rand.Text() + "@example.com", Password: "Aa1-" + rand.Text()}
	if err := user.SignIn(ctx, credentials, "r"+rand.Text()[:11]); err != nil {
		return report, err
	}
	if err := user.CreateRoom(ctx, "Replay", recorded.Nodes); err != nil {
		return report, err
	}
	l := ledger.New(func(string) alert.Thresholds { return alert.Defaults() }, clock)
	l.Ahead = ahead
	started := clock()
	transport := l.Transport(&http.Transport{MaxIdleConnsPerHost: nodesim.ReplayConnections, DisableCompression: true})
	if err := nodesim.Replay(ctx, running.GatewayURL, recorded, transport, clock); err != nil {
		return report, err
	}
	report.answered = clock().Sub(started)
	if err := waitDelivered(ctx, running, l, clock); err != nil {
		return report, err
	}
	report.settled = clock().Sub(started)
	err = l.Close(ctx, running.Pool)
	report.Totals = l.Sum()
	if rejected := report.Sent - report.Answered - report.Unanswered - report.Unexplained; rejected+report.Duplicated > 0 {
		err = errors.Join(err, fmt.Errorf("%d rows were rejected and %d are stored twice", rejected, report.Duplicated))
	}
	return report, err
}

// waitDelivered waits until everything is delivered. An emulator that pushes by itself does
// not say when: there it waits until the stores match, or nothing more has come for
// two minutes.
func waitDelivered(ctx context.Context, running *system.System, l *ledger.Ledger, clock func() time.Time) error {
	const patience = 2 * time.Minute
	if running.Queue != nil {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		return running.Queue.Drain(ctx)
	}
	for progress, before := clock(), -1; ; {
		open, err := l.Settle(ctx, running.Pool, clock().Add(time.Hour))
		if err != nil || len(open) == 0 {
			return err
		}
		if now := clock(); len(open) != before {
			progress, before = now, len(open)
		} else if now.Sub(progress) > patience {
			return nil // the comparison tells what is missing
		}
		if err := pause.For(ctx, 500*time.Millisecond); err != nil {
			return fmt.Errorf("wait for delivery: %w", err)
		}
	}
}
