package enrolment

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/oauth2"

	"coldaisle.dev/edge-gateway/clock"
	"coldaisle.dev/shared/pause"
	"coldaisle.dev/shared/wire"
)

// Times between status requests.
const (
	statusInterval = time.Minute
	// retryInterval is the time after one that failed.
	retryInterval = 10 * time.Second
	// tokenMargin is how long before its expiry a token is no longer used, because a publish
	// may take as long.
	tokenMargin = 30 * time.Second
)

// BlockedError is the reason why an enrolled gateway cannot publish. Readings are kept
// meanwhile.
type BlockedError struct{ kind, text string }

func (b *BlockedError) Error() string { return b.text }

// Kind is the label of failed publishes in metrics.
func (b *BlockedError) Kind() string { return b.kind }

// The reasons.
var (
	ErrRevoked = &BlockedError{"revoked", "the enrolment of this gateway was revoked: it takes no readings"}
	ErrClone   = errors.New("two machines used the key of this gateway in the last 24 hours: enrol one of them anew, or switch it off")
	errWaiting = &BlockedError{"status", "the API has not answered a status yet: there is no time and no token to publish with"}
	errExpired = &BlockedError{"token", "there is no access token that is still valid, and the API gives none"}
)

// Report is the part of a status that the gateway supplies.
type Report struct {
	Role           string
	OutboxReadings int
	Nodes          []wire.StatusNode
}

// Target is where readings are published.
type Target struct{ ProjectID, Topic string }

// Session is an enrolled gateway's connection to the API. Its methods may be called by
// many goroutines.
type Session struct {
	id      *Identity
	key     ed25519.PrivateKey
	clock   *clock.Clock
	system  func() time.Time
	version string
	// tokens is set if publishing needs an access token; with an emulator it does not.
	tokens bool
	client *http.Client
	// run identifies this process: the API counts the statuses of each.
	run string
	log *slog.Logger

	tried chan struct{} // closed after the first status
	once  sync.Once

	mu       sync.Mutex
	sequence int64
	reply    wire.StatusReply // the newest
	token    oauth2.Token     // the newest received
	err      error            // of the newest status
	pairKey  []byte
}

// NewSession returns the session of an identity. system is the machine's clock.
func NewSession(id *Identity, c *clock.Clock, system func() time.Time, version string, tokens bool, log *slog.Logger) *Session {
	s := &Session{
		id: id, key: id.key(), clock: c, system: system, version: version, tokens: tokens,
		client: newClient(), run: rand.Text(), log: log, tried: make(chan struct{}),
	}
	s.pairKey, s.reply.Revoked = id.loadPairKey()
	return s
}

// Run reports to the API each minute until the context ends. The error is always nil, for an
// errgroup.
func (s *Session) Run(ctx context.Context, report func() Report) error {
	for ctx.Err() == nil {
		wait := statusInterval
		corrected, err := s.status(ctx, report())
		s.once.Do(func() { close(s.tried) })
		switch {
		case err != nil:
			wait = retryInterval
		case corrected:
			wait = 0 // the API gives no token for a status by a wrong clock
		}
		_ = pause.For(ctx, wait)
	}
	return nil
}

// Tried is closed once the first status has been sent, whether or not the API answered it.
func (s *Session) Tried() <-chan struct{} { return s.tried }

