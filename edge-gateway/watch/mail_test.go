package watch

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"coldaisle.dev/shared/logging/logtest"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/tooltest"
)

// TestMail sends by a real mail server, Debian's python3-aiosmtpd, which is away at first and has
// no user dan: the error has no password, and the others have the message once the server is there.
func TestMail(t *testing.T) {
	t.Parallel()
	const python = "/usr/bin/python3"
	if exec.CommandContext(t.Context(), python, "-c", "import aiosmtpd").Run() != nil {
		tooltest.Missing(t, "python3-aiosmtpd")
	}
	address := fmt.Sprintf("127.0.0.1:%d", tooltest.FreePort(t))
	url := "smtp://ops:hunter22hunter@" + address + "/?from=watch@example.com&to=dan@example.com,ana@example.com,ben@example.com,&auth=None&encryption=None&usestarttls=No"
	path := configure(t, "https://coldaisle.example.com", "\n  - {name: mail, url: '"+url+"', zone: UTC}\n")
	steps := must.Get(Load(path, nil))(t).Steps
	must.Equal(t, "recipients, none of them after the last comma", 3, len(steps))
	must.Equal(t, "the steps' names", "mail; mail, recipient 2; mail, recipient 3", steps[0].Name+"; "+steps[1].Name+"; "+steps[2].Name)
	m := steps[0].message("start", new(hot(41)))
	m.Title += "\r\nBcc: mallory@example.com" // a room may be called so
	if _, err := steps[1].act(t.Context(), "Zurich", m); err == nil || strings.Contains(err.Error(), "hunter22") {
		t.Fatalf("without a server: %v", err)
	}
	must.Do(t, os.WriteFile(filepath.Join(filepath.Dir(path), "handler.py"), []byte(`
from aiosmtpd.handlers import Debugging
class Handler(Debugging):
    async def handle_RCPT(self, server, session, envelope, address, options):
        if address == "dan@example.com":
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"
`), 0o600))
	var received logtest.Buffer
	server := exec.CommandContext(t.Context(), python, "-u", "-m", "aiosmtpd", "-n", "-c", "handler.Handler", "stdout", "-l", address)
	server.Dir, server.Stdout, server.Stderr = filepath.Dir(path), &received, &received
	must.Do(t, server.Start())
	t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
	must.Eventually(t, "the server takes mail", func() bool {
		_, err := steps[1].act(t.Context(), "Zurich", m)
		return err == nil
	})
	_, err := steps[0].act(t.Context(), "Zurich", m)
	must.Contain(t, "the error of a mail to nobody", fmt.Sprint(err), "no such user")
	m.Title = "CRITICAL: Kühlraum: too hot"
	must.Get(steps[2].act(t.Context(), "Zurich", m))(t)
	must.Eventually(t, "two mails", func() bool { return strings.Count(received.String(), "END MESSAGE") >= 2 })
	text := received.String()
	must.Contain(t, "what the server received", text,
		"Subject: CRITICAL: Hall A: too hot", "To: <ana@example.com>", "Incident 41: https://coldaisle.example.com/incidents/41", "Zurich",
		"To: <ben@example.com>", "Subject: =?UTF-8?q?", // a header is ASCII
	)
	if strings.Contains(text, "\nBcc:") {
		t.Errorf("a header from a room's name: %s", text)
	}
}

// TestMailServerHangs sends by a mail server that accepts connections and says nothing. When it goes
// on, nothing of a try that has failed arrives: each would be a message more.
func TestMailServerHangs(t *testing.T) {
	t.Parallel()
	listener := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	defer func() { _ = listener.Close() }()
	step := Step{Timeout: 100 * time.Millisecond, URL: "smtp://" + listener.Addr().String() + "/?from=watch@example.com&to=ana@example.com"}
	if _, err := step.act(t.Context(), "Zurich", message("start", new(hot(41)))); err == nil {
		t.Fatal("a server that says nothing has the message")
	}
	server := must.Get(listener.Accept())(t)
	defer func() { _ = server.Close() }()
	_, _ = server.Write([]byte("220 mail.example.com\r\n"))
	if said, _ := bufio.NewReader(server).ReadString('\n'); said != "" {
		t.Errorf("the try that has failed goes on: %q", said)
	}
}

