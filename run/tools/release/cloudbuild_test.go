package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"coldaisle.dev/shared/must"
)

const root = "../../.."

// build is what of Cloud Build's schema cloudbuild.yaml uses: anything else in it is refused.
type build struct {
	ServiceAccount string            `yaml:"serviceAccount"`
	Timeout        string            `yaml:"timeout"`
	Substitutions  map[string]string `yaml:"substitutions"`
	Options        struct {
		Logging              string              `yaml:"logging"`
		MachineType          string              `yaml:"machineType"`
		AutomapSubstitutions bool                `yaml:"automapSubstitutions"`
		Volumes              []map[string]string `yaml:"volumes"`
		Env                  []string            `yaml:"env"`
	} `yaml:"options"`
	Steps []step `yaml:"steps"`
}

type step struct {
	ID           string `yaml:"id"`
	Name         string `yaml:"name"`
	Script       string `yaml:"script"`
	AllowFailure bool   `yaml:"allowFailure"`
}

func read(t *testing.T, path string) string {
	t.Helper()
	return string(must.Get(os.ReadFile(filepath.Join(root, path)))(t))
}

// write writes files and programs into a folder.
func write(t *testing.T, folder string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(folder, name)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must.Do(t, os.WriteFile(path, []byte(text), 0o700))
	}
}

// parsed is the release, or another build of these files.
func parsed(t *testing.T, file ...string) build {
	t.Helper()
	var b build
	decoder := yaml.NewDecoder(strings.NewReader(read(t, append(file, "cloudbuild.yaml")[0])))
	decoder.KnownFields(true)
	must.Do(t, decoder.Decode(&b))
	return b
}

// TestOrder wants what takes long before the lock, the plan before any change, the
// migration before traffic moves, and the end last, whatever came before it.
func TestOrder(t *testing.T) {
	t.Parallel()
	b := parsed(t)
	var order, mayFail []string
	for _, s := range b.Steps {
		order = append(order, s.ID)
		if s.AllowFailure {
			mayFail = append(mayFail, s.ID)
		}
	}
	want := []string{"checked", "image", "archives", "lock", "before", "plan", "migrate", "apply", "grant", "smoke", "synthetic", "finish"}
	must.Equal(t, "steps", want, order)
	// Who has the lock comes to the step that gives it back.
	must.Equal(t, "steps that may fail", []string{"before", "plan", "migrate", "apply", "grant", "smoke", "synthetic"}, mayFail)
	must.Equal(t, "substitutions are in the environment", true, b.Options.AutomapSubstitutions)
	must.Contain(t, "the build's account", b.ServiceAccount, "/coldaisle-deployer@")

	// A build that runs out of time is ended without its last step, and nothing goes back: it
	// has an hour beside all waits and both migrations.
	least := time.Hour
	for _, wait := range []struct{ file, seconds string }{
		{"run/tools/release/checked", `CHECKED_WAIT:-(\d+)`},
		{"run/tools/release/lock", `LOCK_WAIT:-(\d+)`},
		{"terraform/modules/api/main.tf", `timeout +?= "(1\d{3})s"`},
		{"terraform/modules/api/main.tf", `timeout +?= "(1\d{3})s"`},
	} {
		least += must.Get(time.ParseDuration(found(read(t, wait.file), wait.seconds)[0] + "s"))(t)
	}
	given := must.Get(time.ParseDuration(b.Timeout))(t)
	must.Hold(t, given >= least, "a release has %v, and may need %v", given, least)

	// What the repository's dependencies bring along runs as somebody who sees nothing.
	b, order = parsed(t, ".ci/checks.yaml"), nil
	for _, s := range b.Steps {
		order = append(order, s.ID)
		must.Equal(t, s.ID+" may fail", false, s.AllowFailure)
	}
	must.Equal(t, "steps of the checks", []string{"sources", "dashboard", "test", "lint", "terraform", "hand-over"}, order)
	must.Contain(t, "the account of the checks", b.ServiceAccount, "/coldaisle-checks@")
	for _, s := range parsed(t).Steps {
		if regexp.MustCompile(`\b(npm|node|make|test|lint)\b`).MatchString(strings.ReplaceAll(s.Script, "smoke test", "")) {
			t.Errorf("%s builds or tests as the deployer", s.ID)
		}
	}
}

