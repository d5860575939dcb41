package pubsubtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// emulators is where the Cloud SDK has gcloud's emulator.
const emulators = "platform/pubsub-emulator/lib/cloud-pubsub-emulator-*.jar"

// Emulator runs gcloud's emulator until the test ends and returns its address
// and a connection to it. The test is skipped where there is none: Debian does not
// have it.
func Emulator(tb testing.TB) (address string, connection *grpc.ClientConn) {
	tb.Helper()
	var jars []string
	for _, sdk := range []string{"/usr/lib/google-cloud-sdk", "/usr/share/google-cloud-sdk", "/opt/google-cloud-sdk"} {
		found, err := filepath.Glob(filepath.Join(sdk, emulators))
		if err != nil {
			tb.Fatal(err)
		}
		jars = append(jars, found...)
	}
	java, err := exec.LookPath("java")
	if err != nil || len(jars) == 0 {
		tb.Skip("gcloud's Pub/Sub emulator is not installed (google-cloud-cli-pubsub-emulator of Google's own packages)")
	}
	port := strconv.Itoa(FreePort(tb))
	address = net.JoinHostPort("127.0.0.1", port)
	// The test's context ends before its cleanups, which may still use it.
	emulator := exec.CommandContext(context.WithoutCancel(tb.Context()), java, "-jar", jars[0], "--host=127.0.0.1", "--port="+port) //nolint:gosec // the test's own
	if err := emulator.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = emulator.Process.Kill()
		_ = emulator.Wait()
	})
	connection, err = grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = connection.Close() })
	ready, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	connection.Connect()
	for state := connection.GetState(); state.String() != "READY"; state = connection.GetState() {
		if !connection.WaitForStateChange(ready, state) {
			tb.Fatal("the emulator does not answer")
		}
		connection.Connect()
	}
	return address, connection
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
