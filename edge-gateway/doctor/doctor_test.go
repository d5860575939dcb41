package doctor

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"math"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/iam/apiv1/iampb"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"coldaisle.dev/edge-gateway/announce"
	"coldaisle.dev/edge-gateway/gateway"
	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/reading"
)

// said is what a report says of a subject, a line each.
func said(r *Report, subject string) string {
	var lines []string
	for _, f := range r.Findings {
		if f.Subject == subject {
			lines = append(lines, f.Severity.String()+" "+f.Text)
		}
	}
	return strings.Join(lines, "\n")
}

// expect holds that a report says all of this of a subject, and the worst of it is the verdict.
func expect(t *testing.T, r *Report, subject string, worst Severity, texts ...string) {
	t.Helper()
	found := said(r, subject)
	must.Contain(t, subject, found, texts...)
	got := OK
	for _, f := range r.Findings {
		if f.Subject == subject {
			got = max(got, f.Severity)
		}
	}
	must.Hold(t, got == worst, "%s is %s, want %s:\n%s", subject, got, worst, found)
}

func TestClock(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	dateless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header()["Date"] = nil }))
	t.Cleanup(dateless.Close)
	for name, c := range map[string]struct {
		google  string
		ahead   time.Duration
		verdict Severity
		text    string
	}{
		"right":                          {server.URL, 0, OK, "right, as far as Google's answer tells"},
		"a little slow":                  {server.URL, -10 * time.Second, Warning, "slow by 10s"},
		"minutes fast":                   {server.URL, 7 * time.Minute, Problem, "fast by 7m0s"},
		"years slow":                     {server.URL, -9000 * time.Hour, Problem, "slow by 9000h0m"},
		"just tolerable":                 {server.URL, 1500 * time.Millisecond, OK, "right"},
		"without network":                {"http://127.0.0.1:1", 0, Warning, "not compared, Google does not answer"},
		"outside the certificate's time": {expired(t, net.IPv4(127, 0, 0, 1)), 0, Problem, "at which Google's certificate is not valid"},
		"a login page's old certificate": {expired(t, net.IPv4(192, 168, 1, 1)), 0, Warning, "not compared, Google does not answer"},
		"an answer without a date":       {dateless.URL, 0, Warning, "the answer has no time"},
	} {
		config := Config{Google: c.google, Clock: func() time.Time { return time.Now().Add(c.ahead) }}
		r := &Report{}
		config.clock(t.Context(), r)
		expect(t, r, "clock", c.verdict, c.text)
		must.Equal(t, name+": the gateway's own check fails", c.verdict == Problem, config.CheckClock(t.Context()) != nil)
	}
}

// expired serves by a certificate of another time, of a host, and returns the address.
func expired(t *testing.T, host net.IP) string {
	t.Helper()
	private := must.Get(rsa.GenerateKey(rand.Reader, 2048))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(-24 * time.Hour),
		IPAddresses: []net.IP{host},
	}
	certificate := must.Get(x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private))(t)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: private}}, MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = slog.NewLogLogger(logging.Discard().Handler(), slog.LevelDebug)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}

// issuer gives tokens for keys of service accounts, as Google does.
func issuer(t *testing.T, status int) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		if status == http.StatusOK {
			_, _ = fmt.Fprint(w, `{"access_token":"token","token_type":"Bearer","expires_in":3600}`)
			return
		}
		_, _ = fmt.Fprint(w, `{"error":"invalid_grant","error_description":"Invalid grant: account not found"}`)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// key writes the key of a service account and returns its path.
func key(t *testing.T, tokens string, mode os.FileMode) string {
	t.Helper()
	content := pubsubtest.AccountKey(t, "site", "monitor-gateway@site.iam.gserviceaccount.com", tokens)
	path := filepath.Join(t.TempDir(), "google.json")
	must.Do(t, os.WriteFile(path, content, 0o600))
	must.Do(t, os.Chmod(path, mode))
	return path
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	const account = "service_account monitor-gateway@site.iam.gserviceaccount.com"
	garbled := filepath.Join(t.TempDir(), "garbled.json")
	must.Do(t, os.WriteFile(garbled, []byte("{"), 0o600))
	another := filepath.Join(t.TempDir(), "another.json")
	must.Do(t, os.WriteFile(another, []byte(`{"installed":{}}`), 0o600))
	for name, c := range map[string]struct {
		config  Config
		verdict Severity
		text    string
		usable  bool
	}{
		"a good key":        {Config{CredentialsFile: key(t, issuer(t, 200), 0o600)}, OK, account + "; Google gives a token for it", true},
		"a deleted account": {Config{CredentialsFile: key(t, issuer(t, 400), 0o600)}, Problem, "account not found", false},
		"no file":           {Config{CredentialsFile: "/nowhere/google.json"}, Problem, "holds no credentials of Google's: open", false},
		"no credentials":    {Config{CredentialsFile: garbled}, Problem, "holds no credentials", false},
		"another file":      {Config{CredentialsFile: another}, Problem, "another.json holds no credentials of Google's: no type", false},
	} {
		r := &Report{}
		found := c.config.credentials(t.Context(), r)
		expect(t, r, "credentials", c.verdict, c.text)
		must.Equal(t, name+": credentials are usable", c.usable, found != nil)
	}
	r := &Report{}
	Config{CredentialsFile: key(t, issuer(t, 200), 0o644)}.credentials(t.Context(), r) // for everyone
	expect(t, r, "credentials", Problem, "open to every user", "gives a token")
}

