package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/wire"
)

type registerRequest struct {
	NodeID  string `json:"node_id"`
	Address string `json:"ip_addr"`
}

func (in registerRequest) problem() error {
	if err := cmp.Or(missing(in.NodeID == "", "node_id"), reading.ValidateSensorID(in.NodeID), missing(in.Address == "", "ip_addr")); err != nil {
		return err //nolint:wrapcheck // it is one of ours
	}
	if _, err := netip.ParseAddr(in.Address); err != nil {
		return errors.New("ip_addr must be an IP address")
	}
	return nil
}

type registerResponse struct {
	Message string `json:"message"`
	NodeID  string `json:"node_id"`
}

// register is called by a node at boot, up to five more times until it is
// answered; a further call updates the address.
func (g *Gateway) register(w http.ResponseWriter, r *http.Request) {
	var in registerRequest
	if !g.decode(w, r, &in, &in.NodeID, detailBody) {
		return
	}
	if err := in.problem(); err != nil {
		g.reject(w, r, in.NodeID, rejection{http.StatusBadRequest, "invalid", detailBody, err})
		return
	}
	if !g.throttle(w, r, in.NodeID) {
		return
	}
	g.nodes.register(in.NodeID, in.Address, g.clock())
	g.log.DebugContext(r.Context(), "node registered", "node_id", in.NodeID, "address", in.Address)
	write(w, http.StatusCreated, registerResponse{Message: "Node registered successfully", NodeID: in.NodeID})
}

type messageRequest struct {
	ID          string `json:"id"`
	MessageID   string `json:"message_id"`
	NodeID      string `json:"node_id"`
	Temperature number `json:"temperature"`
	Humidity    number `json:"humidity"`
	// Age is for how many seconds the node has kept the reading before it sent it.
	Age number `json:"age_s"`
}

// maxAge is the largest age_s: for as long as a node is recognised when it sends a
// reading once more.
const maxAge = time.Hour

// errAge names its field, as the errors of package reading do.
var errAge = fmt.Errorf("age_s must be between 0 and %g seconds", maxAge.Seconds())

// problem completes the message and returns the first fault that keeps it from
// being a reading, in a fixed order.
func (m *messageRequest) problem() error {
	m.ID = cmp.Or(m.ID, m.MessageID)
	err := cmp.Or(
		missing(m.NodeID == "", "node_id"), reading.ValidateSensorID(m.NodeID),
		missing(m.ID == "", "id"), reading.ValidateMessageID(m.ID),
		m.Temperature.required("temperature"), m.Humidity.required("humidity"), m.Age.problem("age_s"),
	)
	if err != nil {
		return err //nolint:wrapcheck // it is one of ours
	}
	if age := m.Age.value; age < 0 || age > maxAge.Seconds() {
		return fmt.Errorf("%w: got %g", errAge, age)
	}
	return reading.ValidateMeasurement(m.Temperature.value, m.Humidity.value)
}

// age is how long the node has kept the reading.
func (m *messageRequest) age() time.Duration {
	return time.Duration(m.Age.value * float64(time.Second))
}

func missing(is bool, field string) error {
	if is {
		return fmt.Errorf("%s is required", field)
	}
	return nil
}

type messageResponse struct {
	Status    string `json:"status"`
	MessageID string `json:"message_id"`
}

// message takes a reading. The answer follows Pub/Sub's. A node that hears of a
// failure, or hears nothing, sends the same message on its next cycle and is
// recognised by its id; one that gives up instead loses nothing either, because
// the reading was put into the outbox before the answer, which says so by "kept".
func (g *Gateway) message(w http.ResponseWriter, r *http.Request) {
	var in messageRequest
	if !g.decode(w, r, &in, &in.NodeID, detailMessage) {
		return
	}
	if err := in.problem(); err != nil {
		g.reject(w, r, in.NodeID, rejection{http.StatusBadRequest, "invalid", detailMessage, err})
		return
	}
	if !g.throttle(w, r, in.NodeID) {
		return
	}
	g.metrics.accepted.Inc()
	given, encoded, err := g.prepare(in, remote(r))
	if err != nil {
		g.log.ErrorContext(r.Context(), "reading cannot be encoded", "node_id", in.NodeID, "error", err.Error())
	}
	became := lost
	if err == nil {
		became = g.send(r.Context(), g.liveMessage(given.reading, encoded, given.age), given)
	}
	if became != sent {
		write(w, http.StatusInternalServerError, errorBody{Error: detailPublish, Kept: became == kept})
		return
	}
	write(w, http.StatusOK, messageResponse{Status: "published", MessageID: in.ID})
}

