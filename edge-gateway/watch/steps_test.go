package watch

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
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

	"coldaisle.dev/shared/incident"
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
	names := steps[0].Name + "; " + steps[1].Name + "; " + steps[2].Name
	must.Equal(t, "the steps' names", "mail; mail, recipient 2; mail, recipient 3", names)
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
	must.Hold(t, !strings.Contains(text, "\nBcc:"), "a header from a room's name: %s", text)
}

// TestEachRecipientIsAStep holds that nobody whom a URL names is left out, by whichever name and how
// often it has them, in an order that a restart keeps.
func TestEachRecipientIsAStep(t *testing.T) {
	t.Parallel()
	const mail = "smtp://mail.example.com:587/?from=w%40example.com"
	const ana, ben, eve = mail + "&to=ana%40example.com", mail + "&to=ben%40example.com", mail + "&to=eve%40example.com"
	for query, want := range map[string][]string{
		"&to=ana@example.com&toaddresses=ben@example.com,eve@example.com": {ana, ben, eve},
		"&toaddresses=ben@example.com&To=ana@example.com,":                {ana, ben},
		"&to=ana@example.com&to=ben@example.com,, eve@example.com":        {ana, ben, eve},
		"&to=ana@example.com&toaddresses=ana@example.com":                 {ana}, // not told twice
		"&to=,": {mail + "&to=,"}, // it is refused
	} {
		must.Equal(t, "recipients of "+query, want, destinations(mail+query, telegramAPI))
	}
}

