package watch

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"coldaisle.dev/edge-gateway/api"
)

// client calls the API.
type client struct {
	http         *http.Client
	api, keyFile string

	mu  sync.Mutex
	key string
}

// callTimeout bounds a call; a long poll waits for 25 s.
const callTimeout = 35 * time.Second

// get decodes an answer into out.
func (c *client) get(ctx context.Context, path string, out any) error {
	_, err := c.call(ctx, http.MethodGet, path, nil, nil, out)
	return err
}

// call is [api.Call] with the key. After one that is refused it reads the file: people replace keys.
func (c *client) call(ctx context.Context, method, path string, header http.Header, body, out any) (http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c.mu.Lock()
	all := http.Header{"Authorization": {"Bearer " + c.key}}
	c.mu.Unlock()
	maps.Copy(all, header)
	answer, err := api.Call(ctx, c.http, method, strings.TrimRight(c.api, "/")+path, all, body, out)
	if api.IsStatus(err, http.StatusUnauthorized) {
		if key, failed := secret(c.keyFile); failed == nil {
			c.mu.Lock()
			c.key = key
			c.mu.Unlock()
		}
	}
	return answer, err
}

// changes is one page of the log.
type changes struct {
	Changes []Change `json:"changes"`
	Next    int64    `json:"next"`
}

func (c *client) changes(ctx context.Context, after int64, wait time.Duration, limit int) (found changes, err error) {
	err = c.get(ctx, fmt.Sprintf("/api/v1/incidents/changes?after=%d&wait_s=%d&limit=%d", after, int(wait.Seconds()), limit), &found)
	return found, err
}

// heartbeat reports that the watch runs. Ages are in seconds.
type heartbeat struct {
	Name        string `json:"name"`
	LastPoll    int64  `json:"last_poll_age_s"`
	LastSuccess *int64 `json:"last_success_age_s"`
	QueueAge    int64  `json:"queue_age_s"`
}

func (c *client) heartbeat(ctx context.Context, h heartbeat) error {
	_, err := c.call(ctx, http.MethodPost, "/api/v1/watches/heartbeat", nil, h, nil)
	return err
}
