package main

import (
	"context"
	"crypto/rand"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	bq "google.golang.org/api/bigquery/v2"

	"coldaisle.dev/run/tools/release/tfenv"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/readings/bqreadings/bqtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// contained is the image's program in the image's files, as Cloud Run starts it:
// as nobody, with nothing of the machine's. Where the test is not root it cannot
// change the root folder or the user, and starts the program alone.
func contained(t *testing.T, folder string, environ []string, arguments ...string) *exec.Cmd {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("the image is for linux/amd64")
	}
	path := filepath.Join(folder, "server")
	c := exec.CommandContext(context.WithoutCancel(t.Context()), path, arguments...)
	if os.Getuid() == 0 {
		c.Path, c.Args[0] = "/server", "/server"
		c.SysProcAttr = &syscall.SysProcAttr{Chroot: folder, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
		c.Dir = "/"
	}
	c.Env = environ
	return c
}

// users creates a database user for each component, without rights, and returns the
// database's URL for one of them.
func users(t *testing.T, suffix string) func(component string) string {
	t.Helper()
	address := pgtest.URL(t)
	pool, err := pgxpool.New(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	password := rand.Text()
	for _, component := range tfenv.Components() {
		quoted := pgx.Identifier{tfenv.DatabaseUser(component, suffix)}.Sanitize()
		if _, err := pool.Exec(t.Context(), "CREATE ROLE "+quoted+" LOGIN PASSWORD '"+password+"'"); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, component := range tfenv.Components() {
			quoted := pgx.Identifier{tfenv.DatabaseUser(component, suffix)}.Sanitize()
			for _, statement := range []string{"DROP OWNED BY " + quoted, "DROP ROLE " + quoted} {
				if _, err := pool.Exec(context.WithoutCancel(t.Context()), statement); err != nil {
					t.Error(err)
				}
			}
		}
		pool.Close()
	})
	return func(component string) string {
		parsed, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if component != "" {
			parsed.User = url.UserPassword(tfenv.DatabaseUser(component, suffix), password)
		}
		return parsed.String()
	}
}

// TestImageStartsAsTerraformStartsIt migrates and serves from the image with the
// environment that terraform gives, and the endpoints of stand-ins.
func TestImageStartsAsTerraformStartsIt(t *testing.T) {
	t.Parallel()
	suffix := "-" + strings.ToLower(rand.Text()[:8])
	components, err := tfenv.Read(filepath.Join(root, "terraform"), suffix)
	if err != nil {
		t.Fatal(err)
	}
	database := users(t, suffix)
	folder := publish(t).unpacked(t)

	migration := contained(t, folder, append(components["migrate"].Environ(""), "DATABASE_URL="+database("")), "migrate")
	if output, err := migration.CombinedOutput(); err != nil {
		t.Fatalf("migrate: %v\n%s", err, output)
	}

	topics := pubsubtest.Start(t)
	queries := bqtest.NewQueryServer(t, func(*bq.QueryRequest) bqtest.Answer { return bqtest.Answer{} })
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	_ = listener.Close()
	service := contained(t, folder, append(components["api"].Environ(strings.Repeat("k", 32)),
		"PORT="+port, // which Cloud Run sets
		"DATABASE_URL="+database("api"), "PUBSUB_EMULATOR_HOST="+topics.Addr, "STORAGE_EMULATOR_HOST=127.0.0.1:1",
		"BIGQUERY_EMULATOR_HOST="+queries.URL, "BIGQUERY_STORAGE_EMULATOR_HOST=127.0.0.1:1"))
	log, err := os.Create(filepath.Join(t.TempDir(), "output"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	service.Stdout, service.Stderr = log, log
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- service.Wait() }()
	t.Cleanup(func() { _ = service.Process.Kill() })
	output := func() string {
		text, _ := os.ReadFile(log.Name())
		return string(text)
	}
	healthy(t, "http://"+address+"/health", ended, output)
	if os.Getuid() == 0 {
		notRoot(t, service.Process.Pid)
	}

	// The API's own database user may do what registration does.
	body := strings.NewReader(`{"email":"a@example.com","username":"annanna","password":"Passw0rd"}`)
	response, err := http.Post("http://"+address+"/api/v1/customers/register", "application/json", body)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusCreated {
		t.Errorf("register: %s\n%s", response.Status, output())
	}
	if err := service.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, output())
	}
}

// healthy waits until the probe's path answers.
func healthy(t *testing.T, address string, ended <-chan error, output func() string) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; {
		response, err := http.Get(address)
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case err := <-ended:
			t.Fatalf("the service ended: %v\n%s", err, output())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("not healthy: %v\n%s", err, output())
		}
		time.Sleep(10 * time.Millisecond) // between two polls of the condition
	}
}

// TestVariableRenamedOnOneSide starts the image without each variable that
// terraform sets and that must be there.
func TestVariableRenamedOnOneSide(t *testing.T) {
	t.Parallel()
	components, err := tfenv.Read(filepath.Join(root, "terraform"), "")
	if err != nil {
		t.Fatal(err)
	}
	folder := publish(t).unpacked(t)
	for _, renamed := range []string{"PROJECT_ID", "INSTANCE_CONNECTION_NAME", "DB_USER"} {
		component := tfenv.Component{Environment: maps.Clone(components["api"].Environment), Secrets: components["api"].Secrets}
		component.Environment[renamed+"_OLD"] = component.Environment[renamed]
		delete(component.Environment, renamed)
		output, err := contained(t, folder, append(component.Environ(strings.Repeat("k", 32)), "PORT=0")).CombinedOutput()
		if err == nil || !strings.Contains(string(output), renamed) {
			t.Errorf("without %s: %v\n%s", renamed, err, output)
		}
	}
}

func notRoot(t *testing.T, process int) {
	t.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(process), "status"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(status), "Uid:\t65532\t65532\t65532\t65532") {
		t.Errorf("runs as\n%s", status)
	}
}
