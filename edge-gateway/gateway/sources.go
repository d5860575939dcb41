package gateway

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/prometheus/client_golang/prometheus"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/strictjson"
)

// Limits of a source of batches.
const (
	// defaultSourceNodes is how many nodes a source may bring by default.
	defaultSourceNodes = 1000
	// sourceBatches is how many batches of a source are in memory at once; others wait.
	sourceBatches = 4
	minToken      = 16
)

// Source is a program that may send batches. It is recognised by its address, its token, or
// both if it has both.
type Source struct {
	Name string `json:"name"`
	// Networks are its addresses, or networks such as 10.0.0.0/24.
	Networks []string `json:"networks"`
	// Token is its bearer token.
	Token string `json:"token"`
	// MaxNodes is how many nodes it may bring; 0 means 1,000.
	MaxNodes int `json:"max_nodes"`
}

// SourcesFile is the file that names the sources.
type SourcesFile struct {
	Sources []Source `json:"sources"`
	// Telegraf adds to the known fields of Telegraf's metrics.
	Telegraf []TelegrafField `json:"telegraf"`
}

// UseSources lets the sources of a file send batches. Where the file is wrong nobody may, nodes are
// served all the same, and /health says why.
func (c *Config) UseSources(ctx context.Context, path string, log *slog.Logger) {
	var problem error
	if c.Batches, problem = ReadSources(path); problem != nil {
		log.ErrorContext(ctx, "nobody may send batches", "error", problem.Error())
		c.Checks = append(c.Checks, Check{Name: "sources", Now: func() error { return problem }})
	}
}

// ReadSources reads the file that names the sources. Without a path there are none.
func ReadSources(path string) (file SourcesFile, err error) {
	if path == "" {
		return file, nil
	}
	content, err := os.ReadFile(path) //nolint:gosec // the setting of whoever runs the gateway
	if err != nil {
		return SourcesFile{}, fmt.Errorf("read sources: %w", err)
	}
	// A second value after the first, or a list given twice, would let nobody in without an error.
	if err := jsonv2.Unmarshal(content, &file, strictjson.Options(), jsonv2.RejectUnknownMembers(true)); err != nil {
		if semantic, ok := errors.AsType[*jsonv2.SemanticError](err); ok {
			semantic.GoType = nil // of no use to who wrote the file
		}
		return SourcesFile{}, fmt.Errorf("read sources: %w", err)
	}
	var errs []error
	for i, s := range file.Sources {
		errs = append(errs, s.validate())
		if slices.ContainsFunc(file.Sources[:i], func(other Source) bool { return other.Name == s.Name }) {
			errs = append(errs, fmt.Errorf("source %q is given twice", s.Name))
		}
	}
	_, err = prepareTelegraf(file.Telegraf)
	if err := errors.Join(append(errs, err)...); err != nil {
		return SourcesFile{}, err
	}
	return file, nil
}

func (s Source) validate() error {
	var errs []error
	check := func(ok bool, rule string) {
		if !ok {
			errs = append(errs, fmt.Errorf("source %q %s", s.Name, rule))
		}
	}
	check(reading.ValidateNodeID(s.Name) == nil, fmt.Sprintf("must have a name of 1 to %d letters, digits, '.', '_', ':' or '-'", reading.MaxNodeIDLength))
	check(len(s.Networks) > 0 || s.Token != "", "needs networks or a token")
	check(s.Token == "" || len(s.Token) >= minToken, fmt.Sprintf("must have a token of %d characters or more", minToken))
	check(s.MaxNodes >= 0, "must have a max_nodes of 0 or more")
	for _, text := range s.Networks {
		_, err := parseNetwork(text)
		check(err == nil, fmt.Sprintf("has %q, which is no address and no network", text))
	}
	return errors.Join(errs...)
}

// parseNetwork reads a network, or an address, which is a network of one.
func parseNetwork(text string) (netip.Prefix, error) {
	if strings.Contains(text, "/") {
		network, err := netip.ParsePrefix(text)
		const mapped = 96 // bits before an address of IPv4
		if within := network.Bits() - mapped; network.Addr().Is4In6() && within >= 0 {
			network = netip.PrefixFrom(network.Addr().Unmap(), within)
		}
		return network, err //nolint:wrapcheck // the caller has the words
	}
	address, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}, err //nolint:wrapcheck // as above
	}
	address = address.Unmap()               // as that of a request is
	return address.Prefix(address.BitLen()) //nolint:wrapcheck // as above
}

