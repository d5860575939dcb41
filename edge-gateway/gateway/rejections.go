package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"coldaisle.dev/shared/reading"
)

// rejection is why a request is refused.
type rejection struct {
	status int
	cause  string // of the metric
	text   string // the error that the node gets
	reason error  // the field and the rule
}

// reject answers a request that breaks a rule, and tells whoever looks after the
// site. The node is what the request calls itself.
func (g *Gateway) reject(w http.ResponseWriter, r *http.Request, nodeID string, why rejection) {
	g.metrics.rejected.WithLabelValues(why.cause).Inc()
	reason, _, _ := strings.Cut(why.reason.Error(), "\n") // the first is enough
	address := remote(r)
	who := nodeID
	if reading.ValidateNodeID(nodeID) != nil {
		nodeID, who = "", "address "+address
	}
	if g.rejections.due(who, g.clock()) {
		g.log.WarnContext(r.Context(), "request rejected", "request", r.Pattern, "node_id", nodeID, "address", address, "reason", reason)
	}
	body := errorBody{Error: why.text}
	if why.status == http.StatusBadRequest {
		body.Reason = reason
	}
	write(w, why.status, body)
}

// decode reads a JSON body into a request, of which nodeID is a part. It has
// answered when it returns false.
func (g *Gateway) decode(w http.ResponseWriter, r *http.Request, into any, nodeID *string, text string) bool {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		g.reject(w, r, "", rejection{http.StatusRequestEntityTooLarge, "too_large", detailTooLarge, fmt.Errorf("the body is over %d bytes", MaxBody)})
		return false
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		g.reject(w, r, "", rejection{http.StatusRequestTimeout, "slow", detailSlow, errors.New("the body does not arrive in time")})
		return false
	}
	if err != nil {
		g.reject(w, r, "", rejection{http.StatusBadRequest, "unreadable", text, errors.New("the body does not arrive as its header announces it")})
		return false
	}
	if err := json.Unmarshal(body, into); err != nil {
		g.reject(w, r, *nodeID, rejection{http.StatusBadRequest, "malformed", text, malformed(err)})
		return false
	}
	return true
}

// malformed says what is wrong with a body in words of JSON, where the library
// has words of Go.
func malformed(err error) error {
	mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case !ok:
		return fmt.Errorf("the body is not JSON: %w", err)
	case mismatch.Field == "":
		return errors.New("the body must be a JSON object")
	default: // numbers have no such fault, see number
		return fmt.Errorf("%s must be a string", mismatch.Field)
	}
}

// noticedNodes is how many nodes, at most, are logged for their trouble within
// [logInterval], so that one that invents names cannot fill the journal.
const noticedNodes = 100

// notices says which nodes' trouble to log: one line for each within
// [logInterval].
type notices struct {
	mu     sync.Mutex
	logged map[string]time.Time
}

func (n *notices) due(who string, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	recent := func(at time.Time) bool { return now.Sub(at).Abs() < logInterval }
	if at, ok := n.logged[who]; ok && recent(at) {
		return false
	}
	if len(n.logged) >= noticedNodes {
		maps.DeleteFunc(n.logged, func(_ string, at time.Time) bool { return !recent(at) })
	}
	if len(n.logged) >= noticedNodes {
		return false
	}
	n.logged[who] = now
	return true
}