// prepare gives a message its time and what came before it, and writes it in the
// form of topic data.
func (g *Gateway) prepare(in messageRequest, address string) (given timedReading, encoded []byte, err error) {
	scratch, ok := g.columns.Get().(*windowBuffer)
	if !ok {
		scratch = new(windowBuffer)
	}
	defer g.columns.Put(scratch)
	now := g.clock()
	given = g.nodes.record(in.NodeID, address, now, measurement{
		id: in.ID, temperature: in.Temperature.value, humidity: in.Humidity.value, age: in.age(),
	}, scratch)
	given.reading = reading.Reading{
		NodeID: in.NodeID, MessageID: in.ID, Time: given.at,
		Temperature: in.Temperature.value, Humidity: in.Humidity.value,
	}
	given.age = max(0, now.Sub(given.at))
	given.uptime = g.boot.Uptime() - given.age
	encoded, err = encode(wire.Data{Reading: given.reading, Recent: given.recent})
	given.recent = reading.Window{} // the room is the next one's
	return given, encoded, err
}

type heartbeatRequest struct {
	NodeID string `json:"node_id"`
}

type heartbeatResponse struct {
	Status    string    `json:"status"`
	NodeID    string    `json:"node_id"`
	Timestamp time.Time `json:"timestamp"`
}

// heartbeat is called between readings. It also registers a node that this
// process has not seen: nodes register once, at boot, and do not notice that
// the gateway was started again.
func (g *Gateway) heartbeat(w http.ResponseWriter, r *http.Request) {
	var in heartbeatRequest
	if !g.decode(w, r, &in, &in.NodeID, detailBody) {
		return
	}
	if err := cmp.Or(missing(in.NodeID == "", "node_id"), reading.ValidateSensorID(in.NodeID)); err != nil {
		g.reject(w, r, in.NodeID, rejection{http.StatusBadRequest, "invalid", detailBody, err})
		return
	}
	if !g.throttle(w, r, in.NodeID) {
		return
	}
	g.nodes.beat(in.NodeID)
	write(w, http.StatusOK, heartbeatResponse{Status: "alive", NodeID: in.NodeID, Timestamp: reading.TruncateTime(g.clock())})
}

type nodesResponse struct {
	Nodes []NodeInfo `json:"nodes"`
	Total int        `json:"total"`
}

// list is for people and monitoring on site.
func (g *Gateway) list(w http.ResponseWriter, _ *http.Request) {
	found := g.nodes.list(g.clock())
	write(w, http.StatusOK, nodesResponse{Nodes: found, Total: len(found)})
}

// maxThrottleDelay is the longest that a request waits for one rate limiter.
const maxThrottleDelay = time.Second

// throttle delays a request whose node or address sends faster than its rate. A request
// that would wait longer than maxThrottleDelay is refused, after that delay: a node that
// floods the gateway is slowed down on every connection it has, and other nodes are
// not. throttle has written the answer when it returns false.
func (g *Gateway) throttle(w http.ResponseWriter, r *http.Request, nodeID string) bool {
	address := remote(r)
	for _, limiter := range g.limiters.of(nodeID, address) {
		if g.admit(r, limiter) {
			continue
		}
		if r.Context().Err() == nil {
			w.Header().Set("Retry-After", strconv.Itoa(int(maxThrottleDelay.Seconds())))
			g.reject(w, r, nodeID, rejection{
				http.StatusTooManyRequests, "too_many", "Too many requests",
				fmt.Errorf("more than %g requests a second", float64(limiter.Limit())),
			})
		}
		return false
	}
	g.nodes.seen(nodeID, address, g.clock())
	return true
}

// admit waits for a rate limiter and says whether the request may go on; not when it
// would have to wait for too long, nor when the node has gone.
func (g *Gateway) admit(r *http.Request, limiter *rate.Limiter) bool {
	now := g.clock()
	admitted, delay := false, maxThrottleDelay
	// The wait is estimated before a token is reserved: a cancelled reservation is
	// not returned in full while others reserve (rate.Reservation.Cancel).
	if wait := (1 - limiter.TokensAt(now)) / float64(limiter.Limit()); wait <= maxThrottleDelay.Seconds() {
		reservation := limiter.ReserveN(now, 1)
		delay = reservation.DelayFrom(now)
		if delay <= 0 {
			return true
		}
		if admitted = delay <= maxThrottleDelay; !admitted {
			reservation.CancelAt(now)
		}
	}
	timer := time.NewTimer(min(delay, maxThrottleDelay))
	defer timer.Stop()
	select {
	case <-timer.C:
		return admitted
	case <-r.Context().Done():
		return false
	}
}

// remote is the address that a request came from.
func remote(r *http.Request) string { return hostOf(r.RemoteAddr) }
