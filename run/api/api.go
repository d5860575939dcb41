// Package api is the backend of Coldaisle: every endpoint that customers, the dashboard
// and scripts call. It answers from the metadata in PostgreSQL and the readings in the
// time-series table.
//
// [New] returns all of it as one http.Handler, middleware and documentation
// included; run/server serves it on Cloud Run and run/local beside the rest of
// the system, both through [Serve]. The package reads no environment and keeps
// no global state, so that several can live in one process.
//
// A request passes, outside in: trace, request id and log line (requestlog),
// recovery from panics, CORS, compression, the router (rest); then, within an
// operation, the token (auth), the limits and validation of its input (rest, input),
// and the handler (customers, rooms, gateways, data, alerts, incidents, overview, learning).
// An operation's Go types are the one source of its validation and of its part of the OpenAPI
// document.
//
// Tenants are isolated: every query carries the caller's customer id, and what
// belongs to another customer is answered exactly as if it did not exist.
package api

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"coldaisle.dev/run/api/alerts"
	"coldaisle.dev/run/api/apikeys"
	"coldaisle.dev/run/api/audit"
	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/customers"
	"coldaisle.dev/run/api/data"
	"coldaisle.dev/run/api/gateways"
	"coldaisle.dev/run/api/incidents"
	"coldaisle.dev/run/api/learning"
	"coldaisle.dev/run/api/metrics"
	"coldaisle.dev/run/api/overview"
	"coldaisle.dev/run/api/pages"
	"coldaisle.dev/run/api/requestlog"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/run/api/rooms"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store"
)

// Config is what the API needs. All fields but Forecaster, Models, GatewayTokens,
// Origins, TrustedProxies, MaxUnreported, PasswordSlots and PasswordCost must be set.
type Config struct {
	Store     *store.Store
	Readings  readings.Reader
	Publisher learning.Publisher
	// Forecaster computes forecasts; without one every forecast is answered with 404.
	Forecaster data.Forecaster
	// Models are those of customers; without them what is usual is told by what is shipped.
	Models data.Models
	// GatewayTokens gives the access tokens by which enrolled gateways publish to
	// DataTopic of ProjectID; without it they get none.
	GatewayTokens gateways.TokenSource
	ProjectID     string
	DataTopic     string
	// MaxUnreported is how many open holds without a reading a customer may have; 0
	// takes [store.MaxUnreported].
	MaxUnreported int
	// SecretKey is SECRET_KEY: keys of at least 32 bytes, separated by commas;
	// the first signs, all verify.
	SecretKey string
	// Origins are the browser origins that may call; nil takes those of contract 1.11.
	Origins []string
	// TrustedProxies are the proxies whose X-Forwarded-For is believed, see
	// [auth.NewClients]; without any, a client's address is that of its connection.
	TrustedProxies []string
	// PasswordSlots limits concurrent bcrypt computations; 0 takes half of
	// GOMAXPROCS, of which a main sets twice its cores. Without the limit a burst of
	// logins would occupy every core. See docs/decisions/0022-twice-the-processors.md.
	PasswordSlots int
	// PasswordCost is bcrypt's cost; 0 takes 12. Only tests take less.
	PasswordCost int
	Clock        func() time.Time
	Log          *slog.Logger
}

// API answers requests; see [API.Run] for what it does between them.
type API struct {
	http.Handler

	retrainer *learning.Retrainer
	newest    *data.Newest
	keys      *auth.Keys
	watch     *gateways.Watch
	log       *slog.Logger
}

