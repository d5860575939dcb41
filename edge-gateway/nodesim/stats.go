package nodesim

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Stats counts what the nodes did so far.
type Stats struct {
	Nodes      int
	Registered int64 // nodes whose registration the gateway took
	Sent       int64 // posts of readings, repeated ones too
	Accepted   int64 // readings answered with 200
	Rejected   int64 // readings the gateway found invalid
	Failed     int64 // posts of readings that ended in 500 or without an answer
	Retried    int64 // posts that repeated an id
	Lost       int64 // readings a node gave up because its memory was full
	Missed     int64 // measurements a node was too late to take
	Heartbeats int64 // answered with 200

	RegisterRetries  int64
	HeartbeatsFailed int64

	Rogue   Rogue
	Virtual time.Duration // since the start: wall time × speed
}

// Rogue counts the requests of misbehaving clients.
type Rogue struct {
	Requests int64
	Accepted int64 // answered with 2xx
	Refused  int64 // answered with 4xx or 5xx, or hung up on
	Failed   int64 // without an answer
}

// String is a status line.
func (s Stats) String() string {
	line := fmt.Sprintf("nodes %d/%d  accepted %d  retried %d  rejected %d  failed %d  heartbeats %d",
		s.Registered, s.Nodes, s.Accepted, s.Retried, s.Rejected, s.Failed, s.Heartbeats)
	if s.Rogue.Requests > 0 {
		line += fmt.Sprintf("  rogue %d (refused %d)", s.Rogue.Requests, s.Rogue.Refused)
	}
	return line
}

// counters are Stats while they grow.
type counters struct {
	registered, registerRetries      atomic.Int64
	sent, accepted, rejected, failed atomic.Int64
	retried, lost, missed            atomic.Int64
	heartbeats, heartbeatsFailed     atomic.Int64
	rogueRequests, rogueAccepted     atomic.Int64
	rogueRefused, rogueFailed        atomic.Int64
}

func (c *counters) snapshot() Stats {
	return Stats{
		Registered:       c.registered.Load(),
		Sent:             c.sent.Load(),
		Accepted:         c.accepted.Load(),
		Rejected:         c.rejected.Load(),
		Failed:           c.failed.Load(),
		Retried:          c.retried.Load(),
		Lost:             c.lost.Load(),
		Missed:           c.missed.Load(),
		Heartbeats:       c.heartbeats.Load(),
		RegisterRetries:  c.registerRetries.Load(),
		HeartbeatsFailed: c.heartbeatsFailed.Load(),
		Rogue: Rogue{
			Requests: c.rogueRequests.Load(),
			Accepted: c.rogueAccepted.Load(),
			Refused:  c.rogueRefused.Load(),
			Failed:   c.rogueFailed.Load(),
		},
	}
}
