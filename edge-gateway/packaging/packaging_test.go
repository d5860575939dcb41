// Package packaging_test builds the gateway for every machine it runs on, and
// holds the systemd unit to systemd's own judgement.
package packaging_test

import (
	"cmp"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/tooltest"
)

// run runs a program in a folder, with variables beside the test's own, and returns what it prints.
func run(t *testing.T, dir string, environ []string, name string, args ...string) (string, error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir, command.Env = dir, append(os.Environ(), environ...)
	output, err := command.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %q: %w\n%s", name, args, err, output)
	}
	return string(output), err
}

// write makes a file that can be run, and its folder.
func write(t *testing.T, path, content string) {
	t.Helper()
	must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o700)))
}

// holds looks for a text in a file.
func holds(t *testing.T, path, text string) {
	t.Helper()
	must.Contain(t, path, string(must.Get(os.ReadFile(path))(t)), text)
}

// machine is one that the gateway is built for: how build.sh is told, what Go calls it, and
// Debian's and the package's names of it.
type machine struct{ target, built, arch, arm, debian, pack string }

var machines = []machine{
	{"linux/amd64", "amd64", "amd64", "", "amd64", "amd64"},
	{"linux/arm64", "arm64", "arm64", "", "arm64", "arm64"},
	{"linux/arm/7", "armv7", "arm", "7", "armhf", "armhf"},
	{"linux/arm/6", "armv6", "arm", "6", "armhf", "armv6"},
}

// TestBuild builds and packs what can be installed on this machine, and at night for all
// machines: for each of the others everything is compiled once more, which takes minutes.
func TestBuild(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	bash := tooltest.Program(t, "bash")
	dir := t.TempDir()
	arguments, built := []string{"build.sh", dir, "v9.8.7-test"}, machines
	if !tooltest.Nightly() {
		built = slices.DeleteFunc(slices.Clone(machines), func(m machine) bool { return m.arch != runtime.GOARCH })
		for _, m := range built {
			arguments = append(arguments, m.target)
		}
	}
	must.Get(run(t, "", nil, bash, arguments...))(t)
	must.Equal(t, "programs", len(built), len(must.Get(os.ReadDir(dir))(t)))
	for _, m := range built {
		path := filepath.Join(dir, "monitor-gateway-linux-"+m.built)
		info := must.Get(buildinfo.ReadFile(path))(t)
		made := map[string]string{}
		for _, setting := range info.Settings {
			made[setting.Key] = setting.Value
		}
		must.Equal(t, m.target, []string{"linux", m.arch, m.arm, "0"}, []string{made["GOOS"], made["GOARCH"], made["GOARM"], made["CGO_ENABLED"]})
		standsAlone(t, path)
	}
	packs(t, dir, "v9.8.7-test", built)
	native := filepath.Join(dir, "monitor-gateway-"+runtime.GOOS+"-"+runtime.GOARCH)
	if _, err := os.Stat(native); err != nil {
		return // none of these runs here
	}
	must.Equal(t, "version prints", "monitor-gateway v9.8.7-test\n", string(must.Get(exec.CommandContext(t.Context(), native, "version").Output())(t)))
}