// scripts are those of cloudbuild.yaml, of this folder, and what a step's shell runs, by name.
func scripts(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, file := range []string{"cloudbuild.yaml", ".ci/checks.yaml"} {
		for _, s := range parsed(t, file).Steps {
			all[file+" "+s.ID] = s.Script
		}
	}
	all[".ci/terraform"] = read(t, ".ci/terraform")
	for _, entry := range must.Get(os.ReadDir("."))(t) {
		if !entry.IsDir() && filepath.Ext(entry.Name()) == "" {
			all[entry.Name()] = read(t, "run/tools/release/"+entry.Name())
		}
	}
	return all
}

// TestScripts has a shell read each script, and looks for every variable, program, target and file that it names.
func TestScripts(t *testing.T) {
	t.Parallel()
	b := parsed(t)
	makefile := read(t, "Makefile")
	variables := read(t, "terraform/variables.tf")
	outputs := read(t, "terraform/outputs.tf") + read(t, "terraform/bootstrap/outputs.tf")
	for name, script := range scripts(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, _, _ := strings.Cut(script, "\n")
			bash := strings.HasSuffix(first, "bash") && strings.Contains(script, "set -euo pipefail\n")
			posix := strings.HasSuffix(first, "/sh") && strings.Contains(script, "set -eu\n")
			must.Hold(t, bash || posix, "begins %q, or goes on after a failure", first)
			arguments := []string{"-n"}
			if !bash {
				arguments = []string{"--posix", "-n"}
			}
			parse := exec.CommandContext(t.Context(), "bash", arguments...)
			parse.Stdin = strings.NewReader(script)
			output, err := parse.CombinedOutput()
			must.Hold(t, err == nil, "%v\n%s", err, output)
			for _, name := range found(script, `\$(_[A-Z]+)`) {
				_, known := b.Substitutions[name]
				must.Equal(t, "there is a substitution "+name, true, known)
			}
			for _, target := range found(script, `(?m)^make ([a-z-]+)`) {
				must.Equal(t, "there is a target "+target, true, strings.Contains(makefile, "\n"+target+":"))
			}
			for _, path := range slices.Concat(found(script, `go run \./(\S+)`), found(script, `(?m)^(?:CI=true )?(\.ci/\S+|run/\S+)`)) {
				must.Get(os.Stat(filepath.Join(root, path)))(t)
			}
			for _, variable := range found(script, `-var "?([a-z_]+)=`) {
				must.Equal(t, "terraform has a variable "+variable, true, strings.Contains(variables, `variable "`+variable+`"`))
			}
			for _, output := range found(script, `terraform output -raw ([a-z_]+)`) {
				must.Equal(t, "terraform has an output "+output, true, strings.Contains(outputs, `output "`+output+`"`))
			}
			for _, flag := range found(script, `go run \./run/tools/release/image.* -([a-z]+) `) {
				has := strings.Contains(read(t, "run/tools/release/image/main.go"), `"`+flag+`"`)
				must.Equal(t, "run/tools/release/image has a flag "+flag, true, has)
			}
		})
	}
}

// TestSubstitutionsAreRead wants none that a build does not read: Cloud Build may refuse the build.
func TestSubstitutionsAreRead(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"cloudbuild.yaml", ".ci/checks.yaml"} {
		b := parsed(t, file)
		for name := range b.Substitutions {
			reads := func(s step) bool { return strings.Contains(s.Script, "$"+name) }
			must.Equal(t, file+": a step reads "+name, true, slices.ContainsFunc(b.Steps, reads))
		}
	}
	for _, page := range []string{"cloudbuild.yaml", "docs/deploy.md", "docs/operations.md"} {
		must.Equal(t, page, []string(nil), found(read(t, page), `(checks\.yaml[^\n]* --substitutions [^\n]*)`))
	}
}

