package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/tooltest"
	"coldaisle.dev/shared/wire"
)

// request is what a node sent, and what it was answered.
type request struct {
	Path   string
	Status int // -1 for no answer
	After  time.Duration

	ID          string
	NodeID      string  `json:"node_id"`
	Address     string  `json:"ip_addr"`
	Temperature float64 `json:"temperature"`
	Humidity    float64
	Age         float64 `json:"age_s"`
}

const lostAnswer = -2

// site is a real gateway in a time that the test moves.
type site struct {
	t       *testing.T
	gateway *gateway.Gateway
	// fail, if it returns a status, answers in place of the gateway; -1 hangs up, and
	// lostAnswer hangs up after the gateway has taken the request.
	fail func(seen int, r request) (status int, body string)

	mu        sync.Mutex
	passed    time.Duration
	requests  []request
	published []reading.Reading
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t}
	box := must.Get(outbox.Open(t.TempDir(), outbox.Options{Retain: gateway.OutboxRetention, Clock: s.clock}))(t)
	t.Cleanup(func() { _ = box.Close() })
	s.gateway = gateway.New(gateway.Config{}, gateway.PublishFunc(s.publish), box, s.clock, logging.Discard())
	return s
}

var start = time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)

func (s *site) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return start.Add(s.passed)
}

func (s *site) publish(_ context.Context, m gateway.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, err := wire.DecodeData(m.Data, start.AddDate(1, 0, 0))
	if err != nil {
		return err
	}
	s.published = append(s.published, data.Reading)
	return nil
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	got := request{Path: strings.TrimPrefix(r.URL.Path, "/api/v1/")}
	err := json.Unmarshal(body, &got)
	must.Hold(s.t, err == nil, "a node sent %q: %v", body, err)
	s.mu.Lock()
	seen := len(s.requests)
	got.After = s.passed
	s.mu.Unlock()
	answer := ""
	if s.fail != nil {
		got.Status, answer = s.fail(seen, got)
	}
	hangUp := got.Status < 0
	if got.Status == 0 || got.Status == lostAnswer {
		recorder := httptest.NewRecorder()
		s.gateway.ServeHTTP(recorder, r)
		got.Status, answer = recorder.Code, recorder.Body.String()
	}
	s.mu.Lock()
	s.requests = append(s.requests, got)
	s.mu.Unlock()
	if hangUp {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(got.Status)
	_, _ = io.WriteString(w, answer)
}

// failWhen answers in place of the gateway, as fail says, what is so.
func (s *site) failWhen(status int, body string, so func(seen int, r request) bool) {
	s.fail = func(seen int, r request) (int, string) {
		if so(seen, r) {
			return status, body
		}
		return 0, ""
	}
}

// failBetween hangs up on what comes between two times.
func (s *site) failBetween(from, to time.Duration) {
	s.failWhen(-1, "", func(_ int, r request) bool { return r.After > from && r.After < to })
}

func (s *site) on(path string) []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.requests), func(r request) bool { return r.Path != path })
}

func (s *site) stored() []reading.Reading {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.published)
}

// until is a border in whose room it is 24.5 °C, and where the node is switched off after a time.
func (s *site) until(end time.Duration, room func(after time.Duration) string) border {
	return func(question []string) (string, bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch question[0] {
		case "sleep":
			ms, _ := strconv.Atoi(question[1])
			s.passed += time.Duration(ms) * time.Millisecond
			return "", s.passed < end
		case "measure":
			if room != nil {
				return room(s.passed), true
			}
			return "24.5 41", true
		default:
			return "1", true
		}
	}
}

// serve returns the settings with which a node finds the site.
func (s *site) serve() string {
	server := httptest.NewServer(s)
	s.t.Cleanup(server.Close)
	return gatewayAt(server.Listener.Addr().String())
}

// gatewayAt returns the settings with which a node calls an address.
func gatewayAt(address string) string {
	host, port, _ := net.SplitHostPort(address)
	return fmt.Sprintf("\nGATEWAY = %q\nPORT = %s\n", host, port)
}

