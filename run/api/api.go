// Package api is the backend of Coldaisle: every endpoint of the specification
// that customers, the dashboard and their scripts call, over the metadata in
// PostgreSQL and the readings in the time-series table.
//
// [New] returns all of it as one http.Handler, middleware and documentation
// included; run/server serves it on Cloud Run and run/local beside the rest of
// the system, both through [Serve]. The package reads no environment and keeps
// no global state, so that several can live in one process.
//
// A request passes, outside in: trace, request id and log line, recovery from
// panics, CORS, compression, the router; then, within an operation, the token, the
// limits and validation of its input, and the handler. An operation's Go types
// are the one source of its validation and of its part of the OpenAPI document.
//
// Tenants are isolated: every query carries the caller's customer id, and what
// belongs to another customer is answered exactly as if it did not exist.
package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime"
	"time"

	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/wire"
)

// Version is that of the API, as its paths have it.
const Version = "1.0.0"

// Publisher sends a retraining request to topic model-retraining and returns
// once Pub/Sub has it.
type Publisher interface {
	Publish(ctx context.Context, request wire.Retraining) error
}

// Config is what the API needs. All fields but Forecaster, Origins,
// TrustedProxies, PasswordSlots and PasswordCost must be set.
type Config struct {
	Store     *store.Store
	Readings  Readings
	Publisher Publisher
	// Forecaster computes forecasts; without one every forecast is answered with 404.
	Forecaster Forecaster
	// SecretKey is SECRET_KEY: keys of at least 32 bytes, separated by commas;
	// the first signs, all verify.
	SecretKey string
	// Origins are the browser origins that may call; nil takes the contract's.
	Origins []string
	// TrustedProxies are the proxies whose X-Forwarded-For is believed, see
	// [newClients]; without any, a client's address is that of its connection.
	TrustedProxies []string
	// PasswordSlots limits concurrent bcrypt computations; 0 takes half of
	// GOMAXPROCS. Without the limit a burst of logins would occupy every core. Half,
	// because Go lets a goroutine that computes run for 10 ms before another on its
	// thread: a process that sets GOMAXPROCS to twice its cores uses all of them
	// for logins, and the operating system still runs its other threads at once.
	PasswordSlots int
	// PasswordCost is bcrypt's cost; 0 takes 12. Only tests take less.
	PasswordCost int
	Clock        func() time.Time
	Log          *slog.Logger
}

// API answers requests; see [API.Run] for what it does between them.
type API struct {
	http.Handler

	retrainer *retrainer
}

// New builds the API. It fails when a dependency is missing or the secret key
// is too short.
func New(cfg Config) (*API, error) {
	if cfg.Store == nil || cfg.Readings == nil || cfg.Publisher == nil || cfg.Clock == nil || cfg.Log == nil {
		return nil, errors.New("api: store, readings, publisher, clock and log are required")
	}
	log := requestLogger(cfg.Log)
	tokens, err := newTokens(cfg.SecretKey, cfg.Clock)
	if err != nil {
		return nil, err
	}
	clients, err := newClients(cfg.TrustedProxies)
	if err != nil {
		return nil, err
	}
	sessions := newSessions(cfg.Store.TokensValidAfter, cfg.Clock)
	auth := &authenticator{tokens: tokens, sessions: sessions, log: log}
	retrainer := &retrainer{store: cfg.Store, publisher: cfg.Publisher, clock: cfg.Clock, log: log}
	router := newRouter()
	r := newRest(router, restConfig{Authenticate: auth.authenticate, MapError: storeErrors(), Log: log})

	registerHealth(r)
	(&customerHandlers{
		store: cfg.Store, passwords: cfg.passwords(), tokens: tokens, sessions: sessions, clients: clients, clock: cfg.Clock,
	}).register(r)
	(&roomHandlers{store: cfg.Store}).register(r)
	(&sensorHandlers{store: cfg.Store}).register(r)
	(&dataHandlers{
		rest: r, store: cfg.Store, readings: cfg.Readings, forecaster: cfg.Forecaster, clock: cfg.Clock,
	}).register(r)
	(&alertHandlers{store: cfg.Store}).register(r)
	(&thresholdHandlers{store: cfg.Store}).register(r)
	(&learningHandlers{store: cfg.Store, retrainer: retrainer, log: log}).register(r)

	document, err := r.openAPI()
	if err != nil {
		return nil, err
	}
	if err := registerDocs(router, document); err != nil {
		return nil, err
	}
	handler, err := middleware(cfg, log, router)
	if err != nil {
		return nil, err
	}
	return &API{Handler: handler, retrainer: retrainer}, nil
}

// passwords returns the hasher of passwords with the defaults filled in.
func (cfg Config) passwords() *passwords {
	slots, cost := cfg.PasswordSlots, cfg.PasswordCost
	if slots == 0 {
		slots = runtime.GOMAXPROCS(0) / 2
	}
	if cost == 0 {
		cost = passwordCost
	}
	return newPasswords(slots, cost)
}

// Run starts due training runs and publishes pending requests once a minute,
// until ctx ends; it then returns nil.
func (a *API) Run(ctx context.Context) error {
	ticker := time.NewTicker(retrainInterval)
	defer ticker.Stop()
	for {
		a.retrainer.tryStartDueRun(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
