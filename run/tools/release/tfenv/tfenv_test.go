package tfenv_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"coldaisle.dev/run/tools/release/tfenv"
	"coldaisle.dev/shared/must"
)

const configuration = "../../../../terraform"

func TestRead(t *testing.T) {
	t.Parallel()
	components := tfenv.Read(t, configuration, "-x")
	must.Equal(t, "components", tfenv.Components(), slices.Sorted(maps.Keys(components)))
	detect := components["detect"].Environment
	for name, want := range map[string]string{
		"PROJECT_ID": tfenv.Project, "DB_USER": "coldaisle-detect-x@stand-in.iam", "DB_PRIVATE_IP": "true",
		"DB_MAX_CONNS": "4", "ALERT_TOPIC": tfenv.AlertTopic, "DEAD_LETTER_TOPIC": "projects/stand-in/topics/data-of-stand-in-dead-letter",
		"MAX_ALLOWED_TEMP": "50", "MODEL_BUCKET": tfenv.Bucket,
	} {
		must.Equal(t, "detect's "+name, want, detect[name])
	}
	if users := components["migrate"].Environment["DB_USERS"]; strings.Count(users, "=") != 5 || !strings.Contains(users, "api=coldaisle-api-x@stand-in.iam") {
		t.Errorf("DB_USERS is %q", users)
	}
	if got := components["api"].Environ("key"); !slices.Contains(got, "SECRET_KEY=key") || len(components["ingest"].Secrets) != 0 {
		t.Errorf("the API runs with %q, ingest's secrets are %q", got, components["ingest"].Secrets)
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
	must.Equal(t, "the same", []string(nil), tfenv.Mismatches(t, same, &settings))
	renamed := tfenv.Component{Environment: map[string]string{"PROJECT": "p"}, Secrets: []string{"TOPIC"}}
	want := []string{"PROJECT_ID is required and not set", "PROJECT is set and nothing reads it"}
	must.Equal(t, "renamed", want, tfenv.Mismatches(t, renamed, &settings))
}
