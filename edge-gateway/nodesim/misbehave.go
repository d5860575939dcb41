package nodesim

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Misbehaviour is a way in which a client abuses the gateway.
type Misbehaviour string

// The ways to misbehave. Each is a client beside the nodes, with an id of its own
// and a bound on what it sends.
const (
	Garbage    Misbehaviour = "garbage"     // bodies that no endpoint can accept, ten a second
	Flood      Misbehaviour = "flood"       // valid readings, 1000 a second over 8 connections
	Duplicates Misbehaviour = "duplicates"  // each reading three times under one id, the last with other values
	ClockJumps Misbehaviour = "clock-jumps" // a clock that leaps: absurd times in the body, readings in bursts and gaps
	Oversized  Misbehaviour = "oversized"   // bodies of 65 KiB to 1 MiB, one a second
	Slowloris  Misbehaviour = "slowloris"   // 16 connections that dribble a byte a second and never finish
)

// Misbehaviours lists all of them.
func Misbehaviours() []Misbehaviour {
	return []Misbehaviour{Garbage, Flood, Duplicates, ClockJumps, Oversized, Slowloris}
}

// ParseMisbehaviours reads a comma-separated list; "all" names every one. The
// error names what is unknown.
func ParseMisbehaviours(list string) ([]Misbehaviour, error) {
	if list == "" {
		return nil, nil
	}
	if list == "all" {
		return Misbehaviours(), nil
	}
	var kinds []Misbehaviour
	for name := range strings.SplitSeq(list, ",") {
		kind := Misbehaviour(strings.TrimSpace(name))
		if !slices.Contains(Misbehaviours(), kind) {
			return nil, fmt.Errorf("unknown misbehaviour %q: choose from %v or all", kind, Misbehaviours())
		}
		kinds = append(kinds, kind)
	}
	return kinds, nil
}

// The bounds of misbehaving clients, in wall time: the speed of the simulation does
// not change them.
const (
	floodConnections     = 8
	floodRate            = 1000 // requests a second
	slowlorisConnections = 16   // connections
	slowlorisTimeout     = 2 * time.Minute
	rogueConnections     = floodConnections + 8
)

// misbehavingClient is one misbehaving client.
type misbehavingClient struct {
	sim    *Simulation
	id     string
	chance rng
	mu     sync.Mutex // of chance, for the flood
}

// misbehave runs a client of one kind until the context ends.
func (s *Simulation) misbehave(ctx context.Context, kind Misbehaviour) {
	r := &misbehavingClient{
		sim:    s,
		id:     s.config.Prefix + "-" + string(kind),
		chance: newRNG(s.config.Seed^uint64(s.config.Clock().UnixNano()), 4*noiseStream),
	}
	switch kind {
	case Garbage:
		r.every(ctx, 100*time.Millisecond, r.garbage)
	case Flood:
		r.flood(ctx)
	case Duplicates:
		r.every(ctx, time.Second, r.duplicates)
	case ClockJumps:
		r.every(ctx, time.Second, r.clockJumps)
	case Oversized:
		r.every(ctx, time.Second, r.oversized)
	case Slowloris:
		r.slowloris(ctx)
	}
}

// every repeats an act until the context ends, with a pause after each.
func (r *misbehavingClient) every(ctx context.Context, pause time.Duration, act func(ctx context.Context, base string, round int)) {
	for round := 0; ctx.Err() == nil; round++ {
		if base, ok := r.gateway(ctx); ok {
			act(ctx, base, round)
		}
		if wait(ctx, pause) != nil {
			return
		}
	}
}

func (r *misbehavingClient) gateway(ctx context.Context) (string, bool) {
	base, err := r.sim.config.Resolve(ctx)
	return base, err == nil
}

func (r *misbehavingClient) post(ctx context.Context, base, path string, body []byte) {
	status, err := r.sim.client.postBytes(ctx, base, path, body)
	if ctx.Err() != nil {
		return
	}
	count := &r.sim.counters
	count.rogueRequests.Add(1)
	switch {
	case err != nil:
		count.rogueFailed.Add(1)
	case outcomeOf(status) == accepted:
		count.rogueAccepted.Add(1)
	default:
		count.rogueRefused.Add(1)
	}
}

// reading makes a valid body with values of its own.
func (r *misbehavingClient) reading(id string) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Appendf(nil, `{"id":%q,"node_id":%q,"temperature":%.1f,"humidity":%.1f}`,
		id, r.id, r.chance.uniform(20, 30), r.chance.uniform(30, 45))
}

