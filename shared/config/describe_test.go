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