// rights answers what an account may do with the topic.
type rights struct {
	iampb.UnimplementedIAMPolicyServer

	granted []string
}

func (s rights) TestIamPermissions(_ context.Context, in *iampb.TestIamPermissionsRequest) (*iampb.TestIamPermissionsResponse, error) {
	out := &iampb.TestIamPermissionsResponse{}
	for _, asked := range in.GetPermissions() {
		if slices.Contains(s.granted, asked) {
			out.Permissions = append(out.Permissions, asked)
		}
	}
	return out, nil
}

func TestTopic(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers iampb.IAMPolicyServer
		verdict Severity
		text    string
	}{
		"may be published to": {rights{granted: []string{"pubsub.topics.publish"}}, OK, "projects/site/topics/data may be published to"},
		"is not there":        {rights{}, Problem, "projects/site/topics/data does not exist, or the account may not publish to it"},
		"is out of order":     {iampb.UnimplementedIAMPolicyServer{}, Problem, "Pub/Sub does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := Config{
				ProjectID: "site", Topic: "data", CredentialsFile: key(t, issuer(t, 200), 0o600),
				PubSub: pubsubtest.ServeTLS(t, func(server *grpc.Server) { iampb.RegisterIAMPolicyServer(server, c.answers) }),
			}
			r := &Report{}
			config.topic(t.Context(), r, config.credentials(t.Context(), r))
			expect(t, r, "topic", c.verdict, c.text)
		})
	}
}

func TestOutbox(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "outbox")
	config := Config{OutboxDir: dir, OutboxMaxBytes: 1 << 20, Clock: time.Now}
	look := func() *Report {
		r := &Report{}
		config.outbox(r, health{})
		return r
	}
	expect(t, look(), "outbox", Warning, "is not there yet", "of the disk are free")

	box := must.Get(outbox.Open(dir, outbox.Options{MaxBytes: 1 << 20, Clock: time.Now}))(t)
	t.Cleanup(func() { _ = box.Close() })
	kept := 0
	keep := func(n int) {
		t.Helper()
		for range n {
			kept++
			r := reading.Reading{NodeID: fmt.Sprintf("n%d", kept%100), MessageID: "1", Time: time.Now(), Temperature: 20, Humidity: 40}
			must.Do(t, box.AppendAll([]outbox.Record{{Reading: r, Enrolment: strings.Repeat("m", 1000)}})[0])
		}
	}
	keep(3)
	expect(t, look(), "outbox", OK, "a durable write takes up to", "3 readings waiting, 4 KiB of at most 1 MiB taken", "of the disk are free")
	// On a card that has become read-only the folder still has what was sent.
	r := &Report{}
	config.outbox(r, health{Health: gateway.Health{Status: "degraded", Outbox: gateway.OutboxHealth{Readings: 1}}})
	expect(t, r, "outbox", OK, "1 reading waiting")
	must.Get(os.Stat(filepath.Join(dir, "lock")))(t) // of the open outbox
	keep(920)
	expect(t, look(), "outbox", Warning, "nearly full: 923 readings waiting")
	must.Do(t, box.Close())
	segment := must.Get(filepath.Glob(filepath.Join(dir, "*.seg")))(t)[0]
	content := must.Get(os.ReadFile(segment))(t)
	clear(content[1500:1600])
	must.Do(t, os.WriteFile(segment, content[:len(content)-7], 0o600))
	expect(t, look(), "outbox", Warning, "1 place cannot be read")

	config.OutboxMaxBytes = 1 << 60
	expect(t, look(), "outbox", Warning, "kept and withheld readings may need")
	seconds := int64(0)
	config.Clock = func() time.Time { seconds++; return time.Unix(seconds, 0) } // each write takes one
	said := fmt.Sprint(config.CheckDisk(t.Context()))
	must.Contain(t, "the gateway's own check", said, "takes up to 1s; ", "may need")
	must.Equal(t, "lines of it", 1, strings.Count(said, "\n")+1)
}

