// Package doctor examines a gateway, its machine and its network, and reports what is
// wrong and what to do about it, to a person on site with a terminal. It is the
// subcommand `monitor-gateway doctor`; the gateway itself uses its checks of clock and
// disk.
//
// It publishes nothing, never opens the outbox of a running gateway, writes only a temporary
// file that measures the disk, and needs no permission at Google that the gateway does not
// have.
package doctor

import (
	"context"
	"net/netip"
	"time"

	"google.golang.org/api/option"

	"coldaisle.dev/edge-gateway/announce"
)

// Config says what to examine; the settings are the gateway's.
type Config struct {
	ProjectID, Topic string
	OutboxDir        string
	OutboxMaxBytes   int64
	Port             int
	Version          string   // of this program
	Unknown          []string // describes variables that are set but are not settings
	EnrolledAs       string   // describes the gateway's enrolment; empty for an open gateway
	// CredentialsFile is GOOGLE_APPLICATION_CREDENTIALS; without it credentials are found
	// as by Google's libraries.
	CredentialsFile string
	Emulator        string                // PUBSUB_EMULATOR_HOST, which replaces Google's Pub/Sub
	Google          string                // where the time is read; empty for Pub/Sub's own address
	PubSub          []option.ClientOption // of its client, beside the credentials
	MDNSDisabled    bool                  // the gateway announces nothing
	Clock           func() time.Time

	here bool // the gateway should run on this machine
}

// patience is the longest time for one check's request.
const patience = 10 * time.Second

// Examine runs all checks, each after the ones that it depends on.
func Examine(ctx context.Context, c Config) *Report {
	r := &Report{}
	c.here = true
	c.settings(r)
	c.clock(ctx, r)
	switch {
	case c.EnrolledAs != "":
		r.ok("enrolment", "%s", c.EnrolledAs) // /health says whether it is still valid
	case c.Emulator != "":
		r.ok("credentials", "not needed: PUBSUB_EMULATOR_HOST is %s", c.Emulator)
	default:
		if account := c.credentials(ctx, r); account != nil {
			c.topic(ctx, r, account)
		}
	}
	h, err := Health(ctx, c.url(netip.AddrFrom4([4]byte{127, 0, 0, 1})))
	c.outbox(r, h)
	c.gateway(r, h, err)
	c.network(ctx, r, h.Announced)
	return r
}

func (c Config) settings(r *Report) {
	const subject = "settings"
	for _, text := range c.Unknown {
		r.warn(subject, "correct it and restart the gateway; until then its default holds (monitor-gateway help)", "%s", text)
	}
	if len(c.Unknown) == 0 {
		r.ok(subject, "nothing is set that the gateway does not know")
	}
}

// ExamineNetwork looks for a gateway as a node does, from any machine: a laptop in the
// nodes' network shows whether multicast arrives there.
func ExamineNetwork(ctx context.Context, c Config) *Report {
	r := &Report{}
	c.network(ctx, r, announce.State{})
	return r
}
