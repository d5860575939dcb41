package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"reflect"
	"strings"

	"github.com/go-json-experiment/json/v1"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/strictjson"
)

// reject answers a request that breaks a rule and logs it, once within [logInterval]
// for each node. The node id is the one in the request, if there is one; cause is for the
// metric, text the error, reason the field and the rule.
func (q *requests) reject(w http.ResponseWriter, r *http.Request, nodeID string, status int, cause, text string, reason error) {
	q.metrics.rejected.WithLabelValues(cause).Inc()
	_, first := q.logRejection(r, nodeID, reason)
	body := errorBody{Error: text}
	if status == http.StatusBadRequest {
		body.Reason = first
	}
	write(w, status, body)
}

// logRejection logs a broken rule. It returns the node id or, unless that is valid, the address,
// and the first line of the reason.
func (q *requests) logRejection(r *http.Request, nodeID string, reason error) (who, first string) {
	first, _, _ = strings.Cut(reason.Error(), "\n")
	address := remote(r)
	who = nodeID
	if reading.ValidateNodeID(nodeID) != nil {
		nodeID, who = "", "address "+address
	}
	q.rejections.add(r.Context(), slog.LevelWarn, who, "request rejected", "request", r.Pattern, "node_id", nodeID, "address", address, "reason", first)
	return who, first
}

// accept decodes and checks a request's body and throttles its node; nodeID points to a
// field of into. If it returns false it has answered; text is the error of a 400.
func (q *requests) accept(w http.ResponseWriter, r *http.Request, into interface{ validate() error }, nodeID *string, text string) bool {
	body, ok := q.read(w, r, MaxBody, text)
	if !ok {
		return false
	}
	cause, err := "malformed", decode(body, into)
	if err == nil {
		cause, err = "invalid", into.validate()
	}
	if err != nil {
		q.reject(w, r, *nodeID, http.StatusBadRequest, cause, text, err)
		return false
	}
	return q.throttle(w, r, "") && q.throttle(w, r, *nodeID)
}

// read returns a request's body of at most limit bytes; text is the error of a 400. If it
// returns false it has answered.
func (q *requests) read(w http.ResponseWriter, r *http.Request, limit int64, text string) (body []byte, ok bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	_, tooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case err == nil:
		return body, true
	case tooLarge:
		q.reject(w, r, "", http.StatusRequestEntityTooLarge, "too_large", fmt.Sprintf("Request body over %d bytes", limit),
			fmt.Errorf("the body is over %d bytes", limit))
	case errors.Is(err, os.ErrDeadlineExceeded):
		q.reject(w, r, "", http.StatusRequestTimeout, "slow", "Request too slow", errors.New("the body does not arrive in time"))
	default:
		q.reject(w, r, "", http.StatusBadRequest, "unreadable", text, errors.New("the body does not arrive as its header announces it"))
	}
	return nil, false
}

// decode reads a JSON object and refuses repeated fields. Its errors are in JSON's terms.
func decode(body []byte, into any) error {
	err := strictjson.Unmarshal(body, into)
	if err == nil || errors.Is(err, strictjson.ErrTwice) {
		return err //nolint:wrapcheck // it names the field
	}
	return malformed(err)
}

// malformed describes an error of encoding/json in JSON's terms instead of Go's.
func malformed(err error) error {
	mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case !ok:
		return fmt.Errorf("the body is not JSON: %w", err)
	case mismatch.Field == "":
		return errors.New("the body must be a JSON object")
	}
	kind := map[reflect.Kind]string{reflect.String: "a string", reflect.Int64: "a whole number", reflect.Slice: "an array"}[mismatch.Type.Kind()]
	return fmt.Errorf("%.60s must be %s", mismatch.Field, cmp.Or(kind, "an object")) // a tag's name may be long
}
