package packaging_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/processtest"
	"coldaisle.dev/shared/tooltest"
)

// systemctl stands in for systemd: it starts the program that is installed, as the unit
// says, and like a service of Type=notify returns when it serves. What it stops has ended then.
const systemctl = `#!/bin/sh
stop() {
  if [ -f ROOT/pid ]; then kill "$(cat ROOT/pid)" && tail --pid="$(cat ROOT/pid)" -f /dev/null; fi
}
case "$*" in
"disable "*)
  stop
  rm -f ROOT/pid
  ;;
"restart monitor-gateway.service")
  stop
  OUTBOX_DIR=ROOT/var/lib/monitor-gateway/outbox ROOT/usr/bin/monitor-gateway >>ROOT/log 2>&1 &
  echo $! >ROOT/pid
  for _ in $(seq 600); do
    curl --silent --fail --output /dev/null "http://127.0.0.1:$PORT/health" && exit 0
    kill -0 "$(cat ROOT/pid)" || exit 1
    sleep 0.1
  done
  exit 1
  ;;
esac
`

// TestDebianPackage installs, upgrades and rolls back by dpkg itself, with the packages that are released and the real
// program. Only systemd is a stand-in, and the package's files go to a folder.
func TestDebianPackage(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	for _, needed := range []string{"dpkg", "curl"} {
		tooltest.Program(t, needed)
	}
	if os.Geteuid() != 0 {
		tooltest.Unable(t, "dpkg installs as root")
	}
	root, work := t.TempDir(), t.TempDir()
	write := func(path, content string) { t.Helper(); write(t, path, content) }
	run := func(environ []string, name string, args ...string) (string, error) {
		return run(t, "", environ, name, args...)
	}
	for _, name := range []string{"monitor-gateway.service", "monitor-gateway-watch.service"} {
		write(filepath.Join(work, name), string(must.Get(os.ReadFile(name))(t)))
	}
	write(filepath.Join(work, "changelog.gz"), "")
	pack := func(version, program string) string {
		t.Helper()
		deb := filepath.Join(work, version+".deb")
		must.Get(run([]string{"WORK=" + work, "PROGRAM=" + program, "ARCHITECTURE=" + runtime.GOARCH, "VERSION=" + version, "CGO_ENABLED=0", "GOFLAGS=-trimpath"},
			"go", "run", nfpm(t), "package", "--config", "nfpm.yaml", "--packager", "deb", "--target", deb))(t)
		return deb
	}
	build := func(version string) string {
		t.Helper()
		program := filepath.Join(work, version)
		must.Do(t, processtest.Build(t.Context(), program, "coldaisle.dev/edge-gateway", version))
		return program
	}
	first, second := build("1.0.0"), build("2.0.0")
	// The real program, by whose settings it does not serve.
	third := filepath.Join(work, "3.0.0")
	write(third, "#!/bin/sh\n[ $# = 0 ] || exec "+second+" \"$@\"\nPORT=none exec "+second+"\n")

	write(filepath.Join(root, "bin/systemctl"), strings.ReplaceAll(systemctl, "ROOT", root))
	write(filepath.Join(root, "run/systemd/system/none"), "")
	write(filepath.Join(root, "var/lib/dpkg/status"), "")
	t.Cleanup(func() { _ = exec.Command(root+"/bin/systemctl", "disable", "--now").Run() })
	address := "http://127.0.0.1:" + strconv.Itoa(tooltest.FreePort(t))
	environ := []string{
		"PATH=" + root + "/bin:" + os.Getenv("PATH"), "PORT=" + address[len("http://127.0.0.1:"):], "MDNS=false",
		"PROJECT_ID=site", "PUBSUB_EMULATOR_HOST=127.0.0.1:9",
	}
	dpkg := func(args ...string) error {
		t.Helper()
		output, err := run(environ, "dpkg", append([]string{
			"--instdir=" + root, "--admindir=" + root + "/var/lib/dpkg", "--log=" + root + "/dpkg.log", "--force-script-chrootless,depends,confold",
		}, args...)...)
		t.Logf("%q: %v\n%s", args, err, output)
		return err
	}
	install := func(deb string) error { return dpkg("--install", deb) }
	serves := func(version string) {
		t.Helper()
		health, err := run(nil, "curl", "--silent", address+"/health")
		if err != nil || !strings.Contains(health, fmt.Sprintf("%q", version)) {
			log, _ := os.ReadFile(filepath.Join(root, "log"))
			t.Fatalf("want version %s: %v %s\n%s", version, err, health, log)
		}
	}
	must.Do(t, install(pack("1.0.0", first)))
	// The site sets it up, and starts it.
	write(filepath.Join(root, "etc/monitor-gateway/environment"), "PROJECT_ID=site\n")
	must.Get(run(environ, root+"/bin/systemctl", "restart", "monitor-gateway.service"))(t)
	serves("1.0.0")
	const reading = `{"id":"a1","node_id":"n1","temperature":21.5,"humidity":40}`
	answer := must.Get(run(nil, "curl", "--silent", "--data", reading, address+"/api/v1/message"))(t)
	must.Contain(t, "the answer", answer, `"kept":true`)
	must.Do(t, install(pack("2.0.0", second)))
	serves("2.0.0")
	must.Equal(t, "a version that is not well is installed", false, install(pack("3.0.0", third)) == nil)
	serves("2.0.0")
	must.Equal(t, "it is recorded as installed, while another one serves", false, dpkg("--configure", "-a") == nil)
	serves("2.0.0")
	must.Contain(t, "health", must.Get(run(nil, "curl", "--silent", address+"/health"))(t), `"readings":1`)
	must.Equal(t, "the settings", "PROJECT_ID=site\n", string(must.Get(os.ReadFile(filepath.Join(root, "etc/monitor-gateway/environment")))(t)))
	must.Do(t, dpkg("--purge", "monitor-gateway"))
	for _, path := range []string{"etc/monitor-gateway", "var/lib/monitor-gateway", "var/lib/monitor-gateway.previous", "usr/bin/monitor-gateway"} {
		_, err := os.Stat(filepath.Join(root, path))
		must.Fail(t, path+" after a purge", err, fs.ErrNotExist)
	}
}

// nfpm is what package.sh packs with.
func nfpm(t *testing.T) string {
	t.Helper()
	script := must.Get(os.ReadFile("package.sh"))(t)
	_, after, _ := strings.Cut(string(script), "\nnfpm=")
	name, _, _ := strings.Cut(after, "\n")
	return name
}
