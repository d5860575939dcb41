package gateway

import (
	"iter"
	"maps"
)

// Routes returns the method and path of each operation that a gateway answers.
func (g *Gateway) Routes() iter.Seq[string] { return maps.Keys(g.routes()) }

// FlushBacklog returns once Pub/Sub has answered all that is being published of the backlog.
func (t *ReadingPublisher) FlushBacklog() { t.backlog.Flush() }
