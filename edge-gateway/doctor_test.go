package main

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"coldaisle.dev/shared/must"
)

// TestDoctor examines a gateway of its own, and then one that has ended.
func TestDoctor(t *testing.T) {
	t.Parallel()
	server := startPubSub(t)
	p := newProcess(t, server.Addr)
	p.start()
	must.Eventually(t, "the gateway publishes", func() bool { h := p.health(); return h != nil && h.Publishing.Up })
	var out bytes.Buffer
	err := runDoctor(t.Context(), nil, p.environ, &out, time.Now)
	if err != nil && !errors.Is(err, errProblemsFound) {
		t.Fatal(err)
	}
	must.Contain(t, "the output", out.String(),
		"credentials\n  ok       not needed: PUBSUB_EMULATOR_HOST is "+server.Addr,
		"credentials\n  ok       not needed: PUBSUB_EMULATOR_HOST is",
		"0 readings waiting", "answers on port "+strconv.Itoa(p.port), "publishes, since", "network\n",
	)
	must.Do(t, healthy(t.Context(), p.environ)) // after the examination
	must.Do(t, p.end(syscall.SIGTERM))
	out.Reset()
	must.Fail(t, "an examination without a gateway", runDoctor(t.Context(), nil, p.environ, &out, time.Now), errProblemsFound)
	must.Contain(t, "the examination without a gateway", out.String(), "PROBLEM  does not answer on port")
}

// TestHealthy holds how long a script that has replaced the program gives it to be well.
func TestHealthy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state func(second int) string
		other bool // another version runs
		took  time.Duration
		well  bool
	}{
		"healthy":                {state: func(int) string { return "healthy" }, well: true},
		"degraded for good":      {state: func(int) string { return "degraded" }, took: settled * time.Second, well: true},
		"degraded, then failing": {state: func(second int) string { return []string{"failing", "degraded"}[min(1, settled/(second+1))] }, took: time.Minute},
		"late":                   {state: func(second int) string { return []string{"", "healthy"}[second/40] }, took: 40 * time.Second, well: true},
		"another version":        {state: func(int) string { return "healthy" }, other: true, took: time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			err := waitHealthy(t.Context(), func(context.Context) (state, version string, err error) {
				version = buildVersion()
				if c.other {
					version = "v0"
				}
				if state = c.state(int(time.Since(began).Seconds())); state == "" {
					err = errors.New("does not answer")
				}
				return state, version, err
			})
			if took := time.Since(began); (err == nil) != c.well || took != c.took {
				t.Errorf("%s: after %s it ends with %v, want after %s", name, took, err, c.took)
			}
		})
	}
}

func TestDoctorsArguments(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	must.Do(t, runDoctor(t.Context(), []string{"-h"}, nil, &out, time.Now))
	must.Contain(t, "-h", out.String(), "-network")
	for _, args := range [][]string{{"-colour"}, {"outbox"}} {
		if err := runDoctor(t.Context(), args, nil, &out, time.Now); err == nil || errors.Is(err, errProblemsFound) {
			t.Errorf("%q ends with %v", args, err)
		}
	}
}

// TestInstalled gives the doctor the settings of the installed service.
func TestInstalled(t *testing.T) {
	t.Parallel()
	at := install(t, "# settings\n\nPROJECT_ID=site\n#DATA_TOPIC=other\n; PORT=1\nPORT = \"9090\"\nno setting\n")
	want := []string{
		"OUTBOX_DIR=" + at.outbox(), "GOOGLE_APPLICATION_CREDENTIALS=" + at.etc("google.json"),
		"PROJECT_ID=site", "PORT=9090", "PATH=/bin", "PORT=8081",
	}
	must.Equal(t, "environment", want, withServiceEnvironment([]string{"PATH=/bin", "PORT=8081"}, at))
	own := []string{"PROJECT_ID=other"}
	must.Equal(t, "a project of one's own", own, withServiceEnvironment(own, at))
	must.Equal(t, "nothing installed", []string{"A=b"}, withServiceEnvironment([]string{"A=b"}, installation{t.TempDir()}))
}