// status sends one status and applies the reply. corrected reports that the reply moved
// the clock by more than a minute.
func (s *Session) status(ctx context.Context, report Report) (corrected bool, err error) {
	offset, _ := s.clock.Offset()
	s.mu.Lock()
	s.sequence++
	request := wire.StatusRequest{
		GatewayID: s.id.GatewayID, Nonce: rand.Text(), BootID: s.run, Sequence: s.sequence,
		SentAt: s.system().UTC(), Version: s.version, Role: report.Role, ClockOffsetMS: offset.Milliseconds(),
		OutboxReadings: int64(report.OutboxReadings), Nodes: report.Nodes[:min(len(report.Nodes), wire.MaxStatusNodes)],
	}
	s.mu.Unlock()
	signed, err := wire.SignStatus(s.key, request)
	if err != nil {
		return false, err
	}
	var reply wire.StatusReply
	uptime := s.clock.Boot().Uptime
	asked := uptime()
	err = post(ctx, s.client, s.id.API, statusPath, signed, &reply)
	answered := uptime()
	if err == nil && (reply.Nonce != request.Nonce || reply.Time.IsZero()) {
		err = errors.New("the answer is not the API's: it does not reply to this status")
	}
	if err != nil {
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
		return false, err
	}
	before := s.clock.Now()
	if err := s.clock.Adjust(asked, answered, reply.Time); err != nil {
		s.log.WarnContext(ctx, "the time cannot be stored for a restart", "error", err.Error())
	}
	corrected = s.clock.Now().Sub(before).Abs() > time.Minute
	s.storePairKey(ctx, reply)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reply, s.err = reply, nil
	if reply.AccessToken != "" {
		s.token = oauth2.Token{AccessToken: reply.AccessToken, TokenType: "Bearer", Expiry: reply.TokenExpiresAt}
	}
	return corrected, nil
}

// Ready returns why nothing can be published now, or nil.
func (s *Session) Ready() error {
	if err := s.clockError(); err != nil {
		return &BlockedError{"clock", err.Error()}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.reply.Revoked:
		return ErrRevoked
	case s.reply.Time.IsZero():
		return s.withLastError(errWaiting)
	case s.tokens && !s.clock.Now().Before(s.token.Expiry.Add(-tokenMargin)):
		return s.withLastError(errExpired)
	}
	return nil
}

// withLastError adds the error of the newest status; the lock is held.
func (s *Session) withLastError(b *BlockedError) error {
	if s.err == nil {
		return b
	}
	return &BlockedError{b.kind, b.text + ": " + s.err.Error()}
}

// Problem returns an error if the enrolment is revoked or its key copied, or if the API does not
// answer.
func (s *Session) Problem(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.reply.Revoked:
		return ErrRevoked
	case s.reply.Clone:
		return ErrClone
	}
	return s.err
}

// ClockProblem returns an error while the system clock is too far off.
func (s *Session) ClockProblem(context.Context) error { return s.clockError() }

func (s *Session) clockError() error {
	offset, known := s.clock.Offset()
	if !known || offset.Abs() <= clock.Limit {
		return nil
	}
	return fmt.Errorf("the system clock is %s: nothing can be published until it is set, readings are kept", clock.FastBy(-offset))
}

// Token implements [oauth2.TokenSource] with the API's newest token. It leaves out the expiry,
// which the caller would compare with the system clock, and is called for each publish.
func (s *Session) Token() (*oauth2.Token, error) {
	if err := s.Ready(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return &oauth2.Token{AccessToken: s.token.AccessToken, TokenType: s.token.TokenType}, nil
}

// Target returns the project and topic of the newest reply.
func (s *Session) Target() Target {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Target{cmp.Or(s.reply.ProjectID, s.id.ProjectID), cmp.Or(s.reply.Topic, s.id.Topic)}
}

// Revoked reports whether the API says that the enrolment is revoked.
func (s *Session) Revoked() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reply.Revoked
}

// ID returns the gateway's id.
func (s *Session) ID() string { return s.id.GatewayID }

// Sign returns the attributes of a message of topic data.
func (s *Session) Sign(at time.Time, age wire.Age, data []byte) map[string]string {
	return wire.SignData(s.key, s.id.GatewayID, at, age, data)
}

// Time returns when a reading was taken, see [clock.Clock.Time].
func (s *Session) Time(boot [16]byte, uptime time.Duration) (at time.Time, ok bool) {
	return s.clock.Time(boot, uptime)
}

// Collectors are the session's metrics.
func (s *Session) Collectors() []prometheus.Collector {
	opts := prometheus.GaugeOpts{Namespace: "gateway", Name: "clock_offset_seconds", Help: "What is added to the system clock; 0 until it is known."}
	return []prometheus.Collector{prometheus.NewGaugeFunc(opts, func() float64 {
		offset, _ := s.clock.Offset()
		return offset.Seconds()
	})}
}