// packs makes the packages of what was built, and looks into them with Debian's own program.
func packs(t *testing.T, dir, version string, built []machine) {
	t.Helper()
	deb, err := exec.LookPath("dpkg-deb")
	if err != nil {
		t.Log("no dpkg-deb: the packages are not made")
		return
	}
	signer := filepath.Join(t.TempDir(), "owner")
	must.Get(run(t, "", nil, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", signer))(t)
	arguments := []string{dir, version}
	for _, m := range built {
		arguments = append(arguments, m.built)
	}
	must.Get(run(t, "", []string{"SIGNING_KEY=" + signer}, "./package.sh", arguments...))(t)
	holds(t, filepath.Join(dir, "SHA256SUMS.sig"), "-----BEGIN SSH SIGNATURE-----")
	for _, m := range built {
		path := filepath.Join(dir, "monitor-gateway_9.8.7-test_"+m.pack+".deb")
		must.Equal(t, m.pack, "monitor-gateway "+m.debian, must.Get(run(t, "", nil, deb, "--show", "--showformat=${Package} ${Architecture}", path))(t))
		root := t.TempDir()
		must.Get(run(t, "", nil, deb, "--raw-extract", path, root))(t)
		for file, contains := range map[string]string{
			"usr/lib/systemd/system/monitor-gateway.service": "\nExecStart=/usr/bin/monitor-gateway\n", "usr/lib/systemd/system/monitor-gateway.socket": "ListenStream=8080",
			"usr/lib/systemd/system/monitor-gateway-watch.service": "\nExecStart=/usr/bin/monitor-gateway watch\n",
			"usr/lib/systemd/system/monitor-gateway-live.socket":   "SocketGroup=monitor-gateway-watch", "usr/lib/sysusers.d/monitor-gateway-watch.conf": "u monitor-gateway-watch",
			"usr/share/doc/monitor-gateway/examples/watch.yaml": "steps:",
			"etc/monitor-gateway/environment":                   "PROJECT_ID=", "DEBIAN/conffiles": "/etc/monitor-gateway/environment", "DEBIAN/postinst": "put back",
		} {
			holds(t, filepath.Join(root, file), contains)
		}
	}
	t.Run("lintian", func(t *testing.T) {
		packages := must.Get(filepath.Glob(filepath.Join(dir, "*.deb")))(t)
		must.Equal(t, "packages", len(built), len(packages))
		// It may be root who runs the tests, and lintian warns of that.
		must.Get(run(t, "", nil, tooltest.Program(t, "lintian"), append([]string{"--no-cfg", "--allow-root", "--fail-on", "error"}, packages...)...))(t)
	})
	for _, m := range built {
		bill := filepath.Join(dir, "monitor-gateway-"+version+"-linux-"+m.built+".cdx.json")
		holds(t, bill, `"purl": "pkg:golang/cloud.google.com/go/pubsub/v2@v`)
	}
	must.Get(run(t, dir, nil, "sha256sum", "--check", "--quiet", "SHA256SUMS"))(t)
}

// TestUpgradeThatFailsIsUndone upgrades a folder by the package's scripts, as dpkg calls them, with a systemd that only
// notes its commands: a new program that is not healthy is replaced by the one before it, with its units, and dpkg
// --configure -a does not record it as installed while another program serves.
func TestUpgradeThatFailsIsUndone(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		tooltest.Skip(t, "the script is for Debian")
	}
	for name, c := range map[string]struct {
		code, project string // exit status of the new program's healthy, and whether the site is set up
		restart       string // exit status of systemctl restart
		active        string // and of is-active
		stays, fails  bool
		restarts      int
	}{
		"the new one is well":         {code: "0", project: "site", restart: "0", active: "true", stays: true, restarts: 1},
		"the new one is not well":     {code: "1", project: "site", restart: "0", active: "true", fails: true, restarts: 2},
		"the new one does not start":  {code: "0", project: "site", restart: "1", active: "true", fails: true, restarts: 2},
		"the site is not set up yet":  {code: "1", restart: "0", active: "true", stays: true},
		"the gateway is switched off": {code: "1", project: "site", restart: "0", active: "false", stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			write := func(path, content string) { t.Helper(); write(t, filepath.Join(root, path), content) }
			read := func(path string) string {
				content, _ := os.ReadFile(filepath.Join(root, path))
				return string(content)
			}
			script := func(path string, args ...string) error {
				environ := []string{"DPKG_ROOT=" + root, "PATH=" + root + "/bin:" + os.Getenv("PATH")}
				output, err := run(t, "", environ, "/bin/sh", append([]string{path}, args...)...)
				t.Logf("%s %q: %v\n%s", path, args, err, output)
				return err
			}
			write("bin/systemctl", "#!/bin/sh\necho \"$@\" >>"+root+"/told\n"+
				"case $1 in restart) exit "+c.restart+";; is-enabled|is-active) "+c.active+";; esac\n")
			write("run/systemd/system/none", "")
			write("etc/monitor-gateway/environment", "PROJECT_ID="+c.project+"\n")
			const program, unit = "usr/bin/monitor-gateway", "usr/lib/systemd/system/monitor-gateway.service"
			write(program, "#!/bin/sh\n# old\nexit 0\n")
			write(unit, "# old")
			must.Do(t, script("deb/preinst.sh", "upgrade", "v1"))
			write(program, "#!/bin/sh\n# new\nexit "+c.code+"\n") // as dpkg unpacks it
			write(unit, "# new")
			for _, by := range []string{"apt", "dpkg --configure -a"} {
				write("told", "")
				must.Equal(t, by+" fails", c.fails, script("install.sh", "configure", "v1") != nil)
				must.Hold(t, strings.Contains(read(program), "# new") == c.stays && (read(unit) == "# new") == c.stays,
					"%s: afterwards the program is %q, the unit %q", by, read(program), read(unit))
				told := read("told")
				if got := strings.Count(told, "restart monitor-gateway.service"); got != c.restarts || strings.Contains(told, "enable --") ||
					strings.Contains(told, "\nstart monitor-gateway-credentials.path") != (c.active == "true") {
					t.Errorf("%s: systemd was told\n%s", by, told)
				}
			}
			left := must.Get(filepath.Glob(filepath.Join(root, "var/lib/monitor-gateway.previous/*")))(t)
			must.Equal(t, fmt.Sprintf("%q remain", left), c.fails, len(left) > 0)
		})
	}
}

