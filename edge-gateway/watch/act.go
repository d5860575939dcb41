package watch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/nicholas-fedor/shoutrrr"
	"github.com/nicholas-fedor/shoutrrr/pkg/router"
	"github.com/nicholas-fedor/shoutrrr/pkg/services/push/ntfy"
	"github.com/nicholas-fedor/shoutrrr/pkg/types"

	"coldaisle.dev/shared/incident"
)

const (
	maxOutput = 4096    // of a command, in the log
	maxPart   = 2000    // bytes of a long text's begin, and of its end: Telegram, ntfy and others refuse more than 4096
	maxAnswer = 1 << 20 // of a notification service
)

// digest merges messages into that of the worst lasting incident, drills aside, or, if none lasts, the
// newest, with all others in its text. Each incident is in it once: its first message has the present state, and
// its end replaces that.
func (s *state) digest(batch []job) Message {
	var all []job
	for _, j := range batch {
		n := slices.IndexFunc(all, func(before job) bool { return before.IncidentID == j.IncidentID && before.calls() })
		switch {
		case n >= 0 && j.calls():
			continue
		case n >= 0 && j.Event == "end":
			all = slices.Delete(all, n, n+1)
		}
		all = append(all, j)
	}
	var worst job
	var rank int
	lines := make([]string, len(all))
	for i, j := range all {
		own := 0
		later := func(k *tracked) bool { // of the same room and cause: its start may have come before this end
			m := message("start", &k.Incident)
			return k.Told[j.Step] > 0 && m.Room == j.Room && m.Cause == j.Cause && m.Drill == j.Drill
		}
		if j.Event == "end" && slices.ContainsFunc(slices.Collect(maps.Values(s.Incidents)), later) {
			j.Title = strings.Replace(j.Title, ": ", ", but begun again: ", 1)
		}
		if k := s.Incidents[j.IncidentID]; k != nil && j.Event != "end" && !j.Drill {
			if own = 2 * incident.Severity(j.Severity).Rank(); !k.Incident.cleared() {
				own++
			}
		}
		if own >= rank {
			worst, rank = j, own
		}
		lines[i] = j.Title + "\n" + j.Text
	}
	m := worst.Message
	if len(all) > 1 {
		m.Title, m.Text = fmt.Sprintf("%s, and %d more", m.Title, len(all)-1), strings.Join(lines, "\n\n")
	}
	return m
}

// act sends a message to a step's URL or command. Its error contains no secrets.
func (s *Step) act(ctx context.Context, watch string, m Message) (output string, err error) {
	if len(s.Command) > 0 {
		return s.run(ctx, watch, m)
	}
	title := plain(m.Title)
	text := title + "\n" + m.Text + "\n" + watch
	if strings.HasPrefix(s.URL, "smtp:") {
		err = sendMail(ctx, s.URL, title, text, s.Timeout)
	} else {
		webhook := strings.HasPrefix(s.URL, "generic") && !strings.Contains(s.URL, "/sendMessage?") // Telegram's
		if len(text) > 2*maxPart && !webhook {
			text = strings.ToValidUTF8(text[:maxPart]+"…"+text[len(text)-maxPart:], "")
		}
		err = s.send(text, &types.Params{"title": title})
	}
	if err != nil {
		return "", errors.New(redact(err, s.URL))
	}
	return "", nil
}

// send sends a text by the library, whose own clients for these three would go by no proxy, and follow redirects.
func (s *Step) send(text string, params *types.Params) error {
	if scheme, _, _ := strings.Cut(s.URL, ":"); slices.Contains([]string{"ntfy", "gotify", "mattermost"}, scheme) {
		service, err := new(router.ServiceRouter).Locate(s.URL)
		if err != nil {
			return err //nolint:wrapcheck // the caller redacts it
		}
		client := &http.Client{Transport: http.DefaultClient.Transport}
		switch service := service.(type) {
		case *ntfy.Service:
			if !service.Config.DisableTLSVerification { // else its own knows
				service.SetHTTPClient(client)
			}
		case interface{ GetHTTPClient() *http.Client }:
			client = service.GetHTTPClient()
			if transport, ok := client.Transport.(*http.Transport); ok {
				transport.Proxy, transport.DisableKeepAlives = http.ProxyFromEnvironment, true
			}
		}
		client.CheckRedirect, client.Timeout = http.DefaultClient.CheckRedirect, s.Timeout
		return service.Send(text, params) //nolint:wrapcheck // the caller redacts it
	}
	sender, err := shoutrrr.CreateSender(s.URL)
	if err != nil {
		return err //nolint:wrapcheck // the caller redacts it
	}
	sender.Timeout = s.Timeout
	return errors.Join(sender.Send(text, params)...)
}

