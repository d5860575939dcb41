package pubsubtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
)

// emulators is where the Cloud SDK has gcloud's emulator.
const emulators = "platform/pubsub-emulator/lib/cloud-pubsub-emulator-*.jar"

// Emulator runs gcloud's emulator until the test ends and returns its address
// and a connection to it. The test is skipped where there is none: Debian does not
// have it.
func Emulator(tb testing.TB) (address string, connection *grpc.ClientConn) {
	tb.Helper()
	address = net.JoinHostPort("127.0.0.1", strconv.Itoa(FreePort(tb)))
	EmulatorAt(tb, address)
	return address, connect(tb, address)
}

// EmulatorAt is [Emulator] at a given address. stop ends it before the test does;
// after that another one may be started there, which knows nothing of this one's
// topics.
func EmulatorAt(tb testing.TB, address string) (stop func()) {
	tb.Helper()
	var jars []string
	for _, sdk := range []string{"/usr/lib/google-cloud-sdk", "/usr/share/google-cloud-sdk", "/opt/google-cloud-sdk"} {
		found, err := filepath.Glob(filepath.Join(sdk, emulators))
		if err != nil {
			tb.Fatal(err)
		}
		jars = append(jars, found...)
	}
	if len(jars) == 0 {
		tb.Skip("gcloud's Pub/Sub emulator is not installed (google-cloud-cli-pubsub-emulator of Google's own packages)")
	}
	java, err := exec.LookPath("java")
	if err != nil && os.Getenv("CI") == "" { //nolint:forbidigo // a test binary has no entrypoint to read it
		tb.Skip("gcloud's Pub/Sub emulator needs java, which is not installed")
	}
	if err != nil {
		tb.Fatalf("gcloud's Pub/Sub emulator is installed, and java is not: %v", err)
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		tb.Fatal(err)
	}
	// The test's context ends before its cleanups, which may still use it.
	emulator := exec.CommandContext(context.WithoutCancel(tb.Context()), java, "-jar", jars[0], "--host=127.0.0.1", "--port="+port) //nolint:gosec // the test's own
	if err := emulator.Start(); err != nil {
		tb.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = emulator.Process.Kill()
		_ = emulator.Wait()
	})
	tb.Cleanup(stop)
	connect(tb, address)
	return stop
}

// connect returns a connection to an emulator that answers.
func connect(tb testing.TB, address string) *grpc.ClientConn {
	tb.Helper()
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1, MaxDelay: 100 * time.Millisecond}}))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = connection.Close() })
	ready, cancel := context.WithTimeout(tb.Context(), 5*time.Minute)
	defer cancel()
	connection.Connect()
	for state := connection.GetState(); state != connectivity.Ready; state = connection.GetState() {
		if !connection.WaitForStateChange(ready, state) {
			tb.Fatal("the emulator does not answer")
		}
		connection.Connect()
	}
	return connection
}

// FreePort returns a port for a program that cannot be asked which one it was
// given. It is below those that systems give to outgoing connections: one of these
// may be taken by somebody else until the program listens.
func FreePort(tb testing.TB) int {
	tb.Helper()
	for {
		port := 10_000 + rand.N(20_000) //nolint:gosec // keeps no secret
		listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", ":"+strconv.Itoa(port))
		if err == nil {
			_ = listener.Close()
			return port
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			tb.Fatal(err)
		}
	}
}
