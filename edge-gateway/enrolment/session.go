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
	"coldaisle.dev/shared/wire"
)

// Times between status requests.
const (
	statusInterval = time.Minute
	// retryInterval is that after one that failed.
	retryInterval = 10 * time.Second
	// tokenMargin is how long before its expiry a token is no longer used: a publish
	// may take as long.
	tokenMargin = 30 * time.Second
)

// BlockedError is why an enrolled gateway cannot publish. Its readings are kept meanwhile.
type BlockedError struct{ kind, text string }

func (b *BlockedError) Error() string { return b.text }

// Kind is the word by which failed publishes are counted.
func (b *BlockedError) Kind() string { return b.kind }

// The reasons.
var (
	ErrRevoked = &BlockedError{"revoked", "the enrolment of this gateway was revoked: readings are kept and not published"}
	ErrClone   = errors.New("two machines use the key of this gateway: enrol one of them anew, or switch it off")
	errWaiting = &BlockedError{"status", "the API has not answered a status yet: there is no time and no token to publish with"}
	errExpired = &BlockedError{"token", "the access token has expired and the API gives no new one"}
)

// Report is what a gateway tells of itself with each status.
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
	// tokens says that publishing needs one: not beside an emulator.
	tokens bool
	client *http.Client
	// run stands for this process: the API counts the statuses of each.
	run string
	log *slog.Logger

	failures prometheus.Counter
	tried    chan struct{} // closed after the first status
	once     sync.Once

	mu       sync.Mutex
	sequence int64
	reply    wire.StatusReply // the newest
	token    oauth2.Token     // the newest that there was
	fault    error            // of the newest status
	pairKey  []byte
}

// NewSession returns the session of an identity. system is the machine's clock.
func NewSession(id *Identity, c *clock.Clock, system func() time.Time, version string, tokens bool, log *slog.Logger) *Session {
	return &Session{
		id: id, key: id.key(), clock: c, system: system, version: version, tokens: tokens,
		client: newClient(), run: rand.Text(), log: log, tried: make(chan struct{}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "gateway", Name: "status_failures_total", Help: "Status requests that the API did not answer.",
		}),
		pairKey: id.loadPairKey(),
	}
}

// Run sends what report returns each minute, until the context ends. The error is
// always nil, for an errgroup.
func (s *Session) Run(ctx context.Context, report func() Report) error {
	for ctx.Err() == nil {
		wait := statusInterval
		corrected, err := s.status(ctx, report())
		s.once.Do(func() { close(s.tried) })
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			wait = retryInterval
		case corrected:
			wait = 0 // a status by a wrong clock gets the time and nothing else
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	return nil
}

// Tried is closed once the first status has been sent, whether or not the API answered it.
func (s *Session) Tried() <-chan struct{} { return s.tried }

// status sends one status and takes the reply. corrected says that the reply has moved
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
	err = post(ctx, s.client, at(s.id.API, statusPath), signed, &reply)
	answered := uptime()
	if err == nil && (reply.Nonce != request.Nonce || reply.Time.IsZero()) {
		err = errors.New("what answers is not the API: it is no reply to this status")
	}
	if err != nil {
		s.note(ctx, err)
		return false, err
	}
	before := s.clock.Now()
	if err := s.clock.Learn(asked, answered, reply.Time); err != nil {
		s.log.WarnContext(ctx, "the time is known and cannot be kept for a restart", "error", err.Error())
	}
	corrected = s.clock.Now().Sub(before).Abs() > time.Minute
	s.takePairKey(ctx, reply)
	s.mu.Lock()
	s.reply = reply
	if reply.AccessToken != "" {
		s.token = oauth2.Token{AccessToken: reply.AccessToken, TokenType: "Bearer", Expiry: reply.TokenExpiresAt}
	}
	s.mu.Unlock()
	s.note(ctx, nil)
	return corrected, nil
}