// found is what a pattern's first group matches.
func found(text, pattern string) []string {
	var all []string
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		all = append(all, match[1])
	}
	return all
}

// TestNamesAreTerraforms compares names that the scripts share with terraform.
func TestNamesAreTerraforms(t *testing.T) {
	t.Parallel()
	for _, name := range []struct{ script, here, there, file string }{
		{"migrate", "jobs execute migrate ", `name                = "migrate"`, "terraform/modules/api/main.tf"},
		{"migrate", "--args migrate,expand", `args  = ["migrate"]`, "terraform/modules/api/main.tf"},
		{"finish", "!= api ]]", `name                = "api"`, "terraform/modules/api/main.tf"},
		{"finish", `"addr":"module.api.`, `module "api" {`, "terraform/main.tf"},
		{"finish", `"addr":"module.function[`, `module "function" {`, "terraform/main.tf"},
		{"cloudbuild.yaml image", "pkg.dev/$PROJECT_ID/coldaisle\"", `name        = "coldaisle"`, "terraform/main.tf"},
		{"bootstrap", "state=$project-terraform-state", `"${var.project_id}-terraform-state"`, "terraform/bootstrap/main.tf"},
		{"checked", "-checked/", `"${var.project_id}-checked"`, "terraform/bootstrap/main.tf"},
		{"apply", "gs://$project-function-archives/", `"${var.project_id}-function-archives"`, "terraform/modules/build/main.tf"},
		{"plan", "$project-terraform-state\"", `"${var.project_id}-terraform-state"`, "terraform/bootstrap/main.tf"},
		{"lock", "gs://$project-terraform-state/", `"${var.project_id}-terraform-state"`, "terraform/bootstrap/main.tf"},
		{"finish", "gs://$project-terraform-state/release/last", "gs://$project-terraform-state/release/last", "run/tools/release/lock"},
		{"plan", `prefix = "coldaisle"`, `prefix = "coldaisle"`, "terraform/bootstrap/outputs.tf"},
	} {
		must.Equal(t, name.script+" says "+name.here, true, strings.Contains(scripts(t)[name.script], name.here))
		must.Equal(t, name.file+" says "+name.there, true, strings.Contains(read(t, name.file), name.there))
	}
	must.Contain(t, "the account of the build", parsed(t).ServiceAccount, "/coldaisle-deployer@")
	made := strings.Contains(read(t, "terraform/bootstrap/main.tf"), `"coldaisle-deployer"`)
	must.Equal(t, "terraform makes it", true, made)
}

// TestWaitingIsNotSlow wants each operation that waits to be left out of the API's latency.
func TestWaitingIsNotSlow(t *testing.T) {
	t.Parallel()
	waits := 0
	for _, file := range must.Get(filepath.Glob(root + "/run/api/*/*.go"))(t) {
		for operation := range strings.SplitSeq(string(must.Get(os.ReadFile(file))(t)), "rest.Operation{") {
			operation, _, _ = strings.Cut(operation, "\n\t}")
			if path := found(operation, `Path: "([^"]+)"`); len(path) == 1 && strings.Contains(operation, "\n\t\tWait: ") {
				waits++
				if out := `httpRequest.requestUrl!=\"` + path[0] + `\"`; !strings.Contains(read(t, "terraform/modules/monitoring/main.tf"), out) {
					t.Errorf("%s would count as slow: the metric's filter lacks %s", path[0], out)
				}
			}
		}
	}
	must.Equal(t, "operations that wait", 1, waits)
}