// TestPurge holds that a purge leaves nothing of the gateway, and a removal what belongs to the site.
func TestPurge(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, path := range []string{
		"etc/monitor-gateway/google.json", "var/lib/private/monitor-gateway/outbox/enrolment.json", "var/lib/private/monitor-gateway/outbox/0000000000000001.seg",
		"var/lib/monitor-gateway.previous/before/monitor-gateway", "var/lib/monitor-gateway-watch/journal.json", "var/lib/other/kept",
	} {
		write(t, filepath.Join(root, path), "")
	}
	must.Do(t, os.Symlink("private/monitor-gateway", filepath.Join(root, "var/lib/monitor-gateway")))
	left(t, root, "remove", "monitor-gateway monitor-gateway-watch other private")
	left(t, root, "purge", "other private")
	_, err := os.Stat(filepath.Join(root, "etc/monitor-gateway"))
	must.Fail(t, "the settings and keys after a purge", err, fs.ErrNotExist)
	must.Equal(t, "entries left", 0, len(must.Get(os.ReadDir(filepath.Join(root, "var/lib/private")))(t)))
}

// left runs postrm and compares the folders in /var/lib afterwards.
func left(t *testing.T, root, action, want string) {
	t.Helper()
	must.Get(run(t, "", []string{"DPKG_ROOT=" + root}, "/bin/sh", "deb/postrm.sh", action))(t)
	var names []string
	for _, entry := range must.Get(os.ReadDir(filepath.Join(root, "var/lib")))(t) {
		names = append(names, entry.Name())
	}
	must.Equal(t, action+" leaves", want, strings.Join(names, " "))
}

