package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/tooltest"
)

// silent is a listener that takes no connection: its queue is full, so that one more hangs
// as one does to a machine that was switched off.
func silent(t *testing.T) string {
	t.Helper()
	listener := must.Get(net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	t.Cleanup(func() { _ = listener.Close() })
	must.Do(t, must.Get(listener.SyscallConn())(t).Control(func(fd uintptr) { _ = syscall.Listen(int(fd), 0) }))
	address := listener.Addr().String()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		cancel()
		if err != nil {
			return address
		}
		t.Cleanup(func() { _ = c.Close() })
	}
}

// accepting serves raw connections.
func accepting(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	listener := must.Get((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				serve(c)
			}()
		}
	}()
	return listener.Addr().String()
}

// TestNodeFeedsItsWatchdog gives an ESP8266's node, whose watchdog bites after 1.6 s, what takes longer. It must go on
// measuring, and never ask DNS, which would stop it for 7 to 14 s: MicroPython's lwip_getaddrinfo (extmod/modlwip.c) is
// "while (state.status == 0) { poll_sockets(); }". Of settimeout docs/library/socket.rst says "Not every MicroPython
// port supports this method. A more portable and generic solution is to use select.poll object".
func TestNodeFeedsItsWatchdog(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]func(t *testing.T) string{
		"a machine that is off": silent,
		"no answer": func(t *testing.T) string {
			t.Helper()
			return accepting(t, func(c net.Conn) { <-t.Context().Done() })
		},
		"an answer that drips": func(t *testing.T) string {
			t.Helper()
			return accepting(t, func(c net.Conn) {
				ticker := time.NewTicker(10 * time.Millisecond)
				defer ticker.Stop()
				for {
					if _, err := c.Write([]byte("H")); err != nil {
						return
					}
					<-ticker.C
				}
			})
		},
		"no such name": func(*testing.T) string { return "monitor-gateway.local:8080" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			measured := 0
			hardware := s.until(4*time.Minute, nil)
			console := power(t, func(question []string) (string, bool) {
				switch question[0] {
				case "measure":
					measured++
				case "dns":
					t.Errorf("asked for %s by DNS", question[1])
				}
				return hardware(question)
			}, gatewayAt(at(t)), "PLATFORM=esp8266", "NETWORK=20", new(names).serve(t))
			// Six registrations may take 14 s each; then a reading each 30 s.
			must.Hold(t, measured >= 3 && strings.Contains(console, "esp8266-a4cf1203b1c8"),
				"measured %d times in 4 minutes\n%s", measured, console)
		})
	}
}

// TestNodeMeasuresWhileItSendsWhatItKept lets a gateway come back that takes 4 s for each
// answer: twenty kept readings would take longer than an interval.
func TestNodeMeasuresWhileItSendsWhatItKept(t *testing.T) {
	t.Parallel()
	const speed = 20
	s := newSite(t)
	s.failBetween(time.Minute, 15*time.Minute)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.clock().Sub(start) > 15*time.Minute {
			timer := time.NewTimer(4 * time.Second / speed)
			defer timer.Stop()
			<-timer.C
		}
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	var at []time.Duration
	hardware := s.until(20*time.Minute, nil)
	power(t, func(question []string) (string, bool) {
		if question[0] == "measure" {
			at = append(at, s.clock().Sub(start))
		}
		return hardware(question)
	}, gatewayAt(server.Listener.Addr().String()), "NETWORK=20")
	for i := 1; i < len(at); i++ {
		if gap := at[i] - at[i-1]; gap > 45*time.Second {
			t.Errorf("measured at %s and then at %s: it waited for what it kept", at[i-1], at[i])
		}
	}
	kept := len(s.stored())
	must.Hold(t, kept >= 35, "%d readings of 20 minutes are stored, want what was kept too", kept)
}

