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
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"runtime"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

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

type api struct {
	Config

	log        *slog.Logger
	huma       huma.API
	publishMu  sync.Mutex // held while a retraining request is published
	tokens     *tokens
	passwords  *passwords
	clients    clients
	sessions   *sessions
	problemRef string
	document   []byte
}

// API answers requests; see [API.Run] for what it does between them.
type API struct {
	http.Handler

	api *api
}

// New builds the API. It fails when a dependency is missing or the secret key
// is too short.
func New(cfg Config) (*API, error) {
	a, err := build(cfg)
	if err != nil {
		return nil, err
	}
	handler, err := a.handler()
	if err != nil {
		return nil, err
	}
	return &API{Handler: handler, api: a}, nil
}

// Run starts due training runs and publishes pending requests once a minute,
// until ctx ends; it then returns nil.
func (a *API) Run(ctx context.Context) error {
	ticker := time.NewTicker(retrainInterval)
	defer ticker.Stop()
	for {
		a.api.tryStartDueRun(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func build(cfg Config) (*api, error) {
	if cfg.Store == nil || cfg.Readings == nil || cfg.Publisher == nil || cfg.Clock == nil || cfg.Log == nil {
		return nil, errors.New("api: store, readings, publisher, clock and log are required")
	}
	a := &api{Config: cfg, log: slog.New(requestIDHandler{cfg.Log.Handler()})}
	var err error
	if a.tokens, err = newTokens(cfg.SecretKey, cfg.Clock); err != nil {
		return nil, err
	}
	if a.clients, err = newClients(cfg.TrustedProxies); err != nil {
		return nil, err
	}
	slots, cost := cfg.PasswordSlots, cfg.PasswordCost
	if slots == 0 {
		slots = runtime.GOMAXPROCS(0) / 2
	}
	if cost == 0 {
		cost = passwordCost
	}
	a.passwords = newPasswords(slots, cost)
	a.sessions = newSessions(cfg.Store.TokensValidAfter, cfg.Clock)
	return a, nil
}

// handler registers every operation and puts the middleware around them.
func (a *api) handler() (http.Handler, error) {
	mux := newRouter()
	a.huma = humago.New(mux, a.config())
	registry := a.huma.OpenAPI().Components.Schemas
	a.problemRef = registry.Schema(reflect.TypeFor[problem](), true, "Problem").Ref

	a.registerHealth()
	a.registerCustomers()
	a.registerRooms()
	a.registerSensors()
	a.registerData()
	a.registerAlerts()
	a.registerThresholds()
	a.registerPredictions()
	a.registerTraining()
	a.registerForecast()

	// huma registers its own error model beside ours.
	delete(registry.Map(), "ErrorModel")
	delete(registry.Map(), "ErrorDetail")
	document, err := a.describe()
	if err != nil {
		return nil, fmt.Errorf("OpenAPI document: %w", err)
	}
	a.document = document
	if err := a.registerDocs(mux); err != nil {
		return nil, err
	}
	return a.middleware(mux)
}

// unwrap gives the net/http request and writer below a huma context.
func unwrap(ctx huma.Context) (*http.Request, http.ResponseWriter) { return humago.Unwrap(ctx) }
