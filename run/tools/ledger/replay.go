package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"coldaisle.dev/edge-gateway/nodesim"
	"coldaisle.dev/run/local/system"
	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/pause"
	"coldaisle.dev/shared/recording"
)

// ReplayReport is the result of a replay: rows sent, rows stored, alerts.
type ReplayReport struct {
	Totals

	Rows    nodesim.Result
	Settled time.Duration // from the first row sent until everything was delivered
}

// String lists the figures, one a line.
func (r ReplayReport) String() string {
	return fmt.Sprintf("sent %d\nstored %d\nduplicates %d\nalerts %d\nunexplained %d\nreadings/s %.0f to the gateway's answer, %.0f to the stored row",
		r.Sent, r.Stored, r.Duplicated, r.Alerted, r.Unexplained,
		r.Rows.PerSecond(), float64(r.Stored)/r.Settled.Seconds())
}

const (
	// settleTime bounds the wait for the pipeline after the last row was sent, or,
	// where only the stores can be looked at, after the last one came.
	settleTime = 2 * time.Minute
	// settleInterval is the time between two looks at the stores.
	settleInterval = 500 * time.Millisecond
)

// Replay registers the recording's nodes as sensors of a new customer of a system that
// has no others, sends the recording as fast as the gateway answers, waits until it is
// delivered, and compares: the report's error says what does not match. The system's clock may be ahead by so much.
func Replay(ctx context.Context, running *system.System, file io.Reader, clock func() time.Time, ahead time.Duration) (ReplayReport, error) {
	var report ReplayReport
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
	l := New(func(string) alert.Thresholds { return alert.Defaults() }, clock)
	l.ahead = ahead
	started := clock()
	transport := l.Transport(&http.Transport{MaxIdleConnsPerHost: nodesim.ReplayConnections, DisableCompression: true})
	report.Rows, err = nodesim.Replay(ctx, running.GatewayURL, recorded, transport, clock)
	if err != nil {
		return report, fmt.Errorf("send recording: %w", err)
	}
	if err := l.waitDelivered(ctx, running); err != nil {
		return report, err
	}
	report.Settled = clock().Sub(started)
	err = l.Close(ctx, running.Pool)
	report.Totals = l.Sum()
	if report.Rows.Rejected+report.Duplicated > 0 {
		err = errors.Join(err, fmt.Errorf("%d rows were rejected and %d are stored twice", report.Rows.Rejected, report.Duplicated))
	}
	return report, err
}

// waitDelivered waits until everything is delivered. An emulator that pushes by itself does
// not say when: there it waits until the stores match, or nothing more has come for
// settleTime.
func (l *Ledger) waitDelivered(ctx context.Context, running *system.System) error {
	if running.Queue != nil {
		ctx, cancel := context.WithTimeout(ctx, settleTime)
		defer cancel()
		return running.Queue.Drain(ctx)
	}
	for progress, before := l.clock(), -1; ; {
		open, err := l.Settle(ctx, running.Pool, l.clock().Add(time.Hour))
		if err != nil || open == 0 {
			return err
		}
		if now := l.clock(); open != before {
			progress, before = now, open
		} else if now.Sub(progress) > settleTime {
			return nil // the comparison tells what is missing
		}
		if err := pause.For(ctx, settleInterval); err != nil {
			return fmt.Errorf("wait for delivery: %w", err)
		}
	}
}