// note keeps what came of a status, and logs when that is another thing than before.
func (s *Session) note(ctx context.Context, fault error) {
	if fault != nil {
		s.failures.Inc()
	}
	s.mu.Lock()
	before := s.fault
	s.fault = fault
	s.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case fault != nil && before == nil:
		s.log.WarnContext(ctx, "the API does not answer a status", "error", fault.Error())
	case fault == nil && before != nil:
		s.log.InfoContext(ctx, "the API answers again")
	}
}

// Ready says why nothing can be published now; nil when readings can.
func (s *Session) Ready() error {
	if err := s.clockFault(); err != nil {
		return &BlockedError{"clock", err.Error()}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.reply.Revoked:
		return ErrRevoked
	case s.reply.Time.IsZero(), s.tokens && s.token.AccessToken == "":
		return s.because(errWaiting)
	case s.tokens && !s.clock.Now().Before(s.token.Expiry.Add(-tokenMargin)):
		return s.because(errExpired)
	}
	return nil
}

// because adds why the API did not answer; the lock is held.
func (s *Session) because(b *BlockedError) error {
	if s.fault == nil {
		return b
	}
	return &BlockedError{b.kind, b.text + ": " + s.fault.Error()}
}

// Problem says what is wrong with the enrolment: it is revoked, copied, or the API
// does not answer.
func (s *Session) Problem(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.reply.Revoked:
		return ErrRevoked
	case s.reply.Clone:
		return ErrClone
	}
	return s.fault
}

// ClockProblem says that the system clock is too far off.
func (s *Session) ClockProblem(context.Context) error { return s.clockFault() }

func (s *Session) clockFault() error {
	offset, known := s.clock.Offset()
	if !known || offset.Abs() <= clock.Limit {
		return nil
	}
	direction := "slow"
	if offset < 0 {
		direction = "fast"
	}
	return fmt.Errorf("the system clock is %s by %s: nothing can be published until it is set, readings are kept",
		direction, offset.Abs().Round(time.Second))
}

// Token implements [oauth2.TokenSource] with the newest token of the API's. It is
// asked for each publish; the expiry is left out, since the library that asks would
// compare it with the system clock.
func (s *Session) Token() (*oauth2.Token, error) {
	if err := s.Ready(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return &oauth2.Token{AccessToken: s.token.AccessToken, TokenType: s.token.TokenType}, nil
}

// Target is where the API says that readings are published.
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

// ID is the gateway's, under which readings are taken.
func (s *Session) ID() string { return s.id.GatewayID }

// Sign returns the attributes of a message of topic data.
func (s *Session) Sign(at time.Time, age wire.Age, data []byte) map[string]string {
	return wire.SignData(s.key, s.id.GatewayID, at, age, data)
}

// Time is when a reading was taken, as [clock.Clock.Time] says.
func (s *Session) Time(boot [16]byte, uptime time.Duration) (at time.Time, ok bool) {
	return s.clock.Time(boot, uptime)
}

// Collectors are the session's metrics.
func (s *Session) Collectors() []prometheus.Collector {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "gateway", Name: name, Help: help}, value)
	}
	flag := func(name, help string, is func(wire.StatusReply) bool) prometheus.Collector {
		return gauge(name, help, func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			if is(s.reply) {
				return 1
			}
			return 0
		})
	}
	return []prometheus.Collector{
		s.failures,
		gauge("clock_offset_seconds", "What is added to the system clock; 0 until it is known.", func() float64 {
			offset, _ := s.clock.Offset()
			return offset.Seconds()
		}),
		gauge("clock_known", "1 when the API has told the time in this boot.", func() float64 {
			if _, known := s.clock.Offset(); known {
				return 1
			}
			return 0
		}),
		gauge("token_expires_timestamp_seconds", "When the access token expires; 0 without one.", func() float64 {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.token.Expiry.IsZero() {
				return 0
			}
			return float64(s.token.Expiry.Unix())
		}),
		flag("enrolment_revoked", "1 when the API says that the enrolment is revoked.", func(r wire.StatusReply) bool { return r.Revoked }),
		flag("enrolment_cloned", "1 when two machines use the key.", func(r wire.StatusReply) bool { return r.Clone }),
	}
}
