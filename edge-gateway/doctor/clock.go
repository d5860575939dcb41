package doctor

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"time"
)

const google = "https://pubsub.googleapis.com/"

// Limits of the clock. Readings carry its time; Google refuses the tokens of
// one that is wrong by minutes, and detection takes a reading of ten minutes ago
// for old.
const (
	clockSlack = 2 * time.Second
	clockLimit = time.Minute
)

const setClock = "let it be set from the network: sudo timedatectl set-ntp true; a machine without a battery-backed clock has the wrong time after each power failure until it reaches a time server (UDP port 123)"

// clock compares the machine's clock with Google's, which the head of any of its
// answers tells to the second.
func (c Config) clock(ctx context.Context, r *Report) {
	const subject = "clock"
	if c.Emulator != "" && c.Google == "" {
		r.ok(subject, "not compared: no Google is asked beside an emulator")
		return
	}
	off, within, err := c.clockError(ctx)
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		r.problem(subject, setClock, "says %s, at which Google's certificate is not valid: it is wrong by weeks or more", c.Clock().UTC().Format(time.DateTime))
		return
	}
	if err != nil {
		r.warn(subject, "check the uplink; HTTPS to pubsub.googleapis.com must be open", "not compared, Google does not answer: %v", err)
		return
	}
	switch away := off.Abs(); {
	case away > clockLimit:
		r.problem(subject, setClock, "%s", describeOffset(off))
	case away > clockSlack+within:
		r.warn(subject, setClock, "%s", describeOffset(off))
	default:
		r.ok(subject, "right, as far as Google's answer tells (to %s)", (clockSlack + within).Round(time.Second))
	}
}

// CheckClock is the same question for the gateway itself: the error is that the clock
// is wrong. When Google does not answer nothing is known, which is not the clock's
// fault.
func (c Config) CheckClock(ctx context.Context) error {
	if c.Emulator != "" && c.Google == "" {
		return nil
	}
	off, _, err := c.clockError(ctx)
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return fmt.Errorf("wrong by weeks or more: %w", err)
	}
	if err == nil && off.Abs() > clockLimit {
		return errors.New(describeOffset(off))
	}
	return nil
}

func describeOffset(off time.Duration) string {
	direction := "fast"
	if off < 0 {
		direction = "slow"
	}
	return fmt.Sprintf("%s by %s", direction, off.Abs().Round(time.Second))
}

// clockError returns how far the clock is ahead, and within what bounds that is
// known.
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
