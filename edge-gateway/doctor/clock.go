package doctor

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"coldaisle.dev/edge-gateway/clock"
)

const google = "https://pubsub.googleapis.com/"

// Limits of the clock's error. Readings have its time, Google refuses tokens that are
// off by minutes, and detection treats a reading of ten minutes ago as late.
const (
	clockSlack = 2 * time.Second
	clockLimit = time.Minute
)

const setClock = "let it be set from the network: sudo timedatectl set-ntp true; a machine without a battery-backed clock has the wrong time after each power failure until it reaches a time server (UDP port 123)"

// clock compares the machine's clock with the header Date of an answer of Google's,
// which is precise to a second.
func (c Config) clock(ctx context.Context, r *Report) {
	const subject = "clock"
	if c.Emulator != "" && c.Google == "" {
		r.ok(subject, "not compared: no Google is asked beside an emulator")
		return
	}
	asked, _ := url.Parse(cmp.Or(c.Google, google)) // it is valid
	off, within, err := c.clockError(ctx)
	invalid, _ := errors.AsType[x509.CertificateInvalidError](err)
	switch away := off.Abs(); {
	case invalid.Reason == x509.Expired && invalid.Cert.VerifyHostname(asked.Hostname()) == nil: // not a hotspot's
		r.problem(subject, setClock, "says %s, at which Google's certificate is not valid: it is wrong by weeks or more", c.Clock().UTC().Format(time.DateTime))
	case err != nil:
		r.warn(subject, "check the uplink; HTTPS to pubsub.googleapis.com must be open", "not compared, Google does not answer: %v", err)
	case away > clockLimit:
		r.problem(subject, setClock, "%s", clock.FastBy(off))
	case away > clockSlack+within:
		r.warn(subject, setClock, "%s", clock.FastBy(off))
	default:
		r.ok(subject, "right, as far as Google's answer tells (to %s)", (clockSlack + within).Round(time.Second))
	}
}

// CheckClock is the gateway's own check. It returns an error if the clock is wrong, and nil
// if Google does not answer.
func (c Config) CheckClock(ctx context.Context) error {
	r := &Report{}
	c.clock(ctx, r)
	return r.err(Problem)
}

// clockError returns how far the clock is ahead, and the error of that measurement.
func (c Config) clockError(ctx context.Context) (off, within time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodHead, cmp.Or(c.Google, google), nil)
	if err != nil {
		return 0, 0, fmt.Errorf("ask for the time: %w", err)
	}
	before := c.Clock()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, 0, fmt.Errorf("ask for the time: %w", err)
	}
	after := c.Clock()
	_ = response.Body.Close()
	date, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		return 0, 0, fmt.Errorf("the answer has no time: %w", err)
	}
	// The header has left out up to a second, and was written at some time in
	// between.
	taken := after.Sub(before)
	return before.Add(taken / 2).Sub(date.Add(time.Second / 2)), (taken + time.Second) / 2, nil
}