// TestTelegram sends by an API like Telegram's, which is away, fails, and answers. The library alone
// calls all three a success.
func TestTelegram(t *testing.T) {
	t.Parallel()
	var received logtest.Buffer
	status := http.StatusBadGateway
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		_ = r.Write(&received)
	}))
	url := "telegram://110201543:hunter22hunter22hunter22hunter22hun@telegram?chats=@ops,@dev,&channels=-1001:7,"
	must.Do(t, checkURL(url))
	must.Equal(t, "chats and channels, none of them after a last comma", 3, len(destinations(url, telegramAPI)))
	send := func() error {
		var errs []error
		for _, to := range destinations(url, api.URL) {
			_, err := (&Step{URL: to, Timeout: 10 * time.Second}).act(t.Context(), "Zurich", message("start", new(hot(41))))
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}
	if err := send(); err == nil {
		t.Error("a failure is a success")
	}
	status = http.StatusOK
	received.Take()
	must.Do(t, send())
	must.Contain(t, "what the server received", received.String(),
		"POST /bot110201543:hunter22hunter22hunter22hunter22hun/sendMessage", `"chat_id":"@ops"`, `"chat_id":"@dev"`, `"chat_id":"-1001"`, `"message_thread_id":"7"`, `"text":"CRITICAL: Hall A: too hot\n`,
	)
	api.Close()
	if err := send(); err == nil || strings.Contains(err.Error(), "hunter22") {
		t.Errorf("without a server: %v", err)
	}
}

// TestWebhook has receivers that redirect, and one whose answer has no end. Who answers a GET has no message.
func TestWebhook(t *testing.T) {
	t.Parallel()
	const most = 64 << 20
	messages, written := make(chan string, 10), make(chan int, 1)
	receiver := http.NewServeMux()
	receiver.HandleFunc("/", func(_ http.ResponseWriter, r *http.Request) { messages <- r.Method })
	for _, status := range []int{301, 302, 303, 307, 308} {
		receiver.Handle(fmt.Sprint("/", status), http.RedirectHandler("/", status))
	}
	receiver.Handle("/loop", http.RedirectHandler("/loop", http.StatusPermanentRedirect))
	receiver.HandleFunc("/endless", func(w http.ResponseWriter, _ *http.Request) {
		sent := 0
		for part := make([]byte, 1<<20); sent < most; {
			n, err := w.Write(part)
			if sent += n; err != nil {
				break
			}
		}
		written <- sent
	})
	hook := httptest.NewServer(receiver)
	defer hook.Close()
	act := func(path string) error {
		s := Step{URL: "generic+" + hook.URL + path + "?template=json", Timeout: time.Minute}
		_, err := s.act(t.Context(), "site", message("start", new(hot(41))))
		return err
	}
	for _, path := range []string{"/301", "/302", "/303", "/loop"} {
		must.Contain(t, "the error of "+path, fmt.Sprint(act(path)), "it redirects")
		must.Equal(t, "received by "+path, 0, len(messages))
	}
	for _, path := range []string{"/", "/307", "/308"} {
		must.Do(t, act(path))
		must.Equal(t, path, "POST", <-messages)
	}
	must.Do(t, act("/endless"))
	if sent := <-written; sent >= most {
		t.Errorf("%d bytes of an answer were read", sent)
	}
}