// TestNodeCountsTheSearchForTheName loses what the node asks by mDNS, which takes it 2 s: a
// reading that waits for it is 2 s old when it is sent.
func TestNodeCountsTheSearchForTheName(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	network := &names{address: net.IPv4(127, 0, 0, 1)}
	s.fail = func(_ int, r request) (int, string) {
		if r.Path == "heartbeat" { // the next request looks for the gateway again
			network.lose(2)
			return -1, ""
		}
		return 0, ""
	}
	settings := s.serve() + "GATEWAY = \"Monitor-Gateway.LOCAL\"\n"
	power(t, s.until(3*time.Minute, nil), settings, "NETWORK=20", network.serve(t))
	waited := 0
	for _, r := range s.on("message") {
		if r.Age > 1.9 && r.Age < 5 {
			waited++
		}
	}
	must.Hold(t, waited >= 2, "%d readings waited for the name and say so: %+v", waited, s.on("message"))
}

// TestNodeForgetsBeforeItsCounterBeginsAgain is away from the gateway, with a sensor that
// fails, for longer than half of what the board's counter of milliseconds counts.
func TestNodeForgetsBeforeItsCounterBeginsAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const away, back = 3 * time.Minute, 200 * time.Hour
	s.failBetween(time.Minute, back)
	hardware := s.until(back+10*time.Minute, func(after time.Duration) string {
		if after > away && after < back {
			return "error"
		}
		return fmt.Sprintf("%.1f 41", 24.5+max(0, min(5, (after-back).Minutes()-2)))
	})
	power(t, func(question []string) (string, bool) {
		if passed := s.clock().Sub(start); question[0] == "sleep" && passed > away && passed < back {
			question = []string{"sleep", "3000000"} // 50 minutes
			_, on := hardware(question)
			return question[1], on
		}
		return hardware(question)
	}, s.serve())
	for _, r := range s.on("message") {
		must.Hold(t, r.After <= back || r.After-time.Duration(r.Age)*time.Second >= back,
			"%s after the start it sent a reading of %s before it", r.After, away)
	}
	seen := map[string]bool{}
	for _, r := range s.on("message") {
		if r.After < away {
			seen[r.ID] = true
		} else if r.After > back && seen[r.ID] {
			t.Errorf("sent reading %s of the first minutes again after %s, with an age of %g s", r.ID, r.After, r.Age)
		}
	}
	// A degree a minute, for five minutes.
	got := len(s.stored())
	must.Hold(t, got >= 50, "%d readings are stored: it does not see that it gets hotter", got)
}

// heap is what the node gets to run in. MicroPython takes "w" to mean words of 32 bits, as a
// board's are, where this machine's take twice as much: 48 KB here stand for 48 KB there.
const heap = "38wK"

// TestNodeNeedsLittleMemory keeps all that a node can, and has it sent when the gateway is
// back, in a heap of a board's size.
func TestNodeNeedsLittleMemory(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.failWhen(503, `<html>`+strings.Repeat("x", 5000), func(_ int, r request) bool {
		return r.After > time.Minute && r.After < 65*time.Minute
	})
	console := power(t, s.until(80*time.Minute, nil), s.serve(), "HEAP="+heap)
	if got := len(s.stored()); got < 150 || strings.Contains(console, "memory") {
		t.Errorf("%d readings of 80 minutes are stored, want 150:\n%s", got, console)
	}
}

// TestNodeOutlivesAFullHeap has no room for a connection for four minutes: what cannot be
// sent meanwhile follows, and the board is not started again.
func TestNodeOutlivesAFullHeap(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	console := power(t, s.until(12*time.Minute, func(after time.Duration) string {
		if after > 2*time.Minute && after < 6*time.Minute {
			return "24.5 41 full"
		}
		return "24.5 41"
	}), s.serve())
	if got := len(s.stored()); got != 24 || !strings.Contains(console, "message: memory allocation failed") {
		t.Errorf("%d readings of 12 minutes are stored, want 24:\n%s", got, console)
	}
}

