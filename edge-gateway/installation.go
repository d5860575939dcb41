package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"coldaisle.dev/edge-gateway/outbox"
	"coldaisle.dev/shared/config"
)

// installation is where an installed gateway has what, under a root.
type installation struct{ root string }

func (i installation) etc(name string) string {
	return filepath.Join(i.root, "etc", "monitor-gateway", name)
}

func (i installation) outbox() string {
	return filepath.Join(i.root, "var", "lib", "monitor-gateway", "outbox")
}

// settings reads the file that systemd gives the service its environment from;
// nothing where there is none.
func (i installation) settings() []string {
	file, err := os.Open(i.etc("environment"))
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	var assignments []string
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		name, value, found := strings.Cut(line, "=")
		if found && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, ";") {
			assignments = append(assignments, strings.TrimSpace(name)+"="+strings.Trim(strings.TrimSpace(value), `"'`))
		}
	}
	return assignments
}

// variables are those that the program and Google's libraries read.
func variables() []config.Setting {
	settings := slices.Concat(config.Describe[Config](), config.Describe[connections]())
	for i := range settings {
		if settings[i].Name == "OUTBOX_MAX_BYTES" {
			settings[i].Default = strconv.Itoa(outbox.DefaultMaxBytes)
		}
	}
	return settings
}

// unknown says of what is set that it is no setting: each variable of the
// environment that looks like one of ours, and, in the file of the installation,
// each that nothing here reads.
//
// The gateway tells and starts all the same. What is misspelt has its default,
// which serves; a gateway that does not start loses readings, perhaps after an
// upgrade, and where nobody is near. A setting that it cannot do without, or with
// a value that makes no sense, stops it.
func unknown(environ []string, installed installation) []string {
	known := variables()
	var told []string
	tell := func(name, text string) {
		if meant, found := config.Misspelt(name, known); found {
			text = fmt.Sprintf("%s is not a setting, %s is", name, meant)
		}
		if text != "" && !slices.Contains(told, text) {
			told = append(told, text)
		}
	}
	for _, assignment := range environ {
		name, _, _ := strings.Cut(assignment, "=")
		tell(name, "")
	}
	for _, assignment := range installed.settings() {
		name, _, _ := strings.Cut(assignment, "=")
		ours := slices.ContainsFunc(known, func(s config.Setting) bool { return s.Name == name })
		if !ours && !ofLibraries(name) && slices.Contains(environ, assignment) {
			tell(name, fmt.Sprintf("%s in %s is not a setting", name, installed.etc("environment")))
		}
	}
	return told
}

// ofLibraries says of a variable that a part of the program reads it that is not
// ours: Go's runtime, Google's libraries, TLS, and the way through a proxy.
func ofLibraries(name string) bool {
	upper := strings.ToUpper(name)
	for _, prefix := range []string{"GO", "GRPC_", "CLOUDSDK_", "SSL_CERT_", "OTEL_", "TZ", "LANG", "LC_"} {
		if strings.HasPrefix(upper, prefix) {
			return true
		}
	}
	return strings.HasSuffix(upper, "_PROXY")
}

// loadSettings reads the settings of the environment. When they do not do, its
// error also tells what is misspelt: that may be the one that is missing.
func loadSettings(environ []string, installed installation) (Config, connections, error) {
	s, err := config.Load[Config](environ)
	s.OutboxMaxBytes = cmp.Or(s.OutboxMaxBytes, outbox.DefaultMaxBytes)
	google, unread := config.Load[connections](environ)
	if err = errors.Join(err, unread); err != nil {
		for _, text := range unknown(environ, installed) {
			err = errors.Join(err, errors.New(text))
		}
	}
	return s, google, err
}
