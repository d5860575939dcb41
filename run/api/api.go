// Package api is the backend of Coldaisle: every endpoint that customers, the dashboard
// and scripts call. It answers from the metadata in PostgreSQL and the readings in the
// time-series table.
//
// [New] returns all of it as one http.Handler, including middleware and
// documentation; run/server serves it on Cloud Run and run/local beside the rest
// of the system, both through [Serve]. The package reads no environment and has no
// global state, so that one process can run several.
//
// A request passes, outside in: the client's address (auth), trace, request id and log line (requestlog),
// recovery from panics, CORS, compression, the router (rest); then, within an
// operation, the token (auth), the limits and validation of its input (rest, input),
// and the handler (alerting, audit, customers, data, gateways, overview, records, rooms, training).
// An operation's Go types are the one source of its validation and of its part of the OpenAPI
// document.
//
// Tenants are isolated: every query has the caller's customer id, and another
// customer's resource is answered exactly as if it did not exist.
package api

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"time"

	"coldaisle.dev/run/api/alerting"
	"coldaisle.dev/run/api/audit"
	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/customers"
	"coldaisle.dev/run/api/data"
	"coldaisle.dev/run/api/gateways"
	"coldaisle.dev/run/api/overview"
	"coldaisle.dev/run/api/records"
	"coldaisle.dev/run/api/requestlog"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/run/api/rooms"
	"coldaisle.dev/run/api/training"
	"coldaisle.dev/shared/httpserver"
	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/recordstore"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/learning"
)

// Config is what the API needs. All fields but Models, GatewayTokens, RecordKeys, Records, Origins,
// TrustedProxies, MaxUnreported, PasswordSlots and PasswordCost must be set.
type Config struct {
	DB        *store.DB
	Readings  readings.Reader
	Publisher training.Publisher
	Drills    alerting.DrillPublisher
	// Models are the customers' models. Without them there is no forecast, and the shipped
	// calibration says what is usual.
	Models data.Models
	// GatewayTokens gives the access tokens by which enrolled gateways publish to
	// DataTopic of ProjectID; without it they get none.
	GatewayTokens *gateways.PublishingTokens
	// RecordKeys sign monthly records, which Records keeps; without either there are none.
	RecordKeys *records.Keys
	Records    *recordstore.Bucket
	ProjectID  string
	DataTopic  string
	// MaxUnreported is how many open sensors without a reading a customer may have; 0 means
	// [accounts.MaxUnreported].
	MaxUnreported int
	// SecretKey is SECRET_KEY: keys of at least 32 bytes, separated by commas;
	// the first signs, all verify.
	SecretKey string
	// Origins are the browser origins that may call; nil means those of contract 1.11.
	Origins []string
	// TrustedProxies are the proxies whose X-Forwarded-For is trusted, see
	// [auth.NewClients]; without any, a client's address is that of its connection.
	TrustedProxies []string
	// PasswordSlots limits concurrent bcrypt computations; 0 means half of GOMAXPROCS,
	// which a main sets to twice its cores. Without the limit a burst of logins would
	// occupy every core.
	PasswordSlots int
	// PasswordCost is bcrypt's cost; 0 means 12. Only tests use less.
	PasswordCost int
	Clock        func() time.Time
	Log          *slog.Logger
}

// API answers requests, and does background work in [API.Run].
type API struct {
	http.Handler

	cfg        Config
	operations *rest.API
	retrainer  *training.Retrainer
	alerts     *alerting.Handlers
}

// document is the OpenAPI document, which TestDocument compares with the operations.
//
//go:embed openapi.json
var document []byte