// TestNightlyTellsOfEachStep has steps of the nightly checks fail: the others run all the
// same, the end says what came of each, and the whole fails.
func TestNightlyTellsOfEachStep(t *testing.T) {
	t.Parallel()
	// nightly runs the script with stand-ins that fail when they are called with these words.
	nightly := func(failing string, steps ...string) (string, error) {
		folder := t.TempDir()
		standIn := "#!/usr/bin/env bash\n[[ \"${0##*/} $*\" != *" + failing + "* ]]\n"
		write(t, folder, map[string]string{
			".ci/nightly": read(t, ".ci/nightly"), ".ci/install": standIn, ".ci/fuzz": standIn, ".ci/bigquery": standIn, ".ci/buildpack": standIn, ".ci/provider": standIn, "bin/go": standIn, "bin/make": standIn, "bin/apt-get": standIn,
		})
		c := exec.CommandContext(t.Context(), filepath.Join(folder, ".ci/nightly"), steps...)
		c.Env = append(os.Environ(), "PATH="+filepath.Join(folder, "bin")+":"+os.Getenv("PATH"))
		output, err := c.CombinedOutput()
		_, report, _ := strings.Cut(string(output), "--- The nightly checks\n")
		return regexp.MustCompile(`, \d+ s`).ReplaceAllString(report, ""), err
	}
	const good = "install: passed\nlint: passed\ntests: passed\nrehearsal: passed\nfuzz: passed\nsql: passed\nbigquery: passed\nbuildpack: passed\nprovider: passed\nredelivery: passed\nmodel: passed\nmutation: passed\nincidents: passed\nsoak: passed\nchaos: passed\nkills: passed\npair: passed\ntelegraf: passed\nbench: passed\nbuild: passed\npage: passed\nvulnerabilities: passed\n"
	if report, err := nightly("nothing"); err != nil || report != good {
		t.Errorf("%v\n%s", err, report)
	}
	for failing, step := range map[string]string{"fuzz": "fuzz", "'make soak'": "soak", "govulncheck": "vulnerabilities"} {
		if report, err := nightly(failing); err == nil || report != strings.Replace(good, step+": passed", step+": FAILED", 1) {
			t.Errorf("%s fails: %v\n%s", failing, err, report)
		}
	}
	if report, err := nightly("fuzz", "lint", "soak"); err != nil || report != "lint: passed\nsoak: passed\n" {
		t.Errorf("two steps: %v\n%s", err, report)
	}
	_, err := nightly("nothing", "unknown")
	must.Equal(t, "a step that does not exist passes", false, err == nil)
}

// TestProvidersAreLocked runs the check of the configuration where a registry answers, by a stand-in for terraform: it
// complains when the providers' checksums are not kept, and lets init choose no others when they are.
func TestProvidersAreLocked(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	const terraform = `#!/bin/sh
case "$*" in
  *" init -lockfile=readonly "*) [ -e "${1#-chdir=}/.terraform.lock.hcl" ] ;;
  *" init "*) [ ! -e "${1#-chdir=}/.terraform.lock.hcl" ] ;;
  *" test "*) ! grep -q '"allUsers"' "${1#-chdir=}/modules/function/main.tf" 2>/dev/null || { cut -f4 run/tools/release/testdata/sabotages; exit 1; } ;;
esac
`
	write(t, folder, map[string]string{
		".ci/terraform": read(t, ".ci/terraform"), "bin/terraform": terraform, "terraform/tests/pipeline.tftest.hcl": "", "terraform/bootstrap/main.tf": "",
		"run/tools/release/testdata/sabotages": read(t, "run/tools/release/testdata/sabotages"),
	})
	for path, text := range readSources(t) {
		if strings.HasPrefix(path, "terraform/modules/") {
			write(t, folder, map[string]string{path: text})
		}
	}
	check := func() (string, error) {
		c := exec.CommandContext(t.Context(), filepath.Join(folder, ".ci/terraform"))
		c.Env = append(os.Environ(), "CI=true", "PROVIDERS=locked", "TERRAFORM_CHECK=", "PATH="+filepath.Join(folder, "bin")+":"+os.Getenv("PATH"))
		output, err := c.CombinedOutput()
		return string(output), err
	}
	for _, lock := range []string{"terraform/.terraform.lock.hcl", "terraform/bootstrap/.terraform.lock.hcl"} {
		output, err := check()
		must.Hold(t, err != nil && strings.Contains(output, lock+" is missing"), "without %s: %v\n%s", lock, err, output)
		must.Do(t, os.WriteFile(filepath.Join(folder, lock), nil, 0o600))
	}
	if output, err := check(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}
