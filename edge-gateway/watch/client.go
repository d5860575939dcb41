package watch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// client calls the API.
type client struct {
	http     *http.Client
	api, key string
}

// maxAnswer bounds an answer: 500 changes take about 1 MB.
const maxAnswer = 16 << 20

// statusError is an answer that is not 200.
type statusError struct {
	status int
	detail string
}

func (e *statusError) Error() string { return fmt.Sprintf("status %d: %s", e.status, e.detail) }

func isStatus(err error, status int) bool {
	var answered *statusError
	return errors.As(err, &answered) && answered.status == status
}

// get decodes an answer into out, and returns its link to the next page.
func (c *client) get(ctx context.Context, path string, out any) (link string, err error) {
	// A long poll waits for 25 s.
	ctx, cancel := context.WithTimeout(ctx, 40*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(c.api, "/")+path, nil)
	if err != nil {
		return "", fmt.Errorf("call the API: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+c.key)
	answer, err := c.http.Do(request)
	if err != nil {
		return "", fmt.Errorf("call the API: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	if answer.StatusCode != http.StatusOK {
		var problem struct {
			Detail string `json:"detail"`
		}
		_ = json.Unmarshal(body, &problem)
		return "", fmt.Errorf("%s: %w", path, &statusError{answer.StatusCode, problem.Detail})
	}
	if err := json.Unmarshal(body, out); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return answer.Header.Get("Link"), nil
}

// changes is a part of the log.
type changes struct {
	Changes []Change `json:"changes"`
	Next    int64    `json:"next"`
	More    bool     `json:"more"`
}

func (c *client) changes(ctx context.Context, after int64, wait time.Duration, limit int) (found changes, err error) {
	_, err = c.get(ctx, fmt.Sprintf("/api/v1/incidents/changes?after=%d&wait_s=%d&limit=%d", after, int(wait.Seconds()), limit), &found)
	return found, err
}

// lasting returns all incidents that last.
func (c *client) lasting(ctx context.Context) ([]Incident, error) {
	var all []Incident
	for next := "/api/v1/incidents?state=lasting&limit=500"; next != ""; {
		var page []Incident
		link, err := c.get(ctx, next, &page)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		next, _, _ = strings.Cut(strings.TrimPrefix(link, "<"), ">")
	}
	return all, nil
}

func (c *client) incident(ctx context.Context, id int64) (found Incident, err error) {
	_, err = c.get(ctx, fmt.Sprintf("/api/v1/incidents/%d", id), &found)
	return found, err
}

// rooms returns the names of the account's rooms.
func (c *client) rooms(ctx context.Context) (map[int64]string, error) {
	var overview struct {
		Rooms []struct {
			ID   int64  `json:"id"`
			Name string `json:"name"`
		} `json:"rooms"`
	}
	_, err := c.get(ctx, "/api/v1/overview", &overview)
	names := map[int64]string{}
	for _, room := range overview.Rooms {
		names[room.ID] = room.Name
	}
	return names, err
}