// TestSpaceForWithheldReadings has a disk with room for one outbox: that of the withheld readings may grow as large.
func TestSpaceForWithheldReadings(t *testing.T) {
	t.Parallel()
	var disk unix.Statfs_t
	c := Config{OutboxDir: t.TempDir(), Clock: time.Now}
	must.Do(t, unix.Statfs(c.OutboxDir, &disk))
	c.OutboxMaxBytes = int64(disk.Bavail) * int64(disk.Bsize) / 4 * 3 //nolint:gosec // no disk has 2^63 bytes
	must.Contain(t, "with room for one", fmt.Sprint(c.CheckDisk(t.Context())), "kept and withheld readings may need")
	withheld := filepath.Join(c.OutboxDir, outbox.Withheld)
	must.Do(t, os.Mkdir(withheld, 0o700))
	full := filepath.Join(withheld, "0000000000000001.seg") // without a block on the disk
	must.Do(t, os.WriteFile(full, nil, 0o600))
	must.Do(t, os.Truncate(full, c.OutboxMaxBytes))
	c.Clock = func() time.Time { return time.Time{} } // no write is slow
	must.Do(t, c.CheckDisk(t.Context()))
	kept, free := filepath.Join(c.OutboxDir, filepath.Base(full)), c.OutboxMaxBytes/3*4
	must.Do(t, os.Rename(full, kept))
	must.Do(t, os.Truncate(kept, 3*free))
	for _, bound := range []int64{free / 4 * 5, math.MaxInt64} { // one that was lowered below what is kept, and none
		c.OutboxMaxBytes = bound
		must.Contain(t, fmt.Sprint("with a bound of ", bound), fmt.Sprint(c.CheckDisk(t.Context())), "kept and withheld readings may need")
	}
}

func TestOutboxThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Do(t, os.Chmod(dir, 0o500))
	if os.Geteuid() == 0 { // whom rights do not hold back, but the kernel does here
		dir = "/sys"
	}
	r := &Report{}
	Config{OutboxDir: dir, OutboxMaxBytes: 1 << 20, Clock: time.Now}.outbox(r, health{})
	expect(t, r, "outbox", Problem, "cannot be written")
}

// noOutbox is an outbox that cannot be opened.
func noOutbox(reason error) *outbox.Late {
	box := outbox.NewLate(func() (*outbox.Outbox, error) { return nil, reason }, time.Now)
	_ = box.Open()
	return box
}

// publisher takes everything or nothing.
func publisher(err error) gateway.Publisher {
	return gateway.PublishFunc(func(context.Context, gateway.Message) error { return err })
}

func TestGateway(t *testing.T) {
	t.Parallel()
	look := func(handler http.Handler) *Report {
		t.Helper()
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		r := &Report{}
		port := server.Listener.Addr().(*net.TCPAddr).Port //nolint:errcheck // a TCP listener has no other
		c := Config{Port: port, Version: "v2"}
		h, err := Health(t.Context(), server.URL)
		c.gateway(r, h, err)
		return r
	}
	site := func(version string, err error) http.Handler {
		return gateway.New(gateway.Config{Version: version}, publisher(err), noOutbox(os.ErrPermission), time.Now, logging.Discard())
	}
	message := `{"id":"1","node_id":"n","temperature":20,"humidity":40}`
	post := func(handler http.Handler, door, body string) {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/"+door, strings.NewReader(body))
		handler.ServeHTTP(httptest.NewRecorder(), request)
	}
	expect(t, look(site("v2", nil)), "gateway", Problem, "answers on port", "version v2, 0 nodes", "has trouble with its outbox: permission denied")
	publishes := site("v2", nil)
	post(publishes, "message", message)
	expect(t, look(publishes), "gateway", Problem, "version v2, 1 node", "publishes, since")
	expect(t, look(site("v1", nil)), "gateway", Problem, "runs version v1, installed is v2")
	away := site("v2", os.ErrDeadlineExceeded)
	post(away, "message", message)
	lost := look(away)
	expect(t, lost, "gateway", Problem, "1 node", "has not been able to publish since", "i/o timeout", "could neither publish nor keep 1 reading")
	must.Hold(t, !strings.Contains(fmt.Sprint(lost), "OUTBOX_MAX_BYTES"), "a folder that cannot be written needs no higher bound: %+v", lost)
	expect(t, look(http.NotFoundHandler()), "gateway", Problem, "what answers 404 Not Found there is no gateway")

	withSource := gateway.Config{Version: "v2", Batches: gateway.SourcesFile{Sources: []gateway.Source{{Name: "telegraf", Networks: []string{"192.0.2.0/24"}}}}}
	fans := gateway.New(withSource, publisher(nil), noOutbox(os.ErrPermission), time.Now, logging.Discard())
	post(fans, "telegraf", `{"metrics":[{"name":"fan","fields":{"rpm":9000},"timestamp":1795143600}]}`)
	expect(t, look(fans), "sources", Warning, "telegraf sends nothing that measures a room")
	sources := gateway.New(withSource, publisher(nil), noOutbox(os.ErrPermission), time.Now, logging.Discard())
	post(sources, "readings", message+"\n"+`{"node_id":"n","id":"2","humidity":101}`)
	expect(t, look(sources), "sources", Warning, "telegraf brought 1 node; its readings since the start: 1 accepted, 1 value",
		"Z n: humidity must be between 0 and 100 percent: got 101")

	r := &Report{}
	h, err := Health(t.Context(), "http://127.0.0.1:1")
	Config{Port: 1}.gateway(r, h, err)
	expect(t, r, "gateway", Problem, "does not answer on port 1")
}

