package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"coldaisle.dev/edge-gateway/announce"
	"coldaisle.dev/edge-gateway/gateway"
)

// gateway reports the health of the gateway on this machine, or why it does not answer.
func (c Config) gateway(r *Report, h health, err error) {
	const subject = "gateway"
	if err != nil {
		r.problem(subject, "start it: sudo systemctl start monitor-gateway; why it does not run: journalctl -u monitor-gateway -n 50", "does not answer on port %d: %v", c.Port, err)
		return
	}
	r.ok(subject, "answers on port %d: version %s, %s", c.Port, h.Version, plural(h.Nodes, "node"))
	if h.Version != c.Version {
		r.warn(subject, "sudo systemctl restart monitor-gateway", "runs version %s, installed is %s", h.Version, c.Version)
	}
	since := h.Publishing.Since.Local().Format(time.DateTime)
	if h.Publishing.Up && h.Publishing.Error == "" {
		r.ok(subject, "publishes, since %s", since)
	}
	for _, reason := range h.Reasons {
		name, text, _ := strings.Cut(reason, ": ")
		remedy := remedies[name]
		switch {
		case name == "publishing" && h.Publishing.Up:
			r.problem(subject, remedy, "publishes nothing, Pub/Sub refuses every reading: %s", text)
		case name == "publishing":
			r.problem(subject, remedy, "has not been able to publish since %s: %s", since, text)
		case name == "outbox" && h.Outbox.Error != "":
			r.problem(subject, remedy, "has trouble with its outbox: %s", text)
		case name == "outbox": // places that cannot be read; everything else is kept
			r.warn(subject, remedy, "has trouble with its outbox: %s", text)
		case name == "name":
			r.problem(subject, remedy, "is announced as %s: %s", h.Announced.Host, text)
		case name == "enrolment", name == "system clock", name == "withheld":
			r.problem(name, remedy, "%s", text)
		default:
			r.warn(subject, remedy, "says of itself that it is %s: %s", h.Status, reason)
		}
	}
	if h.Announced.Error != "" {
		r.problem(subject, remedies["announcing"], "cannot announce itself: %s", h.Announced.Error)
	}
	for _, l := range h.Announced.Links {
		if l.Error != "" {
			r.problem(subject, remedies["announcing"], "cannot announce itself on %s: %s", l.Interface, l.Error)
		}
		if len(l.Peers) > 0 {
			r.ok(subject, "is %s on %s, as %s, in a pair with %s", l.Role, l.Interface, l.Host, strings.Join(l.Peers, " and "))
		}
	}
	for _, s := range h.Sources {
		counts := make([]string, 0, len(s.Results))
		for _, result := range slices.Sorted(maps.Keys(s.Results)) {
			counts = append(counts, fmt.Sprintf("%d %s", s.Results[result], result))
		}
		r.ok("sources", "%s brought %s; its readings since the start: %s", s.Name, plural(s.Nodes, "node"), cmp.Or(strings.Join(counts, ", "), "none"))
		if len(s.Results) == 1 && s.Results["ignored"] > 0 {
			r.warn("sources", remedies["sources"], "%s sends nothing that measures a room", s.Name)
		}
		if s.Problem != "" {
			r.warn("sources", remedies["sources"], "%s: the last reading that was not taken: %s", s.Name, s.Problem)
		}
	}
	if h.Outbox.Dropped > 0 {
		remedy := remedies["outbox"]
		if h.Outbox.Error == "" {
			remedy += "; when that is in order, raise OUTBOX_MAX_BYTES: no node keeps more than is left free"
		}
		r.warn(subject, remedy, "could neither publish nor keep %s since it was started", plural(int(h.Outbox.Dropped), "reading"))
	}
}

// remedies say what to do about a reason of /health, by the word before the colon.
var remedies = map[string]string{ //nolint:gochecknoglobals // a table
	"publishing":   "see what is said of the clock, the enrolment, the credentials and the topic; when these are in order, check the uplink: HTTPS to Pub/Sub must be open",
	"outbox":       "see what is said of the outbox",
	"name":         "see what is said of the network; if another device has the name, switch it off or rename it; if that is a gateway of yours, see \"Two gateways: a pair\" in docs/gateway.md; the gateway takes its name back by itself",
	"announcing":   "let a firewall on this machine pass UDP port 5353; the gateway tries again by itself",
	"enrolment":    "when it was revoked or copied, make a new code in the dashboard and enrol this machine with it; when the API does not answer, check the uplink: HTTPS to the API must be open",
	"system clock": setClock,
	"sources":      "correct its configuration, or sources.json; see \"Sources of batches\" in docs/gateway.md",
	"withheld":     "nothing to do: they belong to another enrolment, or nobody knows when they were; they are in the folder withheld of the outbox",
}

// health is the answer of a gateway's /health.
type health struct {
	gateway.Health

	Announced announce.State `json:"mdns"`
}

// Health asks the gateway at a URL for its health.
func Health(ctx context.Context, url string) (h health, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/health", nil)
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
