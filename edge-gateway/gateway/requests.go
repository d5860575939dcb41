package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/go-json-experiment/json/v1"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/wire"
)

type requests struct {
	nodes      *nodeTable
	sender     *sender
	limiters   limiters
	metrics    *metrics
	rejections *eventLog // by node
	monitor    *monitor
	clock      func() time.Time
	log        *slog.Logger

	telegrafFields []TelegrafField
}

type registerRequest struct {
	NodeID  string `json:"node_id"`
	Address string `json:"ip_addr"`
}

func (in *registerRequest) validate() error {
	if err := cmp.Or(validateNodeID(in.NodeID), missing(in.Address, "ip_addr")); err != nil {
		return err //nolint:wrapcheck // it is one of ours
	}
	const longest = 64 // bytes of IPv6 with a zone; it stays in memory
	if _, err := netip.ParseAddr(in.Address); err != nil || len(in.Address) > longest {
		return errors.New("ip_addr must be an IP address")
	}
	return nil
}

// register is called by a node at boot, up to five more times until it is
// answered; a further call updates the address.
func (q *requests) register(w http.ResponseWriter, r *http.Request) {
	var in registerRequest
	if !q.accept(w, r, &in, &in.NodeID, detailBody) {
		return
	}
	q.nodes.register(in.NodeID, in.Address, q.clock())
	q.log.DebugContext(r.Context(), "node registered", "node_id", in.NodeID, "address", in.Address)
	write(w, http.StatusCreated, map[string]string{"message": "Node registered successfully", "node_id": in.NodeID})
}

type messageRequest struct {
	ID          string `json:"id"`
	MessageID   string `json:"message_id"`
	NodeID      string `json:"node_id"`
	Temperature number `json:"temperature"`
	Humidity    number `json:"humidity"`
	// Age is how many seconds ago the node measured the reading.
	Age number `json:"age_s"`
	// Drill is refused.
	Drill json.RawMessage `json:"drill"`
}

// maxAge is the largest age_s: as long as a reading that is sent again is recognised.
const maxAge = time.Hour

// validate accepts the id in either field. It returns the first rule that the message breaks, in a
// fixed order.
func (m *messageRequest) validate() error {
	m.ID = cmp.Or(m.ID, m.MessageID)
	err := cmp.Or(
		validateDrill(m.Drill), validateNodeID(m.NodeID), missing(m.ID, "id"), reading.ValidateMessageID(m.ID),
		m.Temperature.required("temperature"), m.Humidity.required("humidity"), m.Age.optional("age_s"),
	)
	if err != nil {
		return err //nolint:wrapcheck // it is one of ours
	}
	return cmp.Or(m.validateAge(), reading.ValidateMeasurement(m.Temperature.value, m.Humidity.value)) //nolint:wrapcheck // as above
}

func (m *messageRequest) validateAge() error {
	if age := m.Age.value; age < 0 || age > maxAge.Seconds() {
		return fmt.Errorf("age_s must be between 0 and %g seconds: got %g", maxAge.Seconds(), age)
	}
	return nil
}

func (m *messageRequest) age() time.Duration {
	return time.Duration(m.Age.value * float64(time.Second))
}

func validateNodeID(id string) error {
	return cmp.Or(missing(id, "node_id"), reading.ValidateSensorID(id)) //nolint:wrapcheck // it is one of ours
}

func missing(text, field string) error {
	if text == "" {
		return fmt.Errorf("%s is required", field)
	}
	return nil
}

type messageResponse struct {
	Status    string `json:"status"`
	MessageID string `json:"message_id"`
}

// message receives a reading, and answers once Pub/Sub has. A node that gets an error, or
// no answer, sends the same message on its next cycle, which is recognised by its id. A
// node that gives up loses nothing if the answer has "kept": then the outbox had the
// reading before.
func (q *requests) message(w http.ResponseWriter, r *http.Request) {
	var in messageRequest
	if !q.accept(w, r, &in, &in.NodeID, detailMessage) {
		return
	}
	q.metrics.accepted.Inc()
	measured := reading.Reading{NodeID: in.NodeID, MessageID: in.ID, Temperature: in.Temperature.value, Humidity: in.Humidity.value}
	timed := q.prepare(measured, in.age(), remote(r))
	if result := q.sender.send(r.Context(), timed)[0]; result != sent {
		write(w, http.StatusInternalServerError, errorBody{Error: detailPublish, Kept: result == kept})
		return
	}
	write(w, http.StatusOK, messageResponse{Status: "published", MessageID: in.ID})
}

// prepare dates a reading, unless it has a time, and encodes it, with the node's window
// before it, as topic data.
func (q *requests) prepare(measured reading.Reading, age time.Duration, address string) timedReading {
	now := q.clock()
	timed, recent := q.nodes.record(measured, age, address, now)
	timed.age = max(0, now.Sub(timed.Time))
	timed.uptime = q.sender.signer.boot.Uptime() - now.Sub(timed.Time)
	timed.data = encode(wire.Data{Reading: timed.Reading, Recent: recent}, dataLimit(timed.NodeID, q.sender.signer.enrolmentID()))
	return timed
}

type heartbeatRequest struct {
	NodeID string `json:"node_id"`
}

func (in *heartbeatRequest) validate() error {
	return validateNodeID(in.NodeID)
}

type heartbeatResponse struct {
	Status    string    `json:"status"`
	NodeID    string    `json:"node_id"`
	Timestamp time.Time `json:"timestamp"`
}

// heartbeat is called between readings. It also registers a node that this
// process has not seen: nodes register once, at boot, and do not notice that
// the gateway has restarted.
func (q *requests) heartbeat(w http.ResponseWriter, r *http.Request) {
	var in heartbeatRequest
	if !q.accept(w, r, &in, &in.NodeID, detailBody) {
		return
	}
	now := q.clock()
	q.nodes.beat(in.NodeID, remote(r), now)
	write(w, http.StatusOK, heartbeatResponse{Status: "alive", NodeID: in.NodeID, Timestamp: reading.TruncateTime(now)})
}

// list is for people and monitoring on site.
func (q *requests) list(w http.ResponseWriter, _ *http.Request) {
	found := q.nodes.list(q.clock())
	write(w, http.StatusOK, map[string]any{"nodes": found, "total": len(found)})
}

func remote(r *http.Request) string { return hostOf(r.RemoteAddr) }