// TestMailServerHangs sends by a mail server that accepts connections and says nothing. When it goes
// on, nothing of a try that has failed arrives: each would be a message more.
func TestMailServerHangs(t *testing.T) {
	t.Parallel()
	listener := must.Get(net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	defer func() { _ = listener.Close() }()
	step := Step{Timeout: 100 * time.Millisecond, URL: "smtp://" + listener.Addr().String() + "/?from=watch@example.com&to=ana@example.com"}
	var server net.Conn
	must.Eventually(t, "a try comes as far as the server", func() bool { // on a busy machine its time may be over before
		_, err := step.act(t.Context(), "Zurich", message("start", new(hot(41))))
		must.Equal(t, "a server that says nothing has the message", false, err == nil)
		must.Do(t, listener.SetDeadline(time.Now().Add(time.Second)))
		server, err = listener.Accept()
		return err == nil
	})
	defer func() { _ = server.Close() }()
	_, _ = server.Write([]byte("220 mail.example.com\r\n"))
	said, _ := bufio.NewReader(server).ReadString('\n')
	must.Hold(t, said == "", "the try that has failed goes on: %q", said)
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
	must.Hold(t, send() != nil, "a failure is a success")
	status = http.StatusOK
	received.Take()
	must.Do(t, send())
	must.Contain(t, "what the server received", received.String(),
		"POST /bot110201543:hunter22hunter22hunter22hunter22hun/sendMessage", `"chat_id":"@ops"`, `"chat_id":"@dev"`, `"chat_id":"-1001"`, `"message_thread_id":"7"`, `"text":"CRITICAL: Hall A: too hot\n`,
	)
	api.Close()
	err := send()
	must.Hold(t, err != nil && !strings.Contains(err.Error(), "hunter22"), "without a server: %v", err)
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
	send := func(to string) error {
		s := Step{URL: to, Timeout: time.Minute}
		_, err := s.act(t.Context(), "site", message("start", new(hot(41))))
		return err
	}
	act := func(path string) error { return send("generic+" + hook.URL + path + "?template=json") }
	host := strings.TrimPrefix(hook.URL, "http://")
	receiver.Handle("/hooks/", http.RedirectHandler("/", http.StatusFound))  // Mattermost's
	receiver.Handle("/message", http.RedirectHandler("/", http.StatusFound)) // Gotify's
	for _, to := range []string{"mattermost://" + host + "/secret?disabletls=yes", "gotify://" + host + "/Aaaa.bbbb.ccc.d?disabletls=yes"} {
		must.Contain(t, "the error of "+to, fmt.Sprint(send(to)), "it redirects")
	}
	for _, path := range []string{"/301", "/302", "/303", "/loop"} {
		must.Contain(t, "the error of "+path, fmt.Sprint(act(path)), "it redirects")
		must.Contain(t, "the error of ntfy's "+path, fmt.Sprint(send("ntfy://"+host+path+"?scheme=http")), "it redirects")
		must.Equal(t, "received by "+path, 0, len(messages))
	}
	for _, path := range []string{"/", "/307", "/308"} {
		must.Do(t, act(path))
		must.Equal(t, path, "POST", <-messages)
	}
	must.Do(t, act("/endless"))
	sent := <-written
	must.Hold(t, sent < most, "%d bytes of an answer were read", sent)
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
		must.Hold(t, err != nil && strings.Contains(err.Error(), c.want) && !strings.Contains(err.Error(), "hunter22"),
			"%s, %s: %v", c.api, c.url, err)
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
	must.Hold(t, must.Err(os.Stat(filepath.Join(c.State, journalFile))) != nil, "it wrote a journal")
	for _, q := range []Question{{"Hall Z", "too_hot", "critical"}, {"Hall A", "too_loud", "critical"}, {"Hall A", "too_hot", "Critical"}} {
		must.Hold(t, ask(q) != nil, "%v is answered", q)
	}
	must.Contain(t, "without a room", fmt.Sprint(ask(Question{"", "too_hot", "critical"})), "--room")
	c.Steps = c.Steps[:1]
	err := ask(Question{"Hall A", "too_hot", "critical"})
	must.Equal(t, "of one step, for another room", "nobody would be told", fmt.Sprint(err))
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

// TestRefused has configurations of which one setting is wrong: the error says which, and no secret.
func TestRefused(t *testing.T) {
	t.Parallel()
	open := filepath.Join(t.TempDir(), "open")
	must.Do(t, os.WriteFile(open, []byte("ntfy://secret"), 0o604)) //nolint:gosec // everybody may read it, which is refused
	must.Do(t, os.Chmod(open, 0o604))                              //nolint:gosec // the same
	const step = "  - {name: a, command: [/bin/true]}\n"
	const protected = step + "gateway: /run/live\nshutdowns:\n  - name: d\n"
	for name, c := range map[string]struct{ steps, want string }{ // the steps begin in line 5
		"unknown setting":     {"  - {name: a, command: [/bin/true]}\n  - name: b\n    comand: [/bin/true]", "line 7: field comand"},
		"unknown scheme":      {"  - name: a\n    url: carrier-pigeon://hunter22@coop", "steps 1 url: "},
		"unusable scheme":     {"  - name: a\n    url: zulip://bot@example.com:hunter22@zulip.example.com/?stream=a&topic=b", "steps 1 url: no notification service understands it: zulip is not usable"},
		"unknown zone":        {"  - name: a\n    command: [/bin/true]\n    hours: [Mon-Fri 08:00-18:00]\n    zone: Europe/Atlantis", "steps 1 zone: "},
		"hours without zone":  {"  - name: a\n    command: [/bin/true]\n    hours: [Mon-Fri 08:00-18:00]", "steps 1 zone: "},
		"hours":               {"  - name: a\n    command: [/bin/true]\n    zone: UTC\n    hours:\n      - Mon 08:00-18:00\n      - Weekend", "steps 1 hours 2: "},
		"hours twice":         {"  - {name: a, command: [/bin/true], zone: UTC, hours: &h [Weekend]}\n  - name: b\n    command: [/bin/true]\n    zone: UTC\n    hours: *h", "steps 1 hours 1: "},
		"unknown cause":       {"  - name: a\n    command: [/bin/true]\n    causes: [too_hot, too_loud]", "steps 1 causes 2: "},
		"unknown severity":    {"  - name: a\n    command: [/bin/true]\n    severity: urgent", "steps 1 severity: "},
		"unknown room":        {"  - name: a\n    command: [/bin/true]\n    rooms:\n      - Hall A\n      - Hall Z", `steps 1 rooms 2: no room is called "Hall Z"`},
		"no action":           {"  - name: a\n    after: 10m", "steps 1: must have one action"},
		"two actions":         {"  - name: a\n    command: [/bin/true]\n    url: logger://", "steps 1: must have one action"},
		"delay":               {"  - name: a\n    command: [/bin/true]\n    after: soon", "line 7: cannot unmarshal"},
		"no message an hour":  {"  - name: a\n    command: [/bin/true]\n    at_most: 0", "steps 1 at_most: must be 1 or more"},
		"same name":           {"  - {name: a, command: [/bin/true]}\n  - {name: a, command: [/bin/true]}", "steps 2 name: "},
		"no such command":     {"  - name: a\n    command: [/bin/no-such-command]", "steps 1 command: "},
		"no recipient":        {"  - name: a\n    url: smtp://mail.example.com/?from=w@example.com&to=,", `steps 1 url: no notification service understands it: failed to parse mail address ""`},
		"no address":          {"  - name: a\n    url: smtp://mail.example.com/?from=w@example.com&to=ana@example.com,ben", "steps 1 url: no notification service understands it: failed to parse"},
		"no sender":           {"  - name: a\n    url: smtp://mail.example.com/?from=w&to=ana@example.com", "steps 1 url: no notification service understands it: failed to parse"},
		"secret for everyone": {"  - name: a\n    url_file: " + open, "steps 1 url_file: "},
		"no steps":            {"  []", "steps: "},
		"no gateway":          {step + "shutdowns:\n  - {name: d, room: Hall A, above: 35, for: 10m, stages: [{command: [/bin/true]}]}", "gateway: "},
		"room of a shutdown":  {protected + "    room: Hall Z\n    above: 35\n    for: 10m\n    stages: [{command: [/bin/true]}]", `shutdowns 1 room: no room is called "Hall Z"`},
		"a low limit":         {protected + "    room: Hall A\n    above: 20\n    for: 10m\n    stages: [{command: [/bin/true]}]", "shutdowns 1 above: "},
		"for no time":         {protected + "    room: Hall A\n    above: 35\n    stages: [{command: [/bin/true]}]", "shutdowns 1 for: "},
		"no stages":           {protected + "    room: Hall A\n    above: 35\n    for: 10m", "shutdowns 1 stages: "},
		"stages out of order": {protected + "    room: Hall A\n    above: 35\n    for: 10m\n    stages:\n      - {after: 5m, command: [/bin/true]}\n      - {after: 1m, command: [/bin/true]}", "shutdowns 1 stages 2 after: "},
		"stage's command":     {protected + "    room: Hall A\n    above: 35\n    for: 10m\n    stages:\n      - {name: all}", "shutdowns 1 stages 1 command: "},
	} {
		c2, err := Load(configure(t, "http://localhost:1", c.steps), nil)
		if err == nil {
			err = c2.resolve(map[int64]string{1: "Hall A", 2: "Hall B"})
		}
		must.Hold(t, err != nil && strings.Contains(err.Error(), c.want) && !strings.Contains(err.Error(), "hunter22"),
			"%s: error %v, want %s", name, err, c.want)
	}
}

// TestDue has delays and hours: who is asleep by the step's hours is told when they begin.
func TestDue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ hours, now, want string }{
		{"", "2026-03-02T02:00:00Z", "2026-03-02T02:10:00Z"},
		{"Mon-Fri 08:00-18:00", "2026-03-02T02:00:00Z", "2026-03-02T07:00:00Z"}, // Monday in Zurich, winter
		{"Mon-Fri 08:00-18:00", "2026-03-27T16:55:00Z", "2026-03-30T06:00:00Z"}, // over a weekend, into summer
		{"Fri-Mon 22:00-06:00", "2026-03-03T04:00:00Z", "2026-03-03T04:10:00Z"}, // Monday's night ends on Tuesday
		{"Sun 00:00-24:00", "2026-03-01T22:49:59.5Z", "2026-03-01T22:59:59.5Z"}, // to the last second
		{"Sun 00:00-24:00", "2026-03-01T22:50:00Z", "2026-03-07T23:00:00Z"},     // and not longer
	} {
		s := Step{After: 10 * time.Minute, zone: must.Get(time.LoadLocation("Europe/Zurich"))(t)}
		if c.hours != "" {
			s.hours = []hours{must.Get(parseHours(c.hours))(t)}
		}
		now := must.Get(time.Parse(time.RFC3339, c.now))(t)
		must.Equal(t, c.hours+" at "+c.now, c.want, s.due(now).UTC().Format(time.RFC3339Nano))
	}
}

