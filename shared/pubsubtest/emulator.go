package pubsubtest

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// emulators is where the Cloud SDK has gcloud's emulator.
const emulators = "platform/pubsub-emulator/lib/cloud-pubsub-emulator-*.jar"

// Emulator runs gcloud's emulator until the test ends and returns its address
// and a connection to it. The test is skipped where there is none, in CI failed.
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
		const missing = "gcloud's Pub/Sub emulator is not installed (apt-get install google-cloud-cli-pubsub-emulator)"
		if os.Getenv("CI") == "true" { //nolint:forbidigo // of the machine, not of a program
			tb.Fatal(missing)
		}
		tb.Skip(missing)
	}
	listener, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	address = listener.Addr().String()
	_ = listener.Close()
	_, port, _ := net.SplitHostPort(address)
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
