// Package api calls the API of Coldaisle for an enrolled gateway and for the watch.
package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
)

// maxAnswer bounds an answer, in bytes: 500 changes of incidents take about 1 MB.
const maxAnswer = 16 << 20

// StatusError is an answer other than success.
type StatusError struct {
	Status int
	Detail string
	Page   bool // no JSON, as of another machine that has the address
}

func (e *StatusError) Error() string { return fmt.Sprintf("answered %d: %s", e.Status, e.Detail) }

// IsStatus reports whether an error is an answer with the given status.
func IsStatus(err error, status int) bool {
	answered, ok := errors.AsType[*StatusError](err)
	return ok && answered.Status == status
}

// Call sends a request to an address, with body as JSON unless it is nil, and decodes the answer
// into out unless it is nil. It returns the answer's header. An answer other than success is a
// [StatusError].
func Call(ctx context.Context, client *http.Client, method, address string, header http.Header, body, out any) (http.Header, error) {
	var content bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&content).Encode(body); err != nil {
			return nil, fmt.Errorf("encode request: %w", err)
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, address, &content)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", address, err)
	}
	request.Header.Set("Content-Type", "application/json")
	maps.Copy(request.Header, header)
	response, err := client.Do(request)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the address
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", request.URL.Path, err)
	}
	if response.StatusCode/100 != 2 {
		var answer struct {
			Detail string `json:"detail"`
		}
		_ = json.Unmarshal(text, &answer) // a proxy's page is not JSON
		return nil, fmt.Errorf("%s %w", request.URL.Path,
			&StatusError{response.StatusCode, cmp.Or(answer.Detail, http.StatusText(response.StatusCode)), !json.Valid(text)})
	}
	if out != nil {
		if err := json.Unmarshal(text, out); err != nil {
			return nil, fmt.Errorf("%s does not answer as the API: %w", address, err)
		}
	}
	return response.Header, nil
}
