package gateway

import (
	"context"
	"time"

	"coldaisle.dev/edge-gateway/clock"
	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/wire"
)

// Enrolment is what a gateway is enrolled as.
type Enrolment interface {
	// ID is kept with each reading in the outbox.
	ID() string
	// Sign returns the attributes of a message of topic data that is signed.
	Sign(at time.Time, age wire.Age, data []byte) map[string]string
	// Time is when something happened, by the boot of the machine that it happened in
	// and the uptime then. It is not ok when the time never became known in that boot.
	Time(boot [16]byte, uptime time.Duration) (at time.Time, ok bool)
}

// Withheld keeps readings that may not be published. [outbox.Outbox] is one.
type Withheld interface {
	Append(r outbox.Record) error
	Stats() outbox.Stats
}

// Why a reading of the outbox is not published.
const (
	// withheldEnrolment is that the gateway was enrolled as another when it took it:
	// the reading belongs to whose gateway it was then.
	withheldEnrolment = "enrolment"
	// withheldTime is that the machine was started again before the time became known:
	// nobody can tell when it was.
	withheldTime = "time"
)

func (g *Gateway) enrolledAs() string {
	if g.config.Enrolment == nil {
		return ""
	}
	return g.config.Enrolment.ID()
}

// liveMessage is the message of a reading that has just come in.
func (g *Gateway) liveMessage(r reading.Reading, data []byte, age time.Duration) Message {
	m := Message{NodeID: r.NodeID, Data: data, Age: age}
	if g.config.Enrolment != nil {
		m.Signature = g.config.Enrolment.Sign(r.Time, wire.Age{Duration: age, Known: true}, data)
	}
	return m
}

// keptMessage is the message of a record that [Gateway.retime] has dated.
func (g *Gateway) keptMessage(r outbox.Record, data []byte, age time.Duration) Message {
	m := Message{NodeID: r.Reading.NodeID, Data: data, Age: age}
	if r.Enrolment != "" {
		m.Signature = g.config.Enrolment.Sign(r.Reading.Time, wire.Age{Duration: age, Known: true}, data)
	}
	return m
}

// mayPublish says why a record may not be published, and whether that is known
// already: in the boot that it is of, the time may become known yet.
func (g *Gateway) mayPublish(r outbox.Record) (reason string, known bool) {
	switch {
	case r.Enrolment == "": // taken by an open gateway, and in the open channel whoever publishes it
		return "", true
	case r.Enrolment != g.enrolledAs():
		return withheldEnrolment, true
	}
	if _, ok := g.config.Enrolment.Time(r.Boot, r.Uptime); ok {
		return "", true
	}
	return withheldTime, r.Boot != g.boot.ID
}

// retimeSlack is how far the time of a kept reading may be from what the uptime says.
// Within it the reading keeps the time that it was first published with, and is the
// same reading.
const retimeSlack = 10 * time.Second

// retime dates a record of an enrolled gateway by the uptime at which it was taken, and
// returns how long it has waited; 0 where that is not known.
func (g *Gateway) retime(m *outbox.Message) (age time.Duration) {
	if m.Enrolment != "" && m.Enrolment == g.enrolledAs() {
		at, ok := g.config.Enrolment.Time(m.Boot, m.Uptime)
		if !ok {
			return 0
		}
		at = reading.TruncateTime(at)
		if by := at.Sub(m.Reading.Time); by.Abs() > retimeSlack {
			m.Reading.Time = at
			earlier := make([]outbox.Earlier, len(m.Earlier))
			for i, e := range m.Earlier {
				e.Time = e.Time.Add(by)
				earlier[i] = e
			}
			m.Earlier = earlier
		}
	}
	if m.Boot == g.boot.ID {
		return max(0, g.boot.Uptime()-m.Uptime)
	}
	if m.Enrolment == "" {
		return 0
	}
	return max(0, g.clock().Sub(m.Reading.Time))
}

// withholdFirst puts aside the first messages as far as they may not be published, and
// returns how many it did. If there are none, messages are those in front of the first
// that may not be published.
func (g *Gateway) withholdFirst(ctx context.Context, messages []outbox.Message) (rest []outbox.Message, withheld int) {
	for i, m := range messages {
		reason, known := g.mayPublish(m.Record)
		if known && reason == "" {
			if withheld > 0 {
				return messages, withheld
			}
			continue
		}
		if i > withheld || !known || !g.withhold(ctx, m.Record, reason) {
			return messages[:i], withheld
		}
		withheld++
	}
	return messages, withheld
}

// withhold puts a reading aside and says whether that is done.
func (g *Gateway) withhold(ctx context.Context, r outbox.Record, reason string) bool {
	if g.config.Withheld == nil {
		return false
	}
	err := g.config.Withheld.Append(r)
	_, due := g.withholdings.add(g.clock())
	if err != nil {
		if due {
			g.log.ErrorContext(ctx, "a reading that may not be published cannot be put aside, the backlog waits", "error", err.Error())
		}
		return false
	}
	g.metrics.withheld.WithLabelValues(reason).Inc()
	if due {
		g.log.ErrorContext(ctx, "readings are kept and not published", "reason", reason, "enrolment", r.Enrolment, "kept", g.withheldCount())
	}
	return true
}

// withheldCount is how many readings are withheld.
func (g *Gateway) withheldCount() int {
	if g.config.Withheld == nil {
		return 0
	}
	return g.config.Withheld.Stats().Pending
}

// orThisBoot is a boot, or the one that the machine is in.
func orThisBoot(b clock.Boot) clock.Boot {
	if b.Uptime == nil {
		return clock.ThisBoot()
	}
	return b
}