// TestNetworkAndAPIProblemsAreReported has a gateway report states that only its network, or its API, causes.
func TestNetworkAndAPIProblemsAreReported(t *testing.T) {
	t.Parallel()
	const own = "monitor-gateway-010203.local"
	pair := announce.State{Host: own, Links: []announce.LinkState{{
		Interface: "eth0", Host: own, Role: announce.RoleStandby, Peers: []string{"192.168.1.30"},
	}}}
	for name, c := range map[string]struct {
		reason  string
		state   announce.State
		subject string
		verdict Severity
		text    string
	}{
		"a standby": {"", pair, "gateway", OK, "is standby on eth0, as " + own + ", in a pair with 192.168.1.30"},
		"a conflict": {
			"name: another device, 192.168.1.66, has monitor-gateway.local",
			announce.State{Host: own},
			"gateway", Problem,
			"is announced as " + own + ": another device, 192.168.1.66, has monitor-gateway.local",
		},
		"no address": {
			"name: no interface with multicast has an IPv4 address",
			announce.State{Host: own},
			"gateway", Problem,
			"no interface with multicast",
		},
		"no announcements":       {"", announce.State{Error: "no socket"}, "gateway", Problem, "cannot announce itself: no socket"},
		"a link without a group": {"", announce.State{Links: []announce.LinkState{{Interface: "eth0", Error: "no group"}}}, "gateway", Problem, "on eth0: no group"},
		"a revocation":           {"enrolment: it was revoked", announce.State{}, "enrolment", Problem, "it was revoked"},
		"refused readings":       {"publishing: too long", announce.State{}, "gateway", Problem, "publishes nothing, Pub/Sub refuses every reading: too long"},
		"a damaged outbox":       {"outbox: places of the disk cannot be read", announce.State{}, "gateway", Warning, "has trouble with its outbox: places of the disk cannot be read"},
		"a slow disk":            {"disk: slow", announce.State{}, "gateway", Warning, "says of itself that it is degraded: disk: slow"},
	} {
		h := health{Health: gateway.Health{Status: "degraded", Version: "v2", Publishing: gateway.Publishing{Up: true}}, Announced: c.state}
		if c.reason != "" {
			h.Reasons = []string{c.reason}
		}
		refusal, refused := strings.CutPrefix(c.reason, "publishing: ")
		if refused {
			h.Publishing.Error = refusal
		}
		r := &Report{}
		Config{Version: "v2"}.gateway(r, h, nil)
		expect(t, r, c.subject, c.verdict, c.text)
		if name == "no address" {
			must.Contain(t, name, fmt.Sprint(*r), "see what is said of the network")
		}
		if got := said(r, "gateway"); strings.Contains(got, "since") == refused {
			t.Errorf("%s: readings are refused: %t; it says:\n%s", name, refused, got)
		}
	}
	for address, want := range map[string]bool{"192.168.1.30": true, "192.168.1.66": false} {
		must.Equal(t, address+" is of the pair", want, isPeer(pair, []netip.Addr{netip.MustParseAddr(address)}))
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	r := &Report{}
	r.ok("clock", "right")
	r.problem("topic", "make it:\ngcloud …", "does not exist")
	r.warn("outbox", "", "slow")
	r.ok("outbox", "empty")
	r.Advice = "Configure nodes with http://192.168.1.20:8080."
	var out strings.Builder
	must.Do(t, r.Write(&out))
	want := `clock
  ok       right
topic
  PROBLEM  does not exist
         → make it:
           gcloud …
outbox
  warning  slow
  ok       empty

Configure nodes with http://192.168.1.20:8080.

1 problem and 1 warning.
`
	must.Equal(t, "report", want, out.String())
	must.Hold(t, !r.Healthy(), "a report with a problem says all is well")
	for want, made := range map[string]*Report{
		"Everything is in order.": {}, "No problem, 2 warnings.": {Findings: []Finding{{Severity: Warning}, {Severity: Warning}}},
		"2 problems.": {Findings: []Finding{{Severity: Problem}, {Severity: Problem}}},
	} {
		must.Equal(t, "summary", want, made.summary())
	}
}