// TestHoursHoldBackCalls has a step by day. A call outside its hours waits until they begin, and is none
// if the incident ends before; an end does not wait: somebody may be on the way.
func TestHoursHoldBackCalls(t *testing.T) {
	t.Parallel()
	steps := []Step{{Name: "a", AtMost: new(30), zone: time.UTC, hours: []hours{must.Get(parseHours("Mon-Fri 08:00-18:00"))(t)}}}
	s := newState()
	at := func(id int64, clock string, event incident.Event, calls bool, want ...string) {
		t.Helper()
		now := must.Get(time.Parse(time.DateTime, "2026-03-02 "+clock))(t)
		i := hot(id)
		s.apply(steps, Change{Event: event, Calls: calls, IncidentID: id, Incident: &i}, now)
		var due []string
		for _, j := range s.Queue {
			due = append(due, j.Event+" "+j.Due.Format(time.DateTime))
		}
		must.Equal(t, string(event)+" at "+clock, want, due)
	}
	at(1, "17:59:00", incident.EventStarted, true, "start 2026-03-02 17:59:00")
	s.Queue = nil // it was sent
	at(1, "19:00:00", incident.EventWorse, true, "again 2026-03-03 08:00:00")
	at(1, "20:00:00", incident.EventEnded, false, "end 2026-03-02 20:00:00")
	s.Queue = nil
	at(2, "21:00:00", incident.EventStarted, true, "start 2026-03-03 08:00:00")
	at(2, "22:00:00", incident.EventEnded, false)
}

