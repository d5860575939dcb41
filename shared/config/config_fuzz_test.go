package config_test

import (
	"strings"
	"testing"

	"coldaisle.dev/shared/config"
	"coldaisle.dev/shared/must"
)

// FuzzLoad loads any text as settings: it is taken within its rules, or refused
// in lines that name the setting and never repeat what may be a secret.
func FuzzLoad(f *testing.F) {
	f.Add("project", "8080", "50", "5ms")
	f.Add("", "99999", "NaN", "-1h")
	f.Add("p\nq", "0x10", "1e999", "9999999999999h")
	f.Fuzz(func(t *testing.T, project, port, limit, linger string) {
		loaded, err := config.Load[settings]([]string{"PROJECT_ID=" + project, "PORT=" + port, "MAX_ALLOWED_TEMP=" + limit, "LINGER=" + linger})
		must.Hold(t, err != nil || (loaded.Project != "" && loaded.Port >= 1 && loaded.Port <= 65535),
			"%+v was taken", loaded)
		const secret = "s3cr3t"
		_, err = config.Load[settings]([]string{"PROJECT_ID=" + project, "PORT=" + secret + port, "MAX_ALLOWED_TEMP=" + secret + limit, "LINGER=" + secret + linger})
		must.Hold(t, err != nil && !strings.Contains(err.Error(), secret), "refused as %v", err)
		for line := range strings.Lines(err.Error()) {
			must.Hold(t, strings.TrimSpace(line) != "", "an empty line in %q", err)
		}
	})
}