type source struct {
	Source

	networks []netip.Prefix
	token    [sha256.Size]byte
	slots    chan struct{} // one for each batch in memory
	counter  *prometheus.CounterVec

	mu      sync.Mutex
	results map[string]int64
	problem string // of the last reading or batch that was refused
	last    time.Time
}

// SourceHealth is a source in /health.
type SourceHealth struct {
	Name  string `json:"name"`
	Nodes int    `json:"nodes"` // how many it brought
	// Results counts its readings by their result.
	Results map[string]int64 `json:"results"`
	Problem string           `json:"problem,omitempty"` // of the last reading or batch that was refused
	Last    time.Time        `json:"last,omitzero"`     // its last batch
}

func newSources(configured []Source, m *metrics) []*source {
	sources := make([]*source, len(configured))
	for i, c := range configured {
		c.MaxNodes = cmp.Or(c.MaxNodes, defaultSourceNodes)
		s := &source{
			Source: c, token: sha256.Sum256([]byte(c.Token)), slots: make(chan struct{}, sourceBatches), counter: m.batches, results: map[string]int64{},
		}
		for _, text := range c.Networks {
			network, _ := parseNetwork(text)
			s.networks = append(s.networks, network)
		}
		sources[i] = s
	}
	return sources
}

// matches reports whether a request with this address and token is the source's.
func (s *source) matches(address netip.Addr, token string) bool {
	sum := sha256.Sum256([]byte(token))
	if s.Token != "" && subtle.ConstantTimeCompare(sum[:], s.token[:]) == 0 {
		return false
	}
	return len(s.networks) == 0 || slices.ContainsFunc(s.networks, func(n netip.Prefix) bool { return n.Contains(address) })
}

// count adds results of readings; problem is why one of them was refused.
func (s *source) count(results map[string]int64, problem string, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for result, n := range results {
		s.results[result] += n
		s.counter.WithLabelValues(s.Name, result).Add(float64(n))
	}
	if problem != "" {
		s.problem = now.UTC().Format(time.RFC3339) + " " + problem
	}
	s.last = now
}

// refused counts a batch that was refused whole.
func (s *source) refused(problem string, now time.Time) {
	s.count(map[string]int64{"batch": 1}, problem, now)
}

func (s *source) health(nodes *nodeTable) SourceHealth {
	s.mu.Lock()
	defer s.mu.Unlock()
	return SourceHealth{Name: s.Name, Nodes: nodes.broughtBy(s.Name), Results: maps.Clone(s.results), Problem: s.problem, Last: s.last}
}

// enter finds the source of a batch and waits until its batch may be read; leave is called
// after the answer. If ok is false it has answered.
func (q *requests) enter(w http.ResponseWriter, r *http.Request) (from *source, leave func(), ok bool) {
	if !q.throttle(w, r, "") {
		return nil, nil, false
	}
	address, _ := netip.ParseAddr(remote(r))
	address = address.Unmap().WithZone("")
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	i := slices.IndexFunc(q.monitor.sources, func(s *source) bool { return s.matches(address, token) })
	if i < 0 {
		text := fmt.Sprintf("Not a source of batches: none has the address %s or this token", address) // which may be of IPv6
		q.reject(w, r, "", http.StatusForbidden, "source", text, errors.New("no source of batches has this address or token"))
		return nil, nil, false
	}
	from = q.monitor.sources[i]
	select {
	case from.slots <- struct{}{}:
		return from, func() { <-from.slots }, true
	case <-time.After(maxThrottleDelay):
		q.unavailable(w, r, from, errors.New("the source sends too many batches at once"))
	case <-r.Context().Done():
	}
	return nil, nil, false
}

// unavailable answers 503: the whole batch must be sent again.
func (q *requests) unavailable(w http.ResponseWriter, r *http.Request, from *source, reason error) {
	w.Header().Set("Retry-After", "5")
	q.reject(w, r, "", http.StatusServiceUnavailable, "unavailable", "Readings cannot be kept now, send them again",
		fmt.Errorf("source %s: %w", from.Name, reason))
}