// TestInstall runs install.sh over a folder, with the real ssh-keygen and a systemd that
// only notes what it is told: it installs, upgrades, and undoes an upgrade to a program
// that is not healthy; what is not signed by the given key it does not touch.
func TestInstall(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		tooltest.Skip(t, "the script is for Linux")
	}
	tooltest.Program(t, "ssh-keygen")
	const name = "monitor-gateway-v2-linux-arm64"
	const watches, enrolled = "etc/monitor-gateway/watch.yaml", "var/lib/monitor-gateway/outbox/enrolment.json"
	for title, c := range map[string]struct {
		before, after   string // the program installed
		exit            int    // of the new program's healthy
		key             string // by which the release must be signed; empty for the one that signed it
		tampered, fails bool
		project         string
		has             string // a file of the site
	}{
		"for the first time":           {after: "new", project: "site"},
		"after a removal":              {after: "new", project: "site", has: watches},
		"before the site is set up":    {after: "new", exit: 1},
		"for the first time, not well": {after: "new", project: "site", exit: 1, fails: true},
		"an upgrade":                   {before: "old", after: "new", project: "site"},
		"an upgrade that is not well":  {before: "old", after: "old", project: "site", exit: 1, fails: true},
		"of an enrolled one, not well": {before: "old", after: "old", has: enrolled, exit: 1, fails: true},
		"signed by somebody else":      {before: "old", after: "old", project: "site", key: "other.pub", fails: true},
		"changed after it was signed":  {before: "old", after: "old", project: "site", tampered: true, fails: true},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			root, release := filepath.Join(dir, "root"), filepath.Join(dir, "release")
			write := func(path, content string) { t.Helper(); write(t, path, content) }
			prepare := func(command string, args ...string) {
				t.Helper()
				must.Get(run(t, release, nil, command, args...))(t)
			}
			program := func(label string, exit int) string {
				return fmt.Sprintf("#!/bin/sh\n# %s\n[ \"$1\" = version ] || exit %d\n", label, exit)
			}
			unpacked := filepath.Join(release, name)
			write(filepath.Join(unpacked, "monitor-gateway"), program("new", c.exit))
			write(filepath.Join(unpacked, "monitor-gateway.service"), "# new\n")
			write(filepath.Join(unpacked, "environment.example"), "PROJECT_ID=\n")
			prepare("tar", "-czf", name+".tar.gz", name)
			prepare("sh", "-c", "sha256sum *.tar.gz >SHA256SUMS")
			prepare("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "owner")
			prepare("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "other")
			prepare("ssh-keygen", "-q", "-Y", "sign", "-f", "owner", "-n", "monitor-gateway", "SHA256SUMS")
			if c.tampered {
				prepare("sh", "-c", "echo more >>"+name+".tar.gz")
			}
			installed, unit := filepath.Join(root, "usr/local/bin/monitor-gateway"), filepath.Join(root, "etc/systemd/system/monitor-gateway.service")
			kept := filepath.Join(root, "var/lib/monitor-gateway/outbox/0000000000000001.seg")
			write(kept, "readings")
			if c.before != "" {
				write(installed, program(c.before, 0))
				write(unit, "# "+c.before+"\n")
			}
			if c.project != "" {
				write(filepath.Join(root, "etc/monitor-gateway/environment"), "PROJECT_ID="+c.project+"\n")
			}
			if c.has != "" {
				write(filepath.Join(root, c.has), "{}")
			}
			write(filepath.Join(dir, "bin/systemctl"), "#!/bin/sh\necho \"$@\" >>"+dir+"/told\n")
			install := must.Get(filepath.Abs("install.sh"))(t)
			environ := []string{"MONITOR_GATEWAY_TEST=" + root, "PATH=" + dir + "/bin:" + os.Getenv("PATH")}
			output, err := run(t, release, environ, "/bin/sh", install, name+".tar.gz", cmp.Or(c.key, "owner.pub"))
			must.Hold(t, (err != nil) == c.fails, "ended with %v\n%s", err, output)
			holds(t, installed, "# "+c.after+"\n")
			holds(t, unit, "# "+c.after+"\n")
			must.Equal(t, "the outbox", "readings", string(must.Get(os.ReadFile(kept))(t)))
			settings := must.Get(os.ReadFile(filepath.Join(root, "etc/monitor-gateway/environment")))(t)
			must.Equal(t, "the settings", "PROJECT_ID="+c.project+"\n", string(settings))
			told, _ := os.ReadFile(filepath.Join(dir, "told"))
			on := strings.Contains(string(told), "enable --quiet --now monitor-gateway-watch.service")
			must.Equal(t, "the watch is switched on", c.has == watches, on)
		})
	}
}

// standsAlone checks that a program needs nothing of the machine but its kernel.
func standsAlone(t *testing.T, path string) {
	t.Helper()
	f := must.Get(elf.Open(path))(t)
	defer func() { _ = f.Close() }()
	for _, part := range f.Progs {
		must.Hold(t, part.Type != elf.PT_INTERP && part.Type != elf.PT_DYNAMIC,
			"%s is linked dynamically", filepath.Base(path))
	}
}

// TestThirtyTwoBit runs the outbox's tests as a 32-bit program, as which it runs
// on older Raspberry Pis: what garbles lengths and offsets shows there.
func TestThirtyTwoBit(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		tooltest.Skip(t, "this machine runs no 32-bit programs of its kind")
	}
	output, err := run(t, "", []string{"GOARCH=386", "CGO_ENABLED=0"}, "go", "test", "-short", "../outbox")
	if strings.Contains(output, "exec format error") {
		tooltest.Skip(t, "the kernel runs no 32-bit programs")
	}
	must.Do(t, err)
}

