package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"coldaisle.dev/edge-gateway/announce"
	"coldaisle.dev/edge-gateway/gateway"
)

// gateway asks the gateway on this machine how it is, and returns how it is
// announced.
func (c Config) gateway(ctx context.Context, r *Report) announce.State {
	const subject = "gateway"
	h, err := c.health(ctx)
	if err != nil {
		r.problem(subject, "start it: sudo systemctl start monitor-gateway; why it does not run: journalctl -u monitor-gateway -n 50", "does not answer on port %d: %v", c.Port, err)
		return announce.State{}
	}
	r.ok(subject, "answers on port %d: version %s, %s", c.Port, h.Version, plural(h.Nodes, "node"))
	if h.Version != c.Version {
		r.warn(subject, "sudo systemctl restart monitor-gateway", "runs version %s, installed is %s", h.Version, c.Version)
	}
	since := h.Publishing.Since.Local().Format(time.DateTime)
	if h.Publishing.Up {
		r.ok(subject, "publishes, since %s", since)
	} else {
		r.problem(subject, "see what is said of the clock, the credentials and the topic; readings are kept in the outbox meanwhile", "has not been able to publish since %s: %s", since, h.Publishing.Error)
	}
	if h.Outbox.Error != "" {
		r.problem(subject, "see what is said of the outbox", "cannot keep readings: %s", h.Outbox.Error)
	}
	if h.Announced.Error != "" {
		r.problem(subject, "let a firewall on this machine pass UDP port 5353; the gateway tries again by itself", "cannot announce itself: %s", h.Announced.Error)
	}
	for _, link := range h.Announced.Links {
		if link.Error != "" {
			r.problem(subject, "let a firewall on this machine pass UDP port 5353; the gateway tries again by itself", "cannot announce itself on %s: %s", link.Interface, link.Error)
		}
	}
	tellName(r, h.Announced)
	for _, reason := range h.Reasons {
		check, _, _ := strings.Cut(reason, ":")
		if remedy := remedy(check); remedy != "" {
			r.problem(check, remedy, "%s", strings.TrimSpace(strings.TrimPrefix(reason, check+":")))
		} else if check != "publishing" && check != "outbox" && check != "name" { // told above
			r.warn(subject, "", "says of itself that it is %s: %s", h.Status, reason)
		}
	}
	if h.Outbox.Dropped > 0 {
		r.warn(subject, "see what is said of the outbox", "could neither publish nor keep %s since it was started", plural(int(h.Outbox.Dropped), "reading"))
	}
	return h.Announced
}

// remedy is what to do about a reason that an enrolled gateway tells; empty for others.
func remedy(reason string) string {
	switch reason {
	case "enrolment":
		return "when it was revoked or copied, make a new code in the dashboard and enrol this machine with it; when the API does not answer, check the uplink: HTTPS to the API must be open"
	case "system clock":
		return setClock
	case "withheld":
		return "nothing to do: they belong to another enrolment, or nobody knows when they were; they are in the folder withheld of the outbox"
	default:
		return ""
	}
}

// tellName tells by which name the gateway is found, and its role in a pair.
func tellName(r *Report, state announce.State) {
	const subject = "gateway"
	if state.Problem != "" {
		r.problem(subject, "see \"Two gateways: a pair\" in docs/gateway.md; the gateway takes its name back by itself", "is announced as %s: %s", state.Host, state.Problem)
	}
	for _, l := range state.Links {
		if len(l.Peers) > 0 {
			r.ok(subject, "is %s on %s, as %s, in a pair with %s", l.Role, l.Interface, l.Host, strings.Join(l.Peers, " and "))
		}
	}
}

// health is what a gateway says of itself.
type health struct {
	gateway.Health

	Announced announce.State `json:"mdns"`
}

// State asks the gateway on this machine for its state.
func State(ctx context.Context, port int) (string, error) {
	h, err := Config{Port: port}.health(ctx)
	return h.Status, err
}

func (c Config) health(ctx context.Context) (h health, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	url := "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port)) + "/health"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return h, fmt.Errorf("ask for health: %w", err)
	}
	// No proxy stands between a machine and itself.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return h, fmt.Errorf("ask for health: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	err = json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(&h)
	if err != nil || h.Status == "" || h.Publishing.Since.IsZero() {
		return h, fmt.Errorf("what answers %s there is no gateway", response.Status)
	}
	return h, nil
}