func TestNodeRegistersMeasuresAndBeats(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.failWhen(-1, "", func(seen int, _ request) bool { return seen < 3 })
	power(t, s.until(5*time.Minute, nil), s.serve())
	registered := s.on("register")
	var at []float64
	for _, r := range registered {
		at = append(at, r.After.Seconds())
		must.Hold(t, r.NodeID == "linux-a4cf1203b1c8" && r.Address == "192.168.1.20",
			"registered as %q at %q", r.NodeID, r.Address)
	}
	must.Hold(t, len(at) == 4 && about(at, []float64{5.5, 6.5, 8.5, 12.5}) && registered[3].Status == http.StatusCreated,
		"registered after %v s, want retries after 1, 2 and 4 s until the answer: %v", at, registered)
	readings, ids := s.stored(), map[string]bool{}
	for i, r := range readings {
		ids[r.MessageID] = true
		must.Hold(t, r.Temperature == 24.5 && r.Humidity == 41, "stored %v", r)
		if i > 0 && !about([]float64{r.Time.Sub(readings[i-1].Time).Seconds()}, []float64{30}) {
			t.Errorf("reading %d came %s after the one before, want 30 s", i, r.Time.Sub(readings[i-1].Time))
		}
	}
	must.Equal(t, "readings, and their ids, in 5 minutes", [2]int{10, 10}, [2]int{len(readings), len(ids)})
	beats := s.on("heartbeat")
	must.Hold(t, len(beats) >= 5 && len(beats) <= 7, "%d heartbeats in 5 minutes, want one each 45 s", len(beats))
}

// about compares seconds; a node sleeps in steps of one.
func about(got, want []float64) bool {
	return slices.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) < 1.2 })
}

func TestNodeGivesUpRegistrationAfterFiveRetries(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.failWhen(503, `{"error":"busy"}`, func(_ int, r request) bool { return r.Path == "register" })
	power(t, s.until(3*time.Minute, nil), s.serve())
	must.Equal(t, "registrations", 6, len(s.on("register")))
	got := len(s.stored())
	must.Hold(t, got >= 4, "%d readings without a registration, want one each 30 s", got)
}

// TestNodeOutlivesTenMinutesWithoutGateway shows contract 8.6 from the node's side.
func TestNodeOutlivesTenMinutesWithoutGateway(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.failBetween(2*time.Minute, 12*time.Minute)
	power(t, s.until(16*time.Minute, nil), s.serve())
	readings := s.stored()
	slices.SortFunc(readings, func(a, b reading.Reading) int { return a.Time.Compare(b.Time) })
	must.Equal(t, "readings of 16 minutes were stored", 32, len(readings))
	for i := 1; i < len(readings); i++ {
		if gap := readings[i].Time.Sub(readings[i-1].Time).Seconds(); !about([]float64{gap}, []float64{30}) {
			t.Errorf("%g s between readings %d and %d, want 30: what was kept is misdated", gap, i-1, i)
		}
	}
	// The first that got through was a new one.
	for _, r := range s.on("message") {
		if r.Status == http.StatusOK && r.After > 12*time.Minute {
			must.Equal(t, "age of the reading that went first after the outage", 0.0, r.Age)
			break
		}
	}
}

func TestNodeKeepsAnHourAndNoMore(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.failBetween(time.Minute, 90*time.Minute)
	power(t, s.until(100*time.Minute, nil), s.serve())
	oldest := 0.0
	for _, r := range s.on("message") {
		if r.After < 90*time.Minute {
			continue
		}
		oldest = max(oldest, r.Age)
		must.Equal(t, fmt.Sprintf("%+v", r), http.StatusOK, r.Status)
	}
	must.Hold(t, oldest >= 3500 && oldest <= 3600, "the oldest reading came with an age of %g s, want nearly 3600", oldest)
}