// TestNodeRefusesSettings shows what a board says whose config.py cannot work.
func TestNodeRefusesSettings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ setting, console string }{
		"the example's WiFi": {`WIFI = "the network's name"`, "WIFI is still the example's"},
		"an interval":        {"INTERVAL_S = 30000", "INTERVAL_S must be 600 seconds at most"},
		"a name by DNS":      {`GATEWAY = "gateway.example.com"`, "GATEWAY must be a name that ends in .local or an IPv4 address"},
		"a node id":          {`NODE_ID = "rack 1"`, "NODE_ID must be up to 50 letters"},
		"the reserved id":    {`NODE_ID = "coldaisle.probe"`, "or coldaisle.probe"},
		"a path":             {`NODE_ID = ".."`, "and not . or .."},
		"a sensor":           {`SENSOR = "dht23"`, "SENSOR: dht23"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			console := power(t, s.until(8*time.Second, nil), s.serve()+c.setting+"\n")
			must.Hold(t, strings.Contains(console, c.console) && len(s.requests) == 0,
				"the console says\n%s\nwant %q, and %d requests", console, c.console, len(s.requests))
		})
	}
}

// TestNodeTellsItsConsole shows what a newcomer sees.
func TestNodeTellsItsConsole(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	settings := s.serve() + "GATEWAY = \"monitor-gateway.local\"\n"
	network := &names{address: net.IPv4(127, 0, 0, 1)}
	console := power(t, s.until(40*time.Second, nil), settings, network.serve(t))
	must.Contain(t, "the console", console,
		"press Ctrl-C within 5 seconds", "access point off", "node linux-a4cf1203b1c8", "wifi: joined the test's as 192.168.1.20",
		"registered", "24.5 C 41.0 %", "monitor-gateway.local is 127.0.0.1")
}

// firmware is the reference node.
const firmware = "../../../edge-gateway/nodes/micropython"

// micropython copies the firmware to a folder, as onto a board, and returns the command
// that starts it there on MicroPython's own unix port. Only pins, chips, the radio and the
// watchdog are stand-ins. Lines of settings are added to config.py.
func micropython(t *testing.T, settings string, environment ...string) *exec.Cmd {
	t.Helper()
	interpreter := tooltest.Program(t, "micropython")
	board := t.TempDir()
	for _, pattern := range []string{firmware + "/*.py", firmware + "/hardware/*.py"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			content := must.Get(os.ReadFile(file))(t)
			if filepath.Base(file) == "config.py" {
				content = append(content, "\nWIFI = \"the test's\"\n"+settings...)
			}
			must.Do(t, os.WriteFile(filepath.Join(board, filepath.Base(file)), content, 0o600))
		}
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(stop)
	arguments := []string{filepath.Join(board, "run.py")}
	for _, setting := range environment {
		if size, ok := strings.CutPrefix(setting, "HEAP="); ok {
			arguments = append([]string{"-X", "heapsize=" + size}, arguments...)
		}
	}
	command := exec.CommandContext(ctx, interpreter, arguments...)
	command.Env = append(os.Environ(), environment...)
	return command
}

// border answers what a node's hardware is asked, such as "sleep 1000" or "measure". It
// is called by one goroutine; false switches the board off.
type border func(question []string) (answer string, on bool)

// power switches a board on and returns when it is switched off. What it printed on its console is returned.
func power(t *testing.T, hardware border, settings string, environment ...string) (console string) {
	t.Helper()
	command := micropython(t, settings, append(environment, "BORDER=1")...)
	answers := must.Get(command.StdinPipe())(t)
	questions := must.Get(command.StdoutPipe())(t)
	var faults bytes.Buffer
	command.Stderr = &faults
	must.Do(t, command.Start())
	var printed strings.Builder
	lines := bufio.NewScanner(questions)
	off := false
	for lines.Scan() {
		question, asked := strings.CutPrefix(lines.Text(), "@")
		if !asked {
			fmt.Fprintln(&printed, lines.Text())
			continue
		}
		answer, on := hardware(strings.Fields(question))
		if !on {
			off = true
			break
		}
		must.Get(io.WriteString(answers, answer+"\n"))(t)
	}
	_ = answers.Close() // the node asks in vain, and ends
	_, _ = io.Copy(io.Discard, questions)
	err := command.Wait()
	must.Hold(t, err == nil && off, "the board went off by itself: %v\n%s%s", err, printed.String(), faults.String())
	return printed.String()
}