// New builds the API. It fails when a dependency is missing or the secret key
// is too short.
func New(cfg Config) (*API, error) {
	if cfg.Store == nil || cfg.Readings == nil || cfg.Publisher == nil || cfg.Clock == nil || cfg.Log == nil ||
		cfg.ProjectID == "" || cfg.DataTopic == "" {
		return nil, errors.New("api: store, readings, publisher, clock, log, project and topic of readings are required")
	}
	cfg.MaxUnreported = cmp.Or(cfg.MaxUnreported, store.MaxUnreported)
	log := requestlog.NewLogger(cfg.Log)
	tokens, err := auth.NewTokens(cfg.SecretKey, cfg.Clock)
	if err != nil {
		return nil, err
	}
	clients, err := auth.NewClients(cfg.TrustedProxies)
	if err != nil {
		return nil, err
	}
	sessions := auth.NewSessions(cfg.Store.TokensValidAfter, cfg.Clock)
	keys := auth.NewKeys(cfg.Store, cfg.Clock, log)
	authenticator := &auth.Authenticator{Tokens: tokens, Sessions: sessions, Keys: keys, Log: log}
	retrainer := &learning.Retrainer{Store: cfg.Store, Publisher: cfg.Publisher, Clock: cfg.Clock, Log: log}
	router := rest.NewRouter()
	r := rest.New(router, rest.Config{Authenticate: authenticator.Authenticate, MapError: storeErrors(cfg.MaxUnreported), Log: log})

	registerHealth(r)
	(&customers.Handlers{
		Store: cfg.Store, Passwords: cfg.passwords(), Tokens: tokens, Sessions: sessions, Clients: clients, Clock: cfg.Clock,
	}).Register(r)
	maintenance := &incidents.MaintenanceHandlers{Store: cfg.Store, Clock: cfg.Clock}
	(&rooms.Handlers{Store: cfg.Store, End: maintenance.End}).Register(r)
	(&rooms.SensorHandlers{Store: cfg.Store, End: maintenance.End, MaxUnreported: cfg.MaxUnreported}).Register(r)
	(&gateways.Handlers{
		Store: cfg.Store, Clients: clients, Tokens: cfg.GatewayTokens, ProjectID: cfg.ProjectID, Topic: cfg.DataTopic,
		Clock: cfg.Clock, Log: log,
	}).Register(r)
	newest := data.NewNewest(cfg.Store, cfg.Readings)
	(&data.Handlers{
		Store: cfg.Store, Readings: cfg.Readings, Newest: newest,
		Forecaster: cfg.Forecaster, Models: cfg.Models, Clock: cfg.Clock,
	}).Register(r)
	(&alerts.Handlers{Store: cfg.Store}).Register(r)
	(&alerts.ThresholdHandlers{Store: cfg.Store}).Register(r)
	told := &incidents.Handlers{Store: cfg.Store, Retrainer: retrainer, Clock: cfg.Clock}
	told.Register(r)
	overview.New(cfg.Store, told, cfg.Clock).Register(r)
	(&metrics.Handlers{Store: cfg.Store, Incidents: told, Clock: cfg.Clock}).Register(r)
	(&audit.Handlers{Store: cfg.Store}).Register(r)
	(&incidents.RuleHandlers{Store: cfg.Store, Readings: cfg.Readings, Clock: cfg.Clock}).Register(r)
	maintenance.Register(r)
	(&learning.Handlers{Store: cfg.Store, Retrainer: retrainer, Log: log}).Register(r)
	(&apikeys.Handlers{Store: cfg.Store, Keys: keys, Clock: cfg.Clock}).Register(r)

	document, err := r.Document()
	if err != nil {
		return nil, err
	}
	if err := pages.Register(router, document); err != nil {
		return nil, err
	}
	handler, err := middleware(cfg, log, router)
	if err != nil {
		return nil, err
	}
	return &API{
		Handler: handler, retrainer: retrainer, newest: newest, keys: keys, log: log,
		watch: &gateways.Watch{Store: cfg.Store, Clock: cfg.Clock, Log: log},
	}, nil
}

// passwords returns the hasher of passwords with the defaults filled in.
func (cfg Config) passwords() *auth.Passwords {
	slots, cost := cfg.PasswordSlots, cfg.PasswordCost
	if slots == 0 {
		slots = runtime.GOMAXPROCS(0) / 2
	}
	if cost == 0 {
		cost = auth.DefaultPasswordCost
	}
	return auth.NewPasswords(slots, cost)
}

// Run starts due training runs and publishes pending requests once a minute, fills the
// states of nodes that have none, notes when API keys are used, and logs dark sites, until
// ctx ends; it then returns nil.
func (a *API) Run(ctx context.Context) error {
	var running errgroup.Group
	running.Go(func() error { return a.retrainer.Run(ctx) })
	running.Go(func() error { return a.newest.Run(ctx, a.log) })
	running.Go(func() error { return a.keys.Run(ctx) })
	running.Go(func() error { return a.watch.Run(ctx) })
	return running.Wait() //nolint:wrapcheck // all return nil
}
