package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"coldaisle.dev/edge-gateway/enrolment"
	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/config"
)

// installation locates the files of an installed gateway under a root.
type installation struct{ root string }

func (i installation) etc(name string) string {
	return filepath.Join(i.root, "etc", "monitor-gateway", name)
}

func (i installation) outbox() string {
	return filepath.Join(i.root, "var", "lib", "monitor-gateway", "outbox")
}

// settings reads the service's environment file; without one there are none.
func (i installation) settings() []string {
	content, _ := os.ReadFile(i.etc("environment"))
	var assignments []string
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSpace(line)
		name, value, found := strings.Cut(line, "=")
		if found && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, ";") {
			assignments = append(assignments, strings.TrimSpace(name)+"="+strings.Trim(strings.TrimSpace(value), `"'`))
		}
	}
	return assignments
}

// unknown describes the variables of the environment file that are not settings.
//
// The gateway logs them and starts: a misspelt setting has its default, and a gateway
// that does not start loses readings while nobody is on site. A missing required setting, or
// an invalid value, stops it.
func unknown(environ []string, installed installation) []string {
	known := config.Describe[Config]()
	var reported []string
	for _, assignment := range installed.settings() {
		name, _, _ := strings.Cut(assignment, "=")
		ours := slices.ContainsFunc(known, func(s config.Setting) bool { return s.Name == name })
		if !ours && !ofLibraries(name) && slices.Contains(environ, assignment) {
			reported = append(reported, fmt.Sprintf("%s in %s is not a setting", name, installed.etc("environment")))
		}
	}
	return reported
}

// ofLibraries reports whether Go's runtime or a library reads a variable, such as Google's.
func ofLibraries(name string) bool {
	upper := strings.ToUpper(name)
	prefixes := []string{"GO", "GRPC_", "CLOUDSDK_", "SSL_CERT_", "OTEL_", "TZ", "LANG", "LC_"}
	begins := func(prefix string) bool { return strings.HasPrefix(upper, prefix) }
	return slices.ContainsFunc(prefixes, begins) || strings.HasSuffix(upper, "_PROXY")
}

// setup is the identity and the settings of a gateway.
type setup struct {
	Config

	id      *enrolment.Identity // nil for an open gateway
	unknown []string            // variables that are not settings
}

// loadSetup reads the gateway's identity from its state folder, and the settings. The identity
// of an enrolled gateway has the project and the topic. The error of invalid settings includes
// the unknown ones: one of them may be the missing one, misspelt.
func loadSetup(environ []string, installed installation) (setup, error) {
	id, err := enrolment.Load(folderOf(environ))
	if err != nil {
		return setup{}, err
	}
	if id != nil {
		environ = append(slices.Clip(environ), "PROJECT_ID="+id.ProjectID, "DATA_TOPIC="+id.Topic)
	}
	s := setup{id: id, unknown: unknown(environ, installed)}
	s.Config, err = config.Load[Config](environ)
	s.OutboxMaxBytes = cmp.Or(s.OutboxMaxBytes, outbox.DefaultMaxBytes)
	if err != nil {
		for _, text := range s.unknown {
			err = errors.Join(err, errors.New(text))
		}
		if s.ProjectID == "" {
			err = errors.Join(err, errors.New("enrolling the gateway sets it: sudo monitor-gateway enrol CODE --api URL"))
		}
	}
	return s, err
}

// folderOf returns the state folder of a gateway with these settings.
func folderOf(environ []string) string {
	folder := ""
	for _, assignment := range environ {
		if value, ok := strings.CutPrefix(assignment, "OUTBOX_DIR="); ok {
			folder = value // the last one counts
		}
	}
	return cmp.Or(folder, "outbox")
}