// New builds the API. It fails when a dependency is missing or the secret key
// is too short.
func New(cfg Config) (*API, error) {
	if cfg.DB == nil || cfg.Readings == nil || cfg.Publisher == nil || cfg.Drills == nil || cfg.Clock == nil || cfg.Log == nil ||
		cfg.ProjectID == "" || cfg.DataTopic == "" {
		return nil, errors.New("api: store, readings, publishers, clock, log, project and topic of readings are required")
	}
	cfg.MaxUnreported = cmp.Or(cfg.MaxUnreported, accounts.MaxUnreported)
	log := requestlog.NewLogger(cfg.Log)
	tokens, err := auth.NewTokens(cfg.SecretKey, cfg.Clock)
	if err != nil {
		return nil, err
	}
	clients, err := auth.NewClients(cfg.TrustedProxies)
	if err != nil {
		return nil, err
	}
	authenticator := auth.NewAuthenticator(accounts.New(cfg.DB), tokens, cfg.Clock, log)
	retrainer := &training.Retrainer{DB: cfg.DB, Publisher: cfg.Publisher, Clock: cfg.Clock, Log: log}
	router := rest.NewRouter()
	r := rest.New(router, rest.Config{Authenticate: authenticator.Authenticate, MapError: storeErrors(cfg.MaxUnreported), Log: log, Secrets: tokens.Secrets(), Changes: cfg.DB.Connections() / 2})

	registerHealth(r)
	(&customers.Handlers{DB: cfg.DB, Passwords: cfg.passwords(), Tokens: tokens, Clock: cfg.Clock}).Register(r)
	alerts := &alerting.Handlers{DB: cfg.DB, Readings: cfg.Readings, Retrainer: retrainer, Drills: cfg.Drills, Clock: cfg.Clock, Log: log}
	alerts.Register(r)
	(&rooms.Handlers{DB: cfg.DB, End: alerts.EndScope, MaxUnreported: cfg.MaxUnreported}).Register(r)
	(&gateways.Handlers{
		DB: cfg.DB, Tokens: cfg.GatewayTokens, ProjectID: cfg.ProjectID, Topic: cfg.DataTopic,
		Clock: cfg.Clock, Log: log,
	}).Register(r)
	(&data.Handlers{
		DB: cfg.DB, Readings: cfg.Readings, Models: cfg.Models, Clock: cfg.Clock,
	}).Register(r)
	(&overview.Handlers{DB: cfg.DB, Clock: cfg.Clock}).Register(r)
	(&audit.Handlers{DB: cfg.DB}).Register(r)
	(&records.Handlers{DB: cfg.DB, Readings: cfg.Readings, Keys: cfg.RecordKeys, Bucket: cfg.Records, Clock: cfg.Clock}).Register(r)
	(&training.Handlers{DB: cfg.DB, Retrainer: retrainer}).Register(r)

	site, _ := fs.Sub(documentation, "pages/site") // it fails for names that are no paths alone
	registerDocumentation(router, site)
	handler, err := middleware(cfg, clients, log, router)
	if err != nil {
		return nil, err
	}
	return &API{Handler: handler, cfg: cfg, operations: r, retrainer: retrainer, alerts: alerts}, nil
}

func (cfg Config) passwords() *auth.Passwords {
	return auth.NewPasswords(cmp.Or(cfg.PasswordSlots, runtime.GOMAXPROCS(0)/2), cmp.Or(cfg.PasswordCost, auth.DefaultPasswordCost))
}

// Run starts due training runs and publishes pending requests once a minute, wakes requests that wait
// for changes, and logs dark sites every five minutes, until ctx ends; it then returns nil.
func (a *API) Run(ctx context.Context) error {
	var running sync.WaitGroup
	running.Go(func() { a.alerts.Run(ctx) })
	running.Go(func() { every(ctx, time.Minute, a.retrainer.StartAllDue) })
	running.Go(func() {
		every(ctx, 5*time.Minute, func(ctx context.Context) { gateways.LogDarkSites(ctx, a.cfg.DB, a.cfg.Clock(), a.cfg.Log) })
	})
	running.Wait()
	return nil
}

