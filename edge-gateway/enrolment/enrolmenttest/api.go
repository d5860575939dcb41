// Package enrolmenttest stands in for the part of the API that gateways call, in tests.
package enrolmenttest

import (
	"crypto/ed25519"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"coldaisle.dev/shared/wire"
)

// Code is the enrolment code that the API knows, ID the id of its gateway.
const (
	Code = "ABCDE-FGHIJ"
	ID   = "gw-cellar1"
)

// API answers enrolments and statuses. Change its fields only in Set.
type API struct {
	URL string

	// Time is the answer's.
	Time func() time.Time
	// Reply is the reply to a status, without nonce and time.
	Reply wire.StatusReply
	// Lost loses the reply to a confirmed enrolment.
	Lost bool
	// Away answers 503 to everything.
	Away bool
	// Spoil changes a reply before it is sent.
	Spoil func(*wire.StatusReply)

	tb       testing.TB
	mu       sync.Mutex
	key      ed25519.PublicKey
	statuses []wire.StatusRequest
}

// Start runs an API until the test ends.
func Start(tb testing.TB) *API {
	tb.Helper()
	a := &API{tb: tb, Time: time.Now, Reply: wire.StatusReply{Account: "ops@example.com", ProjectID: "site", Topic: "data"}} //nolint:forbidigo // the API goes by the real time unless a test sets another
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/gateways/enrol", a.enrol)
	mux.HandleFunc("POST /api/v1/gateways/status", a.status)
	server := httptest.NewServer(mux)
	tb.Cleanup(server.Close)
	a.URL = server.URL
	return a
}

// Set changes the API between two requests.
func (a *API) Set(change func(*API)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(a)
}

// Key is the public key of the gateway; nil before enrolment.
func (a *API) Key() ed25519.PublicKey {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.key
}

// Statuses returns the verified statuses.
func (a *API) Statuses() []wire.StatusRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clip(a.statuses)
}

func (a *API) enrol(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var in wire.EnrolRequest
	switch err := json.NewDecoder(r.Body).Decode(&in); {
	case a.Away:
		refuse(w, http.StatusServiceUnavailable, "The service is away")
	case err != nil || len(in.PublicKey) != ed25519.PublicKeySize:
		refuse(w, http.StatusBadRequest, "body.public_key: expected 32 bytes in base64")
	case in.Code != Code:
		refuse(w, http.StatusNotFound, "Enrolment code is unknown or has expired")
	case a.key != nil && !a.key.Equal(in.PublicKey):
		refuse(w, http.StatusConflict, "Gateway is already enrolled")
	default:
		if in.Confirm {
			a.key = in.PublicKey
		}
		if in.Confirm && a.Lost {
			a.Lost = false
			panic(http.ErrAbortHandler)
		}
		answer(w, http.StatusOK, wire.EnrolReply{
			GatewayID: ID, Name: "Cellar", Account: "ops@example.com", Confirmed: in.Confirm, ProjectID: "site", Topic: "data",
		})
	}
}

// status answers as run/api/gateways does: a status whose time is off gets the time but no
// token.
func (a *API) status(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.Away {
		refuse(w, http.StatusServiceUnavailable, "The service is away")
		return
	}
	var in wire.SignedStatus
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	request, err := in.Verify(a.key)
	if err != nil || request.GatewayID != ID {
		refuse(w, http.StatusUnauthorized, "Could not verify the gateway's signature")
		return
	}
	for _, other := range a.statuses {
		if other.BootID == request.BootID && other.Sequence >= request.Sequence {
			a.tb.Errorf("status %d of %s came after %d", request.Sequence, request.BootID, other.Sequence)
		}
	}
	a.statuses = append(a.statuses, request)
	reply := a.Reply
	reply.Nonce, reply.Time = request.Nonce, a.Time()
	sent := request.SentAt.Add(time.Duration(request.ClockOffsetMS) * time.Millisecond)
	if reply.Time.Sub(sent).Abs() > 5*time.Minute || reply.Revoked {
		reply.AccessToken, reply.TokenExpiresAt, reply.PairKey = "", time.Time{}, nil
	}
	if a.Spoil != nil {
		a.Spoil(&reply)
	}
	answer(w, http.StatusOK, reply)
}

func refuse(w http.ResponseWriter, status int, detail string) {
	answer(w, status, map[string]string{"detail": detail})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a gateway that has gone needs no answer
}
