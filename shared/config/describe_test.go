package config_test

import (
	"testing"

	"coldaisle.dev/shared/config"
	"coldaisle.dev/shared/must"
)

type described struct {
	settings

	Rate float64 `env:"NODE_RATE" envDefault:"50" help:"requests a second"`
	None string
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	want := []config.Setting{
		{Name: "PROJECT_ID", Required: true},
		{Name: "PORT", Default: "8080"},
		{Name: "MAX_ALLOWED_TEMP", Default: "50"},
		{Name: "LINGER", Default: "5ms"},
		{Name: "NODE_RATE", Default: "50", Help: "requests a second"},
	}
	must.Equal(t, "", want, config.Describe[described]())
}

func TestMisspelt(t *testing.T) {
	t.Parallel()
	known := config.Describe[described]()
	for variable, want := range map[string]string{
		"PROJECTID":        "PROJECT_ID",
		"project_id":       "PROJECT_ID",
		"PROJECT-ID":       "PROJECT_ID",
		"PROJCET_ID":       "PROJECT_ID",
		"NODE_RATES":       "NODE_RATE",
		"NODE_RAT":         "NODE_RATE",
		"port":             "PORT",
		"MAX_ALLOWED_TMPS": "MAX_ALLOWED_TEMP",
		"LINGRE":           "LINGER",
		// Other programs' own, and ours as they are.
		"PROJECT_ID":  "",
		"NODE_RATE":   "",
		"NODE_ENV":    "",
		"NODE_PATH":   "",
		"SORT":        "",
		"POST":        "",
		"PATH":        "",
		"MAX":         "",
		"LINGERS_ON":  "",
		"PROJECT_DIR": "",
		"":            "",
	} {
		if got, found := config.Misspelt(variable, known); got != want || found != (want != "") {
			t.Errorf("%s is taken for %q, want %q", variable, got, want)
		}
	}
}
