package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// rogues are clients that abuse a gateway. Each kind sends under a node id of its own.
type rogues struct {
	url     string // of the gateway's messages
	refused atomic.Int64
}

// run runs all of them until the context ends.
func (r *rogues) run(ctx context.Context) {
	var running sync.WaitGroup
	every := func(pause time.Duration, act func(round int)) {
		running.Go(func() {
			for round := 0; ctx.Err() == nil; round++ {
				act(round)
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
			}
		})
	}
	garbage := []string{
		"", "null", "[]", "42", "true", `"reading"`, "{", `{"id":`, "\x00\x01\xff\xfe", "GET / HTTP/1.1\r\n\r\n",
		`{"id":"1","node_id":"","temperature":20,"humidity":40}`,
		`{"id":"1","node_id":"../etc","temperature":20,"humidity":40}`,
		`{"id":"1","node_id":7,"temperature":"warm","humidity":[]}`,
		`{"id":1,"node_id":{},"temperature":20,"humidity":40}`,
		`{"node_id":null,"temperature":NaN,"humidity":Infinity}`,
		`{"id":"1","node_id":"a b","temperature":1e999,"humidity":40}`,
		`{"id":"1","node_id":"` + strings.Repeat("x", 51) + `","temperature":20,"humidity":40}`,
		strings.Repeat("[", 2000),
	}
	every(100*time.Millisecond, func(round int) {
		path := []string{"message", "register", "heartbeat"}[round/len(garbage)%3]
		r.post(ctx, strings.TrimSuffix(r.url, "message")+path, garbage[round%len(garbage)])
	})
	limiter := rate.NewLimiter(1000, 8)
	for range 8 {
		every(0, func(int) {
			if limiter.Wait(ctx) == nil {
				r.post(ctx, r.url, valid("rogue-flood", messageID(), ""))
			}
		})
	}
	every(time.Second, func(int) { // each reading three times under one id, the last with other values
		id := messageID()
		body := valid("rogue-duplicates", id, "")
		for _, b := range []string{body, body, valid("rogue-duplicates", id, "")} {
			r.post(ctx, r.url, b)
		}
	})
	every(time.Second, func(round int) { // absurd times, in bursts and gaps
		times := []string{"1970-01-01T00:00:00Z", "2106-02-07T06:28:15Z", "0000-00-00T00:00:00Z", "-1", "9999999999999"}
		for burst := range round % 4 * 3 {
			r.post(ctx, r.url, valid("rogue-clock-jumps", messageID(), fmt.Sprintf(`,"timestamp":%q`, times[(round+burst)%len(times)])))
		}
	})
	every(time.Second, func(round int) {
		size := []int{65 << 10, 256 << 10, 1 << 20}[round%3]
		r.post(ctx, r.url, valid("rogue-oversized", messageID(), fmt.Sprintf(`,"padding":%q`, strings.Repeat("x", size))))
	})
	for number := range 16 {
		every(time.Second, func(int) { r.dribble(ctx, number%2 == 0) })
	}
	running.Wait()
}

func messageID() string { return fmt.Sprintf("%08x", rand.Uint32()) }

// valid is a reading, with more members.
func valid(node, id, more string) string {
	return fmt.Sprintf(`{"id":%q,"node_id":%q,"temperature":%.1f,"humidity":%.1f%s}`, id, node, 20+10*rand.Float64(), 30+15*rand.Float64(), more)
}

func (r *rogues) post(ctx context.Context, url, body string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	if response.StatusCode >= 400 {
		r.refused.Add(1)
	}
}

// dribble sends the header or the body of a request, one byte a second, until the gateway
// closes the connection.
func (r *rogues) dribble(ctx context.Context, header bool) {
	host := strings.Split(r.url, "/")[2]
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer func() { _ = conn.Close() }()
	start, rest := "POST /api/v1/message HTTP/1.1\r\nHost: "+host+"\r\n", strings.Repeat("X-Padding: x\r\n", 64)
	if !header {
		start += "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
		rest = `{"id":"` + strings.Repeat("0", 900)
	}
	_, err = io.WriteString(conn, start)
	for answer := make([]byte, 1); err == nil && rest != ""; rest = rest[1:] {
		if _, err = io.WriteString(conn, rest[:1]); err == nil {
			_ = conn.SetReadDeadline(time.Now().Add(time.Second))
			if _, closed := conn.Read(answer); closed == nil || errors.Is(closed, io.EOF) {
				break
			}
		}
	}
	if ctx.Err() == nil {
		r.refused.Add(1)
	}
}
