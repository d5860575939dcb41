package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"coldaisle.dev/edge-gateway/gateway"
)

// gateway asks the gateway on this machine how it is.
func (c Config) gateway(ctx context.Context, r *Report) {
	const subject = "gateway"
	h, err := c.health(ctx)
	if err != nil {
		r.problem(subject, "start it: sudo systemctl start monitor-gateway; why it does not run: journalctl -u monitor-gateway -n 50", "does not answer on port %d: %v", c.Port, err)
		return
	}
	r.ok(subject, "answers on port %d: version %s, %s", c.Port, h.Version, some(h.Nodes, "node"))
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
	if h.Outbox.Dropped > 0 {
		r.warn(subject, "see what is said of the outbox", "could neither publish nor keep %s since it was started", some(int(h.Outbox.Dropped), "reading"))
	}
}

func (c Config) health(ctx context.Context) (h gateway.Health, err error) {
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