// TestFirstMessage goes from nothing to the first message: init asks, test sends. Files with
// secrets are nobody else's, and a configuration that is there stays.
func TestFirstMessage(t *testing.T) {
	t.Parallel()
	s := &service{}
	api := httptest.NewServer(s)
	defer api.Close()
	var titles logtest.Buffer
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _ = r.Write(&titles) }))
	defer hook.Close()
	path := filepath.Join(t.TempDir(), "watch.yaml")
	answers := Answers{API: api.URL, Name: `The "site"`, Key: "cold_secret", URL: "generic+" + hook.URL + "/hook?template=json"}
	_, err := Load(path, nil)
	must.Contain(t, "the error before init", fmt.Sprint(err), "monitor-gateway watch init")
	must.Do(t, os.WriteFile(filepath.Join(filepath.Dir(path), "watch.key"), []byte("an earlier key, for everybody"), 0o644))
	must.Do(t, Init(t.Context(), path, answers, &http.Client{}))
	must.Equal(t, "heartbeats", []heartbeat{{Name: answers.Name}}, s.beats)
	for _, name := range []string{"watch.yaml", "watch.key", "watch.url"} {
		if info := must.Get(os.Stat(filepath.Join(filepath.Dir(path), name)))(t); info.Mode().Perm() != 0o640 {
			t.Errorf("others than root and its group may use %s, or these may not: %v", name, info.Mode())
		}
	}
	c := must.Get(Load(path, nil))(t)
	must.Equal(t, "state", filepath.Dir(path), c.State)
	must.Do(t, Test(t.Context(), c))
	must.Contain(t, "what the server received", titles.String(), `Test of The \"site\"`)
	must.Contain(t, "init again", fmt.Sprint(Init(t.Context(), path, answers, &http.Client{})), "already")
	for _, c := range []struct{ api, url, want string }{
		{api.URL, "carrier-pigeon://hunter22@coop", `the URL: creating sender for URLs [(the URL)]: error initializing router services: unknown service: "carrier-pigeon"`},
		{api.URL, "", "the URL: creating sender"},
		{"coldaisle.example.com", answers.URL, "--api must be the address"},
		{"http://127.0.0.1:1", answers.URL, "try the key at the API: Post"},
	} {
		err := Init(t.Context(), path+"2", Answers{API: c.api, Name: "a", Key: "cold_secret", URL: c.url}, &http.Client{})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter22") {
			t.Errorf("%s, %s: %v", c.api, c.url, err)
		}
	}
}

// TestDoctor asks what would happen now, and why not.
func TestDoctor(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(&service{sensors: []sensor{{ID: "n1", Name: "Rack 1", RoomID: 1}}})
	defer api.Close()
	path := configure(t, api.URL, `
  - {name: hall-b, rooms: [Hall B], command: [/bin/true]}
  - {name: later, after: 10m, command: [/bin/true], hours: [Mon-Fri 08:00-18:00], zone: Europe/Zurich}
  - {name: now, severity: critical, command: [/bin/true]}
gateway: /nowhere/socket
shutdowns:
  - {name: off, room: Hall A, above: 35, for: 10m, stages: [{name: all, command: [/bin/true]}]}
`)
	c := must.Get(Load(path, nil))(t)
	now := time.Date(2026, 3, 2, 2, 0, 0, 0, time.UTC)
	var out bytes.Buffer
	ask := func(q Question) error { return Doctor(t.Context(), c, &http.Client{}, q, now, &out) }
	must.Do(t, ask(Question{"Hall A", "too_hot", "critical"}))
	must.Contain(t, "the answer", out.String(),
		"The API answers.", "The gateway does not answer: ", "CRITICAL: Hall A: too hot", `hall-b: no, its rooms are ["Hall B"]`,
		"later: at Mon 2026-03-02 08:00:00 CET", "now: at once", "shutdown off: no, the gateway of this machine does not answer",
	)
	if _, err := os.Stat(filepath.Join(c.State, journalFile)); err == nil {
		t.Error("it wrote a journal")
	}
	for _, q := range []Question{{"Hall Z", "too_hot", "critical"}, {"Hall A", "too_loud", "critical"}, {"Hall A", "too_hot", "Critical"}} {
		if ask(q) == nil {
			t.Errorf("%v is answered", q)
		}
	}
	must.Contain(t, "without a room", fmt.Sprint(ask(Question{"", "too_hot", "critical"})), "--room")
	c.Steps = c.Steps[:1]
	must.Equal(t, "of one step, for another room", "nobody would be told", fmt.Sprint(ask(Question{"Hall A", "too_hot", "critical"})))
}

// TestNoConnectionIsUsedTwice asks the API and sends to a notification service.
func TestNoConnectionIsUsedTwice(t *testing.T) {
	t.Parallel()
	var opened atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	c := &client{http: &http.Client{}, api: server.URL}
	s := Step{URL: "generic+" + server.URL + "?template=json", Timeout: time.Minute}
	for range 2 {
		must.Do(t, c.heartbeat(t.Context(), heartbeat{}))
		_, err := s.act(t.Context(), "Zurich", Message{Event: "test", Title: "Test"})
		must.Do(t, err)
	}
	must.Equal(t, "connections of four requests", int64(4), opened.Load())
}