// TestDrillMessageSaysDrill also has an expected incident: nobody may mistake either for a fire.
func TestDrillMessageSaysDrill(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Incident){
		"CRITICAL: Hall A: too hot": same, "DRILL, CRITICAL: Hall A: too hot": func(i *Incident) { i.Drill = true },
		"CRITICAL expected: Hall A: too hot":         func(i *Incident) { i.Phase = "expected" },
		"CRITICAL: Hall A: too hot (judged on site)": func(i *Incident) { i.OnSite = true },
	} {
		told := hot(1)
		change(&told)
		must.Equal(t, "title", want, message("start", &told).Title)
	}
}

// TestCommand has a command that hears all, one that leaves a process behind, one that writes much,
// one that hangs, and one that is interrupted by the end of the watch.
func TestCommand(t *testing.T) {
	t.Parallel()
	m := message("start", new(hot(41)))
	m.Room, m.ID = "Hall\nA", 7
	s := Step{Command: []string{"/bin/sh", "-c", `echo "$COLDAISLE_ROOM|$COLDAISLE_INCIDENT|$COLDAISLE_ID|$0"; cat`, "$(id)"}, Timeout: time.Minute}
	output := must.Get(s.act(t.Context(), "site", m))(t)
	must.Hold(t, strings.HasPrefix(output, "Hall A|41|7|$(id) {") && strings.Contains(output, `"room":"Hall\nA"`),
		"output %q", output)
	ended := filepath.Join(t.TempDir(), "ended")
	leaves := Step{Command: []string{"/bin/sh", "-c", `(sleep 300; touch "$0") & echo sent`, ended}, Timeout: time.Minute}
	must.Equal(t, "what it wrote", "sent", must.Get(leaves.act(t.Context(), "site", m))(t))
	must.Fail(t, "the process that it left has ended before it", must.Err(os.Stat(ended)), fs.ErrNotExist)
	talks := Step{Command: []string{"/bin/sh", "-c", "echo failed; yes 2>&1 | head -c 20000000; exit 3"}, Timeout: time.Minute}
	if output, err := talks.act(t.Context(), "site", m); err == nil || !strings.HasPrefix(output, "failed y y") || len(output) > maxOutput {
		t.Errorf("%d bytes of output: %v", len(output), err)
	}
	var kept head
	must.Equal(t, "written", int64(3*maxOutput), must.Get(io.Copy(&kept, strings.NewReader(strings.Repeat("y", 3*maxOutput))))(t))
	must.Equal(t, "kept", maxOutput, len(kept))
	hangs := Step{Command: []string{"/bin/sh", "-c", "sleep 3600 & wait"}, Timeout: 100 * time.Millisecond}
	_, err := hangs.act(t.Context(), "site", m) // else it ends with the tests
	must.Contain(t, "the error of one that hangs", fmt.Sprint(err), "longer than 100ms")
	stopped, end := context.WithCancel(t.Context())
	end()
	_, err = s.act(stopped, "site", m)
	must.Hold(t, err != nil && !strings.Contains(err.Error(), "longer than"), "as the watch ends: %v", err)
}
