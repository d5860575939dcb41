package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

const root = "../.."

// build is what of Cloud Build's schema cloudbuild.yaml uses: anything else in it
// is refused.
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
	content, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func parsed(t *testing.T) build {
	t.Helper()
	var b build
	decoder := yaml.NewDecoder(strings.NewReader(read(t, "cloudbuild.yaml")))
	decoder.KnownFields(true)
	if err := decoder.Decode(&b); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestOrder wants the image and the archives before the plan, the migration
// before traffic moves, and the way back last.
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
	want := []string{"dashboard", "test", "lint", "image", "archives", "before", "plan", "migrate", "apply", "first-migration", "smoke", "roll-back"}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	// What changes traffic leads on to the step that goes back, nothing else.
	if diff := cmp.Diff([]string{"apply", "first-migration", "smoke"}, mayFail); diff != "" {
		t.Errorf("steps that may fail (-want +got):\n%s", diff)
	}
	if !b.Options.AutomapSubstitutions || !strings.Contains(b.ServiceAccount, "/coldaisle-deployer@") {
		t.Errorf("runs as %s, substitutions in the environment: %t", b.ServiceAccount, b.Options.AutomapSubstitutions)
	}
}

// TestScripts has a shell read each script, and looks for every variable,
// program, target and file that it names.
func TestScripts(t *testing.T) {
	t.Parallel()
	b := parsed(t)
	makefile := read(t, "Makefile")
	variables := read(t, "terraform/variables.tf")
	outputs := read(t, "terraform/outputs.tf")
	for _, s := range b.Steps {
		t.Run(s.ID, func(t *testing.T) {
			t.Parallel()
			first, _, _ := strings.Cut(s.Script, "\n")
			bash := strings.HasSuffix(first, "bash") && strings.Contains(s.Script, "set -euo pipefail\n")
			if posix := strings.HasSuffix(first, "/sh") && strings.Contains(s.Script, "set -eu\n"); !bash && !posix {
				t.Errorf("begins %q, or goes on after a failure", first)
			}
			arguments := []string{"-n"}
			if !bash {
				arguments = []string{"--posix", "-n"}
			}
			parse := exec.CommandContext(t.Context(), "bash", arguments...)
			parse.Stdin = strings.NewReader(s.Script)
			if output, err := parse.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, output)
			}
			for _, name := range found(s.Script, `\$(_[A-Z]+)`) {
				if _, ok := b.Substitutions[name]; !ok {
					t.Errorf("no substitution %s", name)
				}
			}
			for _, target := range found(s.Script, `(?m)^make ([a-z-]+)`) {
				if !strings.Contains(makefile, "\n"+target+":") {
					t.Errorf("no target %s", target)
				}
			}
			for _, path := range slices.Concat(found(s.Script, `go run \./(\S+)`), found(s.Script, `(?m)^(\.ci/\S+|run/\S+)`)) {
				if _, err := os.Stat(filepath.Join(root, path)); err != nil {
					t.Error(err)
				}
			}
			for _, variable := range found(s.Script, `-var "?([a-z_]+)=`) {
				if !strings.Contains(variables, `variable "`+variable+`"`) {
					t.Errorf("terraform has no variable %s", variable)
				}
			}
			for _, output := range found(s.Script, `terraform output -raw ([a-z_]+)`) {
				if !strings.Contains(outputs, `output "`+output+`"`) {
					t.Errorf("terraform has no output %s", output)
				}
			}
			for _, flag := range found(s.Script, `go run \./run/image.* -([a-z]+) `) {
				if !strings.Contains(read(t, "run/image/main.go"), `"`+flag+`"`) {
					t.Errorf("run/image has no flag %s", flag)
				}
			}
		})
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
	cloudBuild := read(t, "cloudbuild.yaml")
	for _, name := range []struct{ here, there, file string }{
		{"jobs execute migrate ", `name                = "migrate"`, "terraform/modules/api/main.tf"},
		{"metadata.name=api'", `name                = "api"`, "terraform/modules/api/main.tf"},
		{"pkg.dev/$PROJECT_ID/coldaisle\"", `name        = "coldaisle"`, "terraform/main.tf"},
		{"$PROJECT_ID-terraform-state\"", `"${var.project_id}-terraform-state"`, "terraform/bootstrap/main.tf"},
		{`prefix = "coldaisle"`, `prefix = "coldaisle"`, "terraform/bootstrap/outputs.tf"},
		{"/coldaisle-deployer@", `"coldaisle-deployer"`, "terraform/bootstrap/main.tf"},
	} {
		if !strings.Contains(cloudBuild, name.here) {
			t.Errorf("cloudbuild.yaml says nothing of %s", name.here)
		}
		if !strings.Contains(read(t, name.file), name.there) {
			t.Errorf("%s does not say %s", name.file, name.there)
		}
	}
}
