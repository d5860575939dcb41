package tfenv_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"coldaisle.dev/run/tools/release/tfenv"
	"coldaisle.dev/shared/must"
)

const configuration = "../../../../terraform"

func TestRead(t *testing.T) {
	t.Parallel()
	components := must.Get(tfenv.Read(configuration, "-x"))(t)
	must.Equal(t, "components", tfenv.Components(), slices.Sorted(maps.Keys(components)))
	detect := components["detect"].Environment
	for name, want := range map[string]string{
		"PROJECT_ID": tfenv.Project, "DB_USER": "coldaisle-detect-x@stand-in.iam", "DB_PRIVATE_IP": "true",
		"DB_MAX_CONNS": "4", "ALERT_TOPIC": tfenv.AlertTopic, "DEAD_LETTER_TOPIC": "projects/stand-in/topics/data-of-stand-in-dead-letter",
		"MAX_ALLOWED_TEMP": "50", "MODEL_BUCKET": tfenv.Bucket,
	} {
		if detect[name] != want {
			t.Errorf("detect's %s is %q, want %q", name, detect[name], want)
		}
	}
	if users := components["migrate"].Environment["DB_USERS"]; strings.Count(users, "=") != 5 || !strings.Contains(users, "api=coldaisle-api-x@stand-in.iam") {
		t.Errorf("DB_USERS is %q", users)
	}
	if got := components["api"].Environ("key"); !slices.Contains(got, "SECRET_KEY=key") || len(components["ingest"].Secrets) != 0 {
		t.Errorf("the API runs with %q, ingest's secrets are %q", got, components["ingest"].Secrets)
	}
}

// TestReadErrors names what the configuration gets wrong.
func TestReadErrors(t *testing.T) {
	t.Parallel()
	variables := must.Get(os.ReadFile(filepath.Join(configuration, "variables.tf")))(t)
	for name, test := range map[string]struct{ environment, want string }{
		"syntax":         {`locals {`, "read the configuration"},
		"no environment": {`locals { other = 1 }`, "no local environment"},
		"unknown output": {`locals { environment = { api = { A = module.models.pail } } }`, "pail"},
		"circle":         {"locals {\n environment = local.other\n other = local.environment\n}", "an attribute named"},
		"no text":        {`locals { environment = { api = { A = ["x"] } } }`, "A of api"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			for file, content := range map[string][]byte{"variables.tf": variables, "size.tf": nil, "environment.tf": []byte(test.environment)} {
				must.Do(t, os.WriteFile(filepath.Join(folder, file), content, 0o600))
			}
			if _, err := tfenv.Read(folder, ""); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestMismatches(t *testing.T) {
	t.Parallel()
	var settings struct {
		Embedded struct {
			Project string `env:"PROJECT_ID,required"`
		}
		Topic string `env:"TOPIC" envDefault:"t"`
	}
	same := tfenv.Component{Environment: map[string]string{"PROJECT_ID": "p"}}
	if lines, err := tfenv.Mismatches(same, &settings); err != nil || len(lines) != 0 {
		t.Errorf("got %q, %v", lines, err)
	}
	renamed := tfenv.Component{Environment: map[string]string{"PROJECT": "p"}, Secrets: []string{"TOPIC"}}
	lines, err := tfenv.Mismatches(renamed, &settings)
	if diff := cmp.Diff([]string{"PROJECT_ID is required and not set", "PROJECT is set and nothing reads it"}, lines); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