func TestNodeRetriesUnderTheSameID(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		body   string
		sent   int // how often the reading is sent
	}{
		"not published":           {500, `{"error":"Failed to publish to Pub/Sub"}`, 2},
		"kept by the gateway":     {500, `{"error":"Failed to publish to Pub/Sub","kept":true}`, 1},
		"too many":                {429, `{"error":"Too many requests"}`, 2},
		"too slow":                {408, `{"error":"Request too slow"}`, 2},
		"too large":               {413, `{"error":"Request body over 65536 bytes"}`, 1},
		"rejected by another":     {400, `{"error":"Bad Request"}`, 2},
		"busy by another":         {503, `<html>`, 2},
		"another's message":       {200, `{"status":"published","message_id":"0"}`, 2},
		"rejected":                {400, `{"error":"Invalid message format","reason":"id is required"}`, 1},
		"the connection was lost": {-1, ``, 2},
		"the answer was lost":     {lostAnswer, ``, 2},
		"another server's page":   {404, `<html>`, 2},
		"a hotspot's login":       {200, `<html>`, 2},
		"a hotspot that redirect": {302, ``, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			failed := ""
			s.fail = func(_ int, r request) (int, string) {
				if r.Path != "message" || failed != "" {
					return 0, ""
				}
				failed = r.ID
				return c.status, c.body
			}
			console := power(t, s.until(2*time.Minute, nil), s.serve())
			sent := slices.DeleteFunc(s.on("message"), func(r request) bool { return r.ID != failed })
			must.Equal(t, fmt.Sprintf("sent: %v", sent), c.sent, len(sent))
			for _, r := range sent {
				if r.Temperature != 24.5 || (r.After > 10*time.Second && (r.Age < 29 || r.Age > 32)) {
					t.Errorf("sent again as %+v", r)
				}
			}
			if c.status == lostAnswer { // the gateway takes the second for the same reading
				copies := s.stored()
				slices.SortStableFunc(copies, func(a, b reading.Reading) int { return strings.Compare(a.MessageID, b.MessageID) })
				once := slices.CompactFunc(slices.Clone(copies), func(a, b reading.Reading) bool { return a.Identity() == b.Identity() })
				must.Equal(t, "readings sent once", len(copies)-1, len(once))
			}
			must.Hold(t, c.sent != 1 || c.status != 400 || strings.Contains(console, "id is required"),
				"the console does not say why it was rejected:\n%s", console)
		})
	}
}

func TestNodeSendsNothingUntrue(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ sensor, bad, console string }{
		"a sensor that is not there": {"dht22", "error", "110"},
		"no number":                  {"dht22", "nan 40", "nan degrees"},
		"too hot":                    {"dht22", "3276.7 40", "degrees"},
		"too humid":                  {"dht22", "20 100.1", "percent"},
		"humidity that is no number": {"dht22", "20 nan", "percent"},
		"zeros":                      {"dht22", "0 0", "zeros"},
		"a wrong checksum":           {"dht22", "checksum", "checksum error"},
		"a DS18B20 without power":    {"ds18b20+dht22", "85 40", "power"},
		"a DS18B20 out of its range": {"ds18b20+dht22", "-127 40", "degrees"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			console := power(t, s.until(4*time.Minute, func(after time.Duration) string {
				if after > time.Minute && after < 2*time.Minute {
					return c.bad
				}
				return "24.5 41"
			}), s.serve()+"SENSOR = \""+c.sensor+"\"\n")
			for _, r := range s.on("message") {
				must.Hold(t, r.Temperature == 24.5 && r.Humidity == 41 && r.Status == http.StatusOK, "sent %+v", r)
			}
			got := len(s.on("message"))
			must.Hold(t, got >= 5 && got <= 7, "%d readings in 4 minutes of which the sensor worked 3, want 6", got)
			must.Contain(t, "the console", console, c.console)
		})
	}
}

func TestNodeMeasuresFasterWhileItGetsHotter(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	// A degree a minute from the fifth minute to the tenth.
	power(t, s.until(20*time.Minute, func(after time.Duration) string {
		return fmt.Sprintf("%.1f 41", 22+max(0, min(5, after.Minutes()-5)))
	}), s.serve())
	in := func(from, to time.Duration) (n int) {
		for _, r := range s.on("message") {
			if r.After >= from && r.After < to {
				n++
			}
		}
		return n
	}
	for _, c := range []struct {
		from, to    time.Duration
		least, most int
	}{{0, 5 * time.Minute, 9, 11}, {7 * time.Minute, 10 * time.Minute, 33, 37}, {13 * time.Minute, 20 * time.Minute, 13, 15}} {
		if got := in(c.from, c.to); got < c.least || got > c.most {
			t.Errorf("%d readings from %s to %s, want %d to %d", got, c.from, c.to, c.least, c.most)
		}
	}
}

func TestNodeJoinsTheNetworkAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	hardware := s.until(10*time.Minute, nil)
	power(t, func(question []string) (string, bool) {
		s.mu.Lock()
		away := s.passed > 2*time.Minute && s.passed < 5*time.Minute
		s.mu.Unlock()
		if question[0] == "wifi" && away {
			return "0", true
		}
		return hardware(question)
	}, s.serve())
	got := len(s.stored())
	must.Hold(t, got >= 19 && got <= 20, "%d readings of 10 minutes, want 20: three minutes without WiFi lose none", got)
}

// names answers what a node asks by mDNS. edge-gateway/netnstest shows that the
// gateway's own announcement answers such a question.
type names struct {
	mu      sync.Mutex
	address net.IP // nil: nobody answers
	lost    int    // questions to lose
}

func (n *names) ServeDNS(w dns.ResponseWriter, question *dns.Msg) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lost > 0 || n.address == nil {
		n.lost--
		return
	}
	answer := new(dns.Msg).SetReply(question)
	answer.Answer = []dns.RR{
		&dns.TXT{Hdr: dns.RR_Header{Name: "monitor-gateway._http._tcp.local.", Rrtype: dns.TypeTXT, Class: dns.ClassINET}, Txt: []string{"version=1.0"}},
		&dns.A{Hdr: dns.RR_Header{Name: "Monitor-Gateway.local.", Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 10}, A: n.address},
	}
	answer.Compress = true
	_ = w.WriteMsg(answer)
}

func (n *names) lose(questions int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lost = questions
}

// serve returns a node's setting with which it asks here.
func (n *names) serve(t *testing.T) string {
	t.Helper()
	packets := must.Get((&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0"))(t)
	resolver := &dns.Server{PacketConn: packets, Handler: n}
	go func() { _ = resolver.ActivateAndServe() }()
	t.Cleanup(func() { _ = resolver.Shutdown() })
	_, port, _ := net.SplitHostPort(packets.LocalAddr().String())
	return "MDNS=" + port
}

// TestNodeFollowsTheNameToTheStandby stops a gateway, or puts another machine in its place,
// while the standby at another address has the name. See docs/nodes.md.
func TestNodeFollowsTheNameToTheStandby(t *testing.T) {
	t.Parallel()
	const page = "<html>"
	for name, c := range map[string]struct {
		status int // 0: nobody is there
		answer string
	}{
		"stopped":                       {},
		"a hotspot's login":             {200, page},
		"a hotspot that redirects":      {302, page},
		"another server":                {404, page},
		"a proxy that lost it":          {503, page},
		"a service that answers alike":  {200, `{"status":"ok"}`},
		"a gateway that is busy":        {503, `{"error":"Busy"}`},
		"a gateway that is always busy": {429, `{"error":"Too many requests"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, other := newSite(t), newSite(t)
			s.failWhen(c.status, c.answer, func(_ int, r request) bool { return r.After > 5*time.Minute })
			active := httptest.NewServer(s)
			t.Cleanup(active.Close)
			_, port, _ := net.SplitHostPort(active.Listener.Addr().String())
			listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.2:"+port)
			if err != nil {
				tooltest.Unable(t, "no second address on this machine's loopback: %v", err)
			}
			standby := httptest.NewUnstartedServer(other)
			_ = standby.Listener.Close()
			standby.Listener = listener
			standby.Start()
			t.Cleanup(standby.Close)

			network := &names{address: net.IPv4(127, 0, 0, 1)}
			hardware := s.until(10*time.Minute, nil)
			power(t, func(question []string) (string, bool) {
				answer, on := hardware(question)
				passed := s.clock().Sub(start)
				if passed > 5*time.Minute {
					network.mu.Lock()
					network.address = net.IPv4(127, 0, 0, 2)
					network.mu.Unlock()
					if c.status == 0 {
						active.Close()
					}
				}
				other.mu.Lock()
				other.passed = passed
				other.mu.Unlock()
				return answer, on
			}, "\nGATEWAY = \"Monitor-Gateway.LOCAL\"\nPORT = "+port+"\n", network.serve(t))
			first, second := s.stored(), other.stored()
			must.Equal(t, "readings at the first gateway and at the standby", [2]int{10, 10}, [2]int{len(first), len(second)})
		})
	}
}