// worstExposure is the mark of systemd-analyze security that the unit may have
// at most, of 100: what remains is that it speaks to the network.
const worstExposure = "20"

// worstWatch is that of the watch, whose commands need more than it does.
const worstWatch = "40"

func TestUnit(t *testing.T) {
	t.Parallel()
	analyze := tooltest.Program(t, "systemd-analyze")
	dir := t.TempDir()
	copied := func(name, was, is string) string {
		t.Helper()
		content := must.Get(os.ReadFile(name))(t)
		if !strings.Contains(string(content), was) {
			t.Fatalf("%s has no line %q", name, was)
		}
		path := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(path, []byte(strings.Replace(string(content), was, is, 1)), 0o600))
		return path
	}
	// systemd looks whether the programs are there.
	unit := copied("monitor-gateway.service", "ExecStart=/usr/local/bin/monitor-gateway\n", "ExecStart=/bin/true\n")
	socket := copied("monitor-gateway.socket", "ListenStream=8080", "ListenStream=8080")
	restart := copied("monitor-gateway-credentials.service", "ExecStart=systemctl ", "ExecStart=/bin/true ")
	watch := copied("monitor-gateway-credentials.path", "PathChanged=/etc/monitor-gateway/google.json", "PathChanged=/etc/monitor-gateway/google.json")
	live := copied("monitor-gateway-live.socket", "Service=monitor-gateway.service", "Service=monitor-gateway.service")
	people := copied("monitor-gateway-watch.service", "ExecStart=/usr/local/bin/monitor-gateway watch\n", "ExecStart=/bin/true\n")
	output, err := run(t, "", nil, analyze, "verify", unit, socket, live, restart, watch, people)
	must.Hold(t, err == nil && output == "", "systemd-analyze verify: %v\n%s", err, output)
	must.Get(run(t, "", nil, analyze, "security", "--offline=true", "--no-pager", "--threshold="+worstExposure, unit))(t)
	must.Get(run(t, "", nil, analyze, "security", "--offline=true", "--no-pager", "--threshold="+worstWatch, people))(t)
}

// TestUnitShowsTheBoot holds that the gateway can read the id of the boot. Without it each start is a boot of its own:
// no kept reading gets a time, and no batch with timestamps is taken. systemd.exec(5): with ProcSubset=pid "all files
// and directories not directly associated with process management and introspection are made invisible".
func TestUnitShowsTheBoot(t *testing.T) {
	t.Parallel()
	content := must.Get(os.ReadFile("monitor-gateway.service"))(t)
	must.Hold(t, !strings.Contains(string(content), "\nProcSubset=pid"), "the unit hides /proc/sys/kernel/random/boot_id")
}

// TestNoUnitIsGivenUp holds that systemd starts each service again however often that was needed.
func TestNoUnitIsGivenUp(t *testing.T) {
	t.Parallel()
	services := must.Get(filepath.Glob("*.service"))(t)
	must.Equal(t, "services", 3, len(services))
	for _, name := range services {
		must.Contain(t, name, string(must.Get(os.ReadFile(name))(t)), "\nStartLimitIntervalSec=0\n")
	}
}

// TestCredentialsMayBeMissing holds that systemd starts the gateway without its credentials. systemd.exec(5): "If a
// credential of the same ID is listed in both LoadCredential= and SetCredential=, the latter will act as default if the
// former cannot be retrieved. In this case not being able to retrieve the credential from the path specified in
// LoadCredential= is not considered fatal.".
func TestCredentialsMayBeMissing(t *testing.T) {
	t.Parallel()
	content := must.Get(os.ReadFile("monitor-gateway.service"))(t)
	for line := range strings.Lines(string(content)) {
		id, _, loads := strings.Cut(strings.TrimPrefix(line, "LoadCredential="), ":")
		if loads && strings.HasPrefix(line, "LoadCredential=") && !strings.Contains(string(content), "\nSetCredential="+id+":") {
			t.Errorf("the gateway does not start without %s", id)
		}
	}
}