// init bounds http.DefaultClient, by which the library sends webhooks. It sets no timeout, holds
// the whole answer in memory, and takes the answer to a redirected GET, which has no message, for success.
//
// No request, of the watch's own to the API too, uses an earlier one's connection: one that a router has
// forgotten would be tried for the quarter of an hour that TCP needs to give it up.
func init() { //nolint:gochecknoinits // before anybody uses it
	if shared, ok := http.DefaultTransport.(*http.Transport); ok {
		shared.DisableKeepAlives = true
	}
	*http.DefaultClient = http.Client{
		Transport: bounded{http.DefaultTransport}, Timeout: maxTimeout, // the library waits no longer than the step's
		CheckRedirect: func(request *http.Request, via []*http.Request) error {
			if request.Method != via[0].Method || len(via) > 3 {
				return errors.New("it redirects; the URL must be that to which it redirects")
			}
			return nil
		},
	}
}

// bounded cuts long answers.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(request)
	if err == nil {
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(response.Body, maxAnswer), response.Body}
	}
	return response, err //nolint:wrapcheck // a transport passes its base's errors on
}

const telegramAPI = "https://api.telegram.org"

// destinations splits a configured URL into one for each recipient, because the library stops at
// the first address that a mail server refuses. Its Telegram service reports success even without
// an answer, so each chat becomes a webhook.
func destinations(configured, api string) []string {
	parsed, err := url.Parse(configured)
	if err != nil {
		return []string{configured}
	}
	var all []string
	query := parsed.Query()
	switch parsed.Scheme {
	case "smtp":
		var to []string
		for _, name := range slices.Sorted(maps.Keys(query)) {
			if key := strings.ToLower(name); key == "to" || key == "toaddresses" {
				to = append(to, query[name]...)
				query.Del(name)
			}
		}
		for address := range strings.SplitSeq(strings.Join(to, ","), ",") {
			if address = strings.TrimSpace(address); address != "" {
				query.Set("to", address)
				parsed.RawQuery = query.Encode()
				if one := parsed.String(); !slices.Contains(all, one) {
					all = append(all, one)
				}
			}
		}
	case "telegram":
		chats := strings.Trim(query.Get("chats"), ", ") + "," + strings.Trim(query.Get("channels"), ", ")
		for chat := range strings.SplitSeq(strings.Trim(chats, ","), ",") {
			chat, thread, threaded := strings.Cut(chat, ":")
			to := "generic+" + api + "/bot" + parsed.User.String() + "/sendMessage?template=json&messagekey=text&$chat_id=" + url.QueryEscape(chat)
			if threaded {
				to += "&$message_thread_id=" + url.QueryEscape(thread)
			}
			all = append(all, to)
		}
	}
	if len(all) == 0 {
		return []string{configured}
	}
	return all
}

// checkURL returns an error if no message could be sent to a URL.
func checkURL(configured string) error {
	scheme, _, _ := strings.Cut(configured, ":")
	switch scheme {
	case "zulip", "wecom": // zulip ends the program while its server is away, wecom refuses a title
		return fmt.Errorf("%s is not usable, generic+https:// or a command is", scheme)
	case "matrix": // it logs in, and its server may be away now
		return nil
	case "smtp":
		var errs []error
		for _, to := range destinations(configured, telegramAPI) {
			_, _, err := parseMail(to)
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}
	_, err := shoutrrr.CreateSender(configured)
	return err //nolint:wrapcheck // the caller redacts it
}

// run runs a step's command, with the message as JSON on its standard input.
func (s *Step) run(ctx context.Context, watch string, m Message) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	input, err := json.Marshal(m)
	if err != nil {
		return "", fmt.Errorf("encode the message: %w", err)
	}
	command := exec.CommandContext(ctx, s.Command[0], s.Command[1:]...) //nolint:gosec // it is the operator's
	command.Stdin = bytes.NewReader(input)
	command.Env = slices.Clone(s.environ)
	for name, value := range map[string]string{
		"WATCH": watch, "ID": strconv.FormatInt(m.ID, 10), "EVENT": m.Event, "INCIDENT": strconv.FormatInt(m.IncidentID, 10), "ROOM": m.Room,
		"CAUSE": m.Cause, "SEVERITY": m.Severity, "TITLE": m.Title,
	} {
		command.Env = append(command.Env, "COLDAISLE_"+name+"="+plain(value))
	}
	// The processes that the command has started end with it.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = time.Second
	var output head
	command.Stdout, command.Stderr = &output, &output
	err = command.Run()
	if errors.Is(err, exec.ErrWaitDelay) { // it has succeeded, and left a process that holds its output
		err = nil
	}
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("it took longer than %v", s.Timeout)
	}
	return plain(string(output)), err //nolint:wrapcheck // logged with the step
}

// head is a writer that keeps the first maxOutput bytes, so that no command fills memory.
type head []byte

func (h *head) Write(p []byte) (int, error) {
	*h = append(*h, p[:min(len(p), maxOutput-len(*h))]...)
	return len(p), nil
}

// plain is a text without control characters.
func plain(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text))
}
