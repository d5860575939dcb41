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
	detect := components["detect"]
	for name, want := range map[string]string{
		"PROJECT_ID": tfenv.Project, "DB_USER": "coldaisle-detect-x@stand-in.iam", "DB_PRIVATE_IP": "true",
		"DB_MAX_CONNS": "4", "ALERT_TOPIC": tfenv.AlertTopic, "DEAD_LETTER_TOPIC": "projects/stand-in/topics/data-of-stand-in-dead-letter",
		"MAX_ALLOWED_TEMP": "50", "MODEL_BUCKET": tfenv.Bucket,
	} {
		must.Hold(t, slices.Contains(detect, name+"="+want), "detect's %s is not %s: %q", name, want, detect)
	}
	migrate := components["migrate"]
	at := slices.IndexFunc(migrate, func(variable string) bool { return strings.HasPrefix(variable, "DB_USERS=") })
	if users := migrate[at]; strings.Count(users, "=") != 6 || !strings.Contains(users, "api=coldaisle-api-x@stand-in.iam") {
		t.Error(users)
	}
	if api, ingest := components["api"], components["ingest"]; !slices.Contains(api, "SECRET_KEY=") || slices.Contains(ingest, "SECRET_KEY=") {
		t.Errorf("the API runs with %q, ingest with %q", api, ingest)
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
	must.Equal(t, "the same", []string(nil), tfenv.Mismatches(t, []string{"PROJECT_ID=p"}, &settings))
	want := []string{"PROJECT_ID is required and not set", "PROJECT is set and nothing reads it"}
	must.Equal(t, "renamed", want, tfenv.Mismatches(t, []string{"PROJECT=p", "TOPIC="}, &settings))
}
