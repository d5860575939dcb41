package processtest_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/processtest"
)

// TestMain plays the child, which serves where it is told and leaves in order at SIGTERM, where a variable says so.
func TestMain(m *testing.M) {
	switch os.Getenv("CHILD") {
	case "serves":
		println("hello from the child")
		_ = http.ListenAndServe(net.JoinHostPort("127.0.0.1", os.Getenv("PORT")), http.NotFoundHandler())
	case "ends":
		println("no settings")
		os.Exit(3)
	default:
		os.Exit(m.Run())
	}
}

func TestStartsAgainAtItsAddress(t *testing.T) {
	t.Parallel()
	p := must.Get(processtest.New(t.Context(), "child-1", os.Args[0], t.TempDir(), "CHILD=serves"))(t)
	t.Cleanup(func() { _, _ = p.End(syscall.SIGKILL) })
	err := p.Signal(syscall.SIGCONT)
	must.Hold(t, err != nil && p.PID() == 0, "it runs before its start: %v", err)
	pids := map[int]bool{}
	for range 2 {
		must.Do(t, p.Start(t.Context()))
		pids[p.PID()] = true
		response := must.Get(http.Get(p.URL))(t) //nolint:noctx,bodyclose // of the test's own child, and closed by the next line
		must.Do(t, response.Body.Close())
		must.Hold(t, p.Start(t.Context()) != nil, "it was started twice")
		must.Do(t, p.Signal(syscall.SIGCONT))
		must.Equal(t, "status of a process that was killed", -1, must.Get(p.End(syscall.SIGKILL))(t))
	}
	must.Hold(t, len(pids) == 2 && strings.Count(p.Output(), "hello from the child") == 2,
		"processes %v said %q", pids, p.Output())
	must.Equal(t, "status of a process that does not run", 0, must.Get(p.End(syscall.SIGTERM))(t))
}

func TestSaysWhyItDoesNotStart(t *testing.T) {
	t.Parallel()
	p := must.Get(processtest.New(t.Context(), "child-2", os.Args[0], t.TempDir(), "CHILD=ends"))(t)
	must.Contain(t, "the error", fmt.Sprint(p.Start(t.Context())), "child-2 exited at start:\nno settings")
	missing := must.Get(processtest.New(t.Context(), "child-3", "/nowhere/program", t.TempDir()))(t)
	must.Contain(t, "the error", fmt.Sprint(missing.Start(t.Context())), "start child-3")
	must.Contain(t, "the error", fmt.Sprint(processtest.Build(t.Context(), t.TempDir()+"/none", "coldaisle.dev/none", "")), "build coldaisle.dev/none")
}
