package gateway

import (
	"net"
	"net/http"
	"net/netip"
	"time"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/wire"
)

type registration struct {
	NodeID  string `json:"node_id"`
	Address string `json:"ip_addr"`
}

type registered struct {
	Message string `json:"message"`
	NodeID  string `json:"node_id"`
}

// register is called by a node at boot, up to five more times until it is
// answered; a further call updates the address.
func (g *Gateway) register(w http.ResponseWriter, r *http.Request) {
	var in registration
	if !g.decode(w, r, &in, detailBody) {
		return
	}
	if _, err := netip.ParseAddr(in.Address); err != nil || reading.ValidateNodeID(in.NodeID) != nil {
		g.metrics.rejected.WithLabelValues("invalid").Inc()
		fail(w, http.StatusBadRequest, detailBody)
		return
	}
	g.nodes.register(in.NodeID, in.Address, g.clock())
	g.log.InfoContext(r.Context(), "node registered", "node_id", in.NodeID)
	write(w, http.StatusCreated, registered{Message: "Node registered successfully", NodeID: in.NodeID})
}

type message struct {
	ID          string   `json:"id"`
	MessageID   string   `json:"message_id"`
	NodeID      string   `json:"node_id"`
	Temperature *float64 `json:"temperature"`
	Humidity    *float64 `json:"humidity"`
}

// valid completes the message and reports whether it can become a reading.
func (m *message) valid() bool {
	if m.ID == "" {
		m.ID = m.MessageID
	}
	return m.Temperature != nil && m.Humidity != nil &&
		reading.ValidateNodeID(m.NodeID) == nil &&
		reading.ValidateMessageID(m.ID) == nil &&
		reading.ValidateMeasurement(*m.Temperature, *m.Humidity) == nil
}

type published struct {
	Status    string `json:"status"`
	MessageID string `json:"message_id"`
}

// message takes a reading. The answer follows Pub/Sub's: a node that hears of a
// failure, or hears nothing, sends the same message on its next cycle, and is
// recognised by its id.
func (g *Gateway) message(w http.ResponseWriter, r *http.Request) {
	var in message
	if !g.decode(w, r, &in, detailMessage) {
		return
	}
	if !in.valid() {
		g.metrics.rejected.WithLabelValues("invalid").Inc()
		fail(w, http.StatusBadRequest, detailMessage)
		return
	}
	g.metrics.accepted.Inc()
	received := g.clock()
	taken, recent := g.nodes.take(in.NodeID, remote(r), received, measurement{
		id: in.ID, temperature: *in.Temperature, humidity: *in.Humidity,
	})
	err := g.publisher.Publish(r.Context(), wire.Data{
		Reading: reading.Reading{
			NodeID: in.NodeID, MessageID: in.ID, Time: taken,
			Temperature: *in.Temperature, Humidity: *in.Humidity,
		},
		Recent: recent,
	})
	g.metrics.latency.Observe(g.clock().Sub(received).Seconds())
	if err != nil {
		g.metrics.failed.Inc()
		g.log.ErrorContext(r.Context(), "publish failed", "node_id", in.NodeID, "reading_id", in.ID, "error", err.Error())
		fail(w, http.StatusInternalServerError, detailPublish)
		return
	}
	g.metrics.published.Inc()
	write(w, http.StatusOK, published{Status: "published", MessageID: in.ID})
}

type beat struct {
	NodeID string `json:"node_id"`
}

type alive struct {
	Status    string    `json:"status"`
	NodeID    string    `json:"node_id"`
	Timestamp time.Time `json:"timestamp"`
}

// heartbeat is called between readings. It also registers a node that this
// process has not seen: nodes register once, at boot, and do not notice that
// the gateway was started again.
func (g *Gateway) heartbeat(w http.ResponseWriter, r *http.Request) {
	var in beat
	if !g.decode(w, r, &in, detailBody) {
		return
	}
	if reading.ValidateNodeID(in.NodeID) != nil {
		g.metrics.rejected.WithLabelValues("invalid").Inc()
		fail(w, http.StatusBadRequest, detailBody)
		return
	}
	now := g.clock()
	g.nodes.seen(in.NodeID, remote(r), now)
	write(w, http.StatusOK, alive{Status: "alive", NodeID: in.NodeID, Timestamp: reading.Instant(now)})
}

type nodeList struct {
	Nodes []Node `json:"nodes"`
	Total int    `json:"total"`
}

// list is for people and monitoring on site.
func (g *Gateway) list(w http.ResponseWriter, _ *http.Request) {
	found := g.nodes.list(g.clock())
	write(w, http.StatusOK, nodeList{Nodes: found, Total: len(found)})
}

// remote is the address that a request came from.
func remote(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
