package gateway_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestLimitsOfARequest sends what is too large or too slow, each over a
// connection of its own.
func TestLimitsOfARequest(t *testing.T) {
	t.Parallel()
	address := listen(t, newSite(t).gateway)
	const (
		post    = "POST /api/v1/message HTTP/1.1\r\nHost: gateway\r\n"
		silence = 0 // cut off without an answer
	)
	for name, c := range map[string]struct {
		request string
		status  int
		slow    bool
	}{
		"a header of 32 KiB":         {post + "X-Padding: " + strings.Repeat("x", 32<<10) + "\r\n\r\n", http.StatusRequestHeaderFieldsTooLarge, false},
		"a body of 65 KiB":           {post + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", 65<<10, strings.Repeat(" ", 65<<10)), http.StatusRequestEntityTooLarge, false},
		"a body without length":      {post + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1000\r\n"+strings.Repeat(" ", 4096)+"\r\n", 40), http.StatusRequestEntityTooLarge, false},
		"a header that does not end": {post, silence, true},
		"a body that does not end":   {post + "Content-Length: 100\r\n\r\n{", http.StatusBadRequest, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && c.slow {
				t.Skip("takes as long as the gateway is patient")
			}
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			_, _ = io.WriteString(conn, c.request) // the gateway may hang up before it has read all
			_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
			got := silence
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err == nil {
				got = response.StatusCode
				_ = response.Body.Close()
			}
			if err != nil && strings.Contains(err.Error(), "timeout") {
				t.Fatal("the gateway waits for ever")
			}
			if got != c.status {
				t.Errorf("answered %d (%v), want %d", got, err, c.status)
			}
		})
	}
}