// every calls a function now and after each interval, until ctx ends.
func every(ctx context.Context, interval time.Duration, do func(context.Context)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		do(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// headerTimeout is how long a client may take to send the header of a request.
const headerTimeout = 5 * time.Second

// Serve answers on a listener until the context ends, then lets the requests
// in flight finish and returns nil. It closes the listener. Cloud Run's front
// end keeps most slow clients away; locally there are only these limits.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       20 * time.Second,
		WriteTimeout:      rest.WriteTimeout,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
	return httpserver.Run(ctx, listener, server, log, slog.LevelWarn)
}

// healthPath is called by Cloud Run's probes and by the dashboard.
const healthPath = "/health"

type health struct {
	Status string `json:"status" enum:"healthy" doc:"Always healthy while the service answers." example:"healthy"`
}

// registerHealth adds the probe. It says that this process answers, and does not check
// the database, which a restart would not repair.
func registerHealth(r *rest.API) {
	rest.Answer(r, rest.Operation{
		ID: "getHealth", Method: http.MethodGet, Path: healthPath, Tag: rest.TagService, Public: true,
		Summary: "Check that the service is up",
	}, func(context.Context, *struct{}) (health, error) {
		return health{Status: "healthy"}, nil
	})
}

// storeErrors returns the function that turns the stores' errors into answers; no other
// place does.
func storeErrors(maxUnreported int) func(error) (*rest.Error, bool) {
	table := []struct {
		err    error
		answer *rest.Error
	}{
		{store.ErrLastOwner, rest.Conflict("The account needs an owner; make somebody else one first")},
		{store.ErrTooManyPersons, rest.BadRequest(fmt.Sprintf("At most %d persons, open invitations included", accounts.MaxPersons))},
		{store.ErrEmailTaken, rest.BadRequest("Email already registered")},
		{store.ErrUsernameTaken, rest.BadRequest("Username already taken")},
		{store.ErrCorrectionExists, rest.Conflict("The sensor has a correction from that time; withdraw it, or add one from another time")},
		{store.ErrTooManyCorrections, rest.BadRequest(fmt.Sprintf("At most %d corrections of a sensor", accounts.MaxCorrections))},
		{store.ErrSensorExists, rest.BadRequest("Sensor already exists")},
		{store.ErrTooManyGateways, rest.BadRequest(fmt.Sprintf("At most %d gateways, and %d whose code waits; revoke some", accounts.MaxGateways, accounts.MaxEnrolmentCodes))},
		{store.ErrTooManyUnreported, rest.BadRequest(fmt.Sprintf("At most %d sensors may wait for their first reading; enrol a gateway to have more", maxUnreported))},
		{store.ErrGatewayEnrolled, rest.Conflict("The code has enrolled another gateway")},
		{store.ErrStatusReplayed, rest.Conflict("This status was received before")},
		{store.ErrTooManyAPIKeys, rest.BadRequest(fmt.Sprintf("At most %d API keys; delete some", accounts.MaxAPIKeys))},
		{store.ErrTooManyWatches, rest.BadRequest(fmt.Sprintf("At most %d watches; remove some", accounts.MaxWatches))},
		{store.ErrTooManyAnswers, rest.ErrTooManyAnswers},
		{incidents.ErrIncidentOver, rest.Conflict("The incident is over")},
		{incidents.ErrNobodyHasIt, rest.Conflict("Nobody has the incident")},
		{incidents.ErrOtherRooms, rest.Forbidden("The incident concerns rooms that the key does not cover")},
		{incidents.ErrTooManyDrills, rest.TooManyRequests(fmt.Sprintf("At most %d drills in a day", incidents.MaxDrills), time.Hour)},
		{incidents.ErrAfterLast, rest.BadRequest("after: is beyond the last change of this account")},
		{incidents.ErrThresholdRule, rest.BadRequest("Only the limit of a threshold rule can be changed")},
		{store.ErrPredictionExists, rest.BadRequest("Prediction already exists")},
		{store.ErrNoAnomaly, rest.BadRequest("Excursion is not an anomaly")},
		{store.ErrPredictionUsed, rest.BadRequest("Prediction already used in training")},
		{store.ErrNoSensors, rest.BadRequest("No sensors to learn from")},
		{store.ErrRunning, rest.Conflict("A training run is already running")},
	}
	return func(err error) (*rest.Error, bool) {
		if soon, ok := errors.AsType[*learning.TooSoonError](err); ok {
			return rest.TooManyRequests("Only one training run in 10 minutes can be started by hand", soon.Wait), true
		}
		if limit, ok := errors.AsType[*readings.LimitError](err); ok {
			return limitAnswer(limit.Purpose), true
		}
		if missing, ok := errors.AsType[store.NotFoundError](err); ok {
			text := missing.Error()
			return rest.NotFound(strings.ToUpper(text[:1]) + text[1:]), true
		}
		for _, known := range table {
			if errors.Is(err, known.err) {
				return known.answer, true
			}
		}
		return nil, false
	}
}

// limitAnswer is the answer to a query that would scan more than its purpose allows.
func limitAnswer(purpose readings.Purpose) *rest.Error {
	if purpose == readings.Chart {
		return rest.BadRequest("The range holds more readings than one chart may scan; ask for a shorter one")
	}
	return rest.BadRequest("The range holds more readings than one request may scan; ask for a shorter one, several times")
}
