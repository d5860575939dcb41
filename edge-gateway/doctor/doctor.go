// Package doctor examines a gateway, its machine and its network, and says what
// is wrong and what to do about it: what a person on site asks who has nothing
// but a terminal. It is the subcommand `monitor-gateway doctor`.
//
// It looks on from outside: it publishes nothing, never opens the outbox that a
// gateway has open, and changes nothing on the machine. What it asks of Google
// needs no more rights than the gateway's own.
package doctor

import (
	"context"
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
	Version          string // of this program
	// Unknown says of what is set that it is no setting.
	Unknown []string

	// EnrolledAs is what the gateway is enrolled as; empty for an open gateway.
	EnrolledAs string
	// CredentialsFile is GOOGLE_APPLICATION_CREDENTIALS; without it they are
	// looked for where Google's libraries do.
	CredentialsFile string
	// Emulator is PUBSUB_EMULATOR_HOST, which takes the place of Google's
	// Pub/Sub.
	Emulator string

	// Google is where the time is read; empty for Pub/Sub's own address.
	Google string
	// PubSub are options of its client beside the credentials.
	PubSub []option.ClientOption

	// MDNSDisabled says that the gateway announces nothing.
	MDNSDisabled bool

	here bool // the gateway is to be on this machine

	Clock func() time.Time
}

// patience is how long any one question may take.
const patience = 10 * time.Second

// Examine goes through everything, in the order in which one thing rests on
// another.
func Examine(ctx context.Context, c Config) *Report {
	r := &Report{}
	c.here = true
	usable := connected()
	if !usable { // what follows fails for this one reason
		c.network(ctx, r, announce.State{})
	}
	c.settings(r)
	c.clock(ctx, r)
	if c.EnrolledAs == "" {
		account := c.credentials(ctx, r)
		c.topic(ctx, r, account)
	} else {
		r.ok("enrolment", "%s; the API lends it the right to publish", c.EnrolledAs)
	}
	c.outbox(r)
	state := c.gateway(ctx, r)
	if usable {
		c.network(ctx, r, state)
	}
	return r
}

// settings tells what the gateway does not read.
func (c Config) settings(r *Report) {
	const subject = "settings"
	for _, text := range c.Unknown {
		r.warn(subject, "correct it and restart the gateway; until then its default holds (monitor-gateway help)", "%s", text)
	}
	if len(c.Unknown) == 0 {
		r.ok(subject, "nothing is set that the gateway does not know")
	}
}

// ExamineNetwork looks for a gateway as a node does, from whatever machine this
// is: a laptop where the nodes are shows whether multicast gets there.
func ExamineNetwork(ctx context.Context, c Config) *Report {
	r := &Report{}
	c.here = false
	c.network(ctx, r, announce.State{})
	return r
}