func (r *misbehavingClient) messageID() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("%08x", uint32(r.chance.pcg.Uint64())) //nolint:gosec // the low half is what is wanted
}

// malformedBodies lists bodies that none of the endpoints may accept.
func malformedBodies() []string {
	return []string{
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
}

func (r *misbehavingClient) garbage(ctx context.Context, base string, round int) {
	bodies := malformedBodies()
	paths := []string{messagePath, registerPath, heartbeatPath}
	r.post(ctx, base, paths[round/len(bodies)%len(paths)], []byte(bodies[round%len(bodies)]))
}

func (r *misbehavingClient) flood(ctx context.Context) {
	limiter := rate.NewLimiter(floodRate, floodConnections)
	var connections sync.WaitGroup
	for range floodConnections {
		connections.Go(func() {
			for limiter.Wait(ctx) == nil {
				if base, ok := r.gateway(ctx); ok {
					r.post(ctx, base, messagePath, r.reading(r.messageID()))
				}
			}
		})
	}
	connections.Wait()
}

func (r *misbehavingClient) duplicates(ctx context.Context, base string, _ int) {
	id := r.messageID()
	body := r.reading(id)
	r.post(ctx, base, messagePath, body)
	r.post(ctx, base, messagePath, body)
	r.post(ctx, base, messagePath, r.reading(id))
}

// clockJumps adds absurd times and sends nothing in one round and a burst in
// another, as a node does whose timer follows a jumping clock.
func (r *misbehavingClient) clockJumps(ctx context.Context, base string, round int) {
	times := []string{"1970-01-01T00:00:00Z", "2106-02-07T06:28:15Z", "0000-00-00T00:00:00Z", "-1", "9999999999999"}
	for burst := range round % 4 * 3 {
		body := bytes.TrimSuffix(r.reading(r.messageID()), []byte("}"))
		body = fmt.Appendf(body, `,"timestamp":%q}`, times[(round+burst)%len(times)])
		r.post(ctx, base, messagePath, body)
	}
}

func (r *misbehavingClient) oversized(ctx context.Context, base string, round int) {
	sizes := []int{65 << 10, 256 << 10, 1 << 20}
	padding := strings.Repeat("x", sizes[round%len(sizes)])
	body := bytes.TrimSuffix(r.reading(r.messageID()), []byte("}"))
	r.post(ctx, base, messagePath, fmt.Appendf(body, `,"padding":%q}`, padding))
}

func (r *misbehavingClient) slowloris(ctx context.Context) {
	var connections sync.WaitGroup
	for number := range slowlorisConnections {
		connections.Go(func() {
			r.every(ctx, time.Second, func(ctx context.Context, base string, _ int) {
				r.dribble(ctx, base, number%2 == 0)
			})
		})
	}
	connections.Wait()
}

// dribble opens a connection and sends the header or the body of a request, one
// byte a second, until the gateway closes the connection or slowlorisTimeout ends.
func (r *misbehavingClient) dribble(ctx context.Context, base string, header bool) {
	count := &r.sim.counters
	count.rogueRequests.Add(1)
	target, err := url.Parse(base)
	if err != nil {
		count.rogueFailed.Add(1)
		return
	}
	connection, err := (&net.Dialer{Timeout: requestTimeout}).DialContext(ctx, "tcp", target.Host)
	if err != nil {
		count.rogueFailed.Add(1)
		return
	}
	// A gateway that answers or hangs up ends the read, and the dribble with it.
	listening, hungUp := context.WithTimeout(ctx, slowlorisTimeout)
	defer hungUp()
	var ear sync.WaitGroup
	defer ear.Wait()
	defer func() { _ = connection.Close() }() // runs before the wait, which needs it
	ear.Go(func() {
		_, _ = io.Copy(io.Discard, connection)
		hungUp()
	})
	start := "POST " + messagePath + " HTTP/1.1\r\nHost: " + target.Host + "\r\n"
	rest := strings.Repeat("X-Padding: x\r\n", 64)
	if !header {
		start += "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
		rest = `{"id":"` + strings.Repeat("0", 900)
	}
	if _, err := io.WriteString(connection, start); err != nil {
		count.rogueRefused.Add(1)
		return
	}
	for i := range len(rest) {
		if wait(listening, time.Second) != nil {
			break
		}
		if _, err := io.WriteString(connection, rest[i:i+1]); err != nil {
			break
		}
	}
	if ctx.Err() == nil {
		count.rogueRefused.Add(1)
	}
}
