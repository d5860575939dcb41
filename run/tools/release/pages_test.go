package release

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// pageState is what of a project the commands of the operating pages change, apart from
// what [cloud] has. It lies in a file, since each command is a process of its own.
type pageState struct {
	Secrets   []string          // contents of SECRET_KEY's versions, empty when destroyed
	Instances map[string]bool   // databases, and whether they are protected
	Backups   map[string]string // database by id
	Tables    map[string]bool
	Done      []string // what was done, in order
}

// page stands in for the programs that operators call, and is told which. It refuses what
// Google or the program would refuse as the state is.
func page(arguments []string) error {
	path := os.Getenv("PAGE_STATE")
	encoded, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var s pageState
	if err := json.Unmarshal(encoded, &s); err != nil {
		return err
	}
	if err := s.run(arguments[0], arguments[1:]); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(arguments, " "), err)
	}
	s.Done = append(s.Done, strings.Join(arguments, " "))
	encoded, _ = json.Marshal(s)
	return os.WriteFile(path, encoded, 0o600)
}

func (s *pageState) run(program string, arguments []string) error {
	switch program {
	case "gcloud":
		return s.gcloud(arguments)
	case "bq":
		return s.bq(strings.Join(arguments, " "))
	case "terraform":
		return s.terraform(arguments)
	case "make":
		for _, target := range arguments {
			if !strings.Contains(os.Getenv("PAGE_MAKEFILE"), " "+target+" ") {
				return errors.New("no such target")
			}
		}
	case "go":
		if len(arguments) < 2 || arguments[0] != "run" {
			return errors.New("no such command")
		}
		if _, err := os.Stat(arguments[1]); err != nil {
			return err
		}
		if strings.HasSuffix(arguments[1], "/image") {
			fmt.Println("registry/api@sha256:" + strings.Repeat("0", 64))
		}
	}
	return nil
}

// gcloud knows what changes the state. Whether a command and its flags exist is asked of
// the SDK itself, in package docs.
func (s *pageState) gcloud(arguments []string) error {
	flags, words := map[string]string{}, []string(nil)
	for i := 0; i < len(arguments); i++ {
		flag, ok := strings.CutPrefix(arguments[i], "--")
		if !ok {
			words = append(words, arguments[i])
			continue
		}
		name, value, given := strings.Cut(flag, "=")
		if !given && i+1 < len(arguments) && !strings.HasPrefix(arguments[i+1], "--") && name != "no-deletion-protection" && name != "quiet" {
			i++
			value = arguments[i]
		}
		flags[name] = value
	}
	words = append(words, "", "", "", "")
	switch strings.Join(words[:3], " ") {
	case "secrets versions add":
		content, err := io.ReadAll(os.Stdin)
		if err != nil {
			return err
		}
		for key := range strings.SplitSeq(string(content), ",") {
			if len(key) < 32 || strings.ContainsAny(key, "\n ") {
				return fmt.Errorf("%q is no key", key)
			}
		}
		s.Secrets = append(s.Secrets, string(content))
		fmt.Printf("projects/1/secrets/SECRET_KEY/versions/%d\n", len(s.Secrets))
	case "secrets versions access":
		if len(s.Secrets) == 0 || s.Secrets[len(s.Secrets)-1] == "" {
			return errors.New("NOT_FOUND")
		}
		fmt.Print(s.Secrets[len(s.Secrets)-1])
	case "secrets versions list":
		for i, content := range slices.Backward(s.Secrets) {
			if content != "" {
				fmt.Println(i + 1)
			}
		}
	case "secrets versions destroy":
		number, err := strconv.Atoi(words[3])
		if err != nil || number < 1 || number > len(s.Secrets) || s.Secrets[number-1] == "" {
			return errors.New("no such version")
		}
		s.Secrets[number-1] = ""
	case "sql backups create":
		if _, ok := s.Instances[flags["instance"]]; !ok {
			return errors.New("no such instance")
		}
		s.Backups[strconv.Itoa(len(s.Backups)+1)] = flags["instance"]
	case "sql backups restore":
		from, ok := s.Backups[words[3]]
		if _, exists := s.Instances[flags["restore-instance"]]; !ok || !exists || flags["backup-instance"] != "" && flags["backup-instance"] != from {
			return errors.New("no such backup")
		}
	case "sql instances clone":
		s.Instances[words[4]] = s.Instances[words[3]]
	case "sql instances patch":
		_, off := flags["no-deletion-protection"]
		s.Instances[words[3]] = s.Instances[words[3]] && !off
	case "sql instances delete":
		if s.Instances[words[3]] {
			return errors.New("the instance is protected")
		}
		delete(s.Instances, words[3])
	case "run services describe":
		fmt.Println("registry/api@sha256:" + strings.Repeat("0", 64))
	case "projects describe " + project:
		fmt.Println("1")
	}
	return nil
}

// bq copies, fills and removes tables.
func (s *pageState) bq(command string) error {
	table := regexp.MustCompile(project + `[:.](sensor_data\.\w+)(@\d+)?`)
	var named []string
	for _, match := range table.FindAllStringSubmatch(command, -1) {
		named = append(named, match[1])
	}
	if strings.Contains(command, " cp ") && len(named) == 2 {
		s.Tables[named[1]] = true
	}
	for _, name := range named {
		if !s.Tables[name] {
			return fmt.Errorf("no table %s", name)
		}
	}
	if strings.Contains(command, " rm ") {
		delete(s.Tables, named[0])
	}
	return nil
}

// terraform knows the variables and outputs of the real configuration.
func (s *pageState) terraform(arguments []string) error {
	known := func(file, kind, name string) error {
		text, err := os.ReadFile(filepath.Join(os.Getenv("PAGE_TERRAFORM"), file))
		if err == nil && !strings.Contains(string(text), kind+` "`+name+`"`) {
			err = fmt.Errorf("no %s %s", kind, name)
		}
		return err
	}
	work, err := os.Getwd()
	if err != nil {
		return err
	}
	folder := "."
	if strings.HasSuffix(work, "/bootstrap") {
		folder = "bootstrap"
	}
	for i, argument := range arguments {
		if argument == "-var" {
			name, _, _ := strings.Cut(arguments[i+1], "=")
			if err := known(folder+"/variables.tf", "variable", name); err != nil {
				return err
			}
		}
	}
	switch arguments[0] {
	case "init":
		return os.WriteFile(".initialised", nil, 0o600)
	case "output":
		fmt.Println(os.Getenv("RELEASE_CLOUD"))
		return known(folder+"/outputs.tf", "output", arguments[len(arguments)-1])
	case "apply", "destroy":
		if _, err := os.Stat(".initialised"); err != nil {
			return errors.New("not initialised")
		}
		if arguments[0] == "destroy" && folder == "." && !slices.ContainsFunc(s.Done, func(done string) bool { return strings.Contains(done, "deletion_protection=false") }) {
			return errors.New("deletion_protection is set")
		}
	}
	return nil
}

// TestPagesRun runs each command of the operating pages, in the order in which they stand
// there, and looks at what the project is then.
func TestPagesRun(t *testing.T) {
	t.Parallel()
	const old = "an-old-key-of-more-than-32-bytes-0001"
	for name, want := range map[string]func(s pageState) error{
		"deploy": func(s pageState) error {
			if len(s.Secrets) != 1 || !order(s.Done, "terraform apply -lock-timeout=10m -var project_id", "-var api_image=", "gcloud secrets versions add", "-var api_image=registry/api@", "run jobs execute migrate") {
				return errors.New("the key, the image and the migration do not come in this order")
			}
			return nil
		},
		"upgrade":   func(s pageState) error { return nil }, // TestByHand has what becomes of the project
		"roll-back": func(s pageState) error { return nil },
		"restore": func(s pageState) error {
			if len(s.Instances) != 1 || s.Tables["sensor_data.readings_then"] {
				return errors.New("a clone or a copy is left over")
			}
			if !order(s.Done, "gcloud sql backups create --instance coldaisle ", "sql backups restore", "run jobs execute migrate", "sql instances clone", "sql backups restore", "run jobs execute migrate") {
				return errors.New("what is there is not saved first, or no migration follows")
			}
			return nil
		},
		"rotate-secrets": func(s pageState) error {
			last := s.Secrets[len(s.Secrets)-1]
			if slices.ContainsFunc(s.Secrets, func(key string) bool { return strings.Contains(key, old) }) && s.Secrets[0] != "" {
				return errors.New("the old key still verifies")
			}
			left := slices.DeleteFunc(slices.Clone(s.Secrets), func(key string) bool { return key == "" })
			if len(left) != 1 || left[0] != last || strings.Contains(last, ",") {
				return fmt.Errorf("after a leak %d versions are left", len(left))
			}
			return nil
		},
		"tear-down": func(s pageState) error { return nil },
		"pause":     func(s pageState) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := runPage(t, name, pageState{
				Secrets: map[bool][]string{true: nil, false: {old}}[name == "deploy"], Instances: map[string]bool{"coldaisle": true},
				Backups: map[string]string{"1": "coldaisle"}, Tables: map[string]bool{"sensor_data.readings": true},
			})
			if err := want(s); err != nil {
				t.Errorf("%v:\n%s", err, strings.Join(s.Done, "\n"))
			}
		})
	}
}

// order reports whether texts are in lines, each after the one before.
func order(lines []string, texts ...string) bool {
	for _, line := range lines {
		if len(texts) > 0 && strings.Contains(line, texts[0]) {
			texts = texts[1:]
		}
	}
	return len(texts) == 0
}

// runPage runs the commands of a page with stand-ins for what they call, but for shell,
// openssl and the release's own scripts.
func runPage(t *testing.T, name string, s pageState) pageState {
	t.Helper()
	c, folders := released(t, pipeline("api:1", "ingest:1", "detect:1"))
	r := c.begin(t, "b1", pipeline("api:2", "ingest:2", "detect:1"), folders)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	terraform, err := filepath.Abs(root + "/terraform")
	if err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(t.TempDir(), "state.json")
	encoded, _ := json.Marshal(s)
	programs := map[string]string{}
	for _, program := range []string{"gcloud", "terraform", "bq", "go", "make", "git"} {
		programs[program] = fmt.Sprintf("#!/bin/sh\nGORACE=atexit_sleep_ms=0 RELEASE_STAND_IN=page RELEASE_CLOUD=%s exec %s %s \"$@\"\n", c.URL, self, program)
	}
	folder := t.TempDir()
	for program, text := range programs {
		err = errors.Join(err, os.WriteFile(filepath.Join(folder, program), []byte(text), 0o700))
	}
	usual := append([]string{"cut", "openssl"}, images()[ownMachine]...)
	for _, program := range usual {
		if path, lookErr := exec.LookPath(program); lookErr == nil && programs[program] == "" {
			err = errors.Join(err, os.Symlink(path, filepath.Join(folder, program)))
		}
	}
	err = errors.Join(err, os.WriteFile(state, encoded, 0o600), os.MkdirAll(filepath.Join(r.folder, "terraform/bootstrap"), 0o700),
		os.MkdirAll(filepath.Join(r.folder, "dist/release"), 0o700))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^ *```sh\n(.*?)^ *```$").FindAllStringSubmatch(read(t, "docs/"+name+".md"), -1)
	if len(blocks) == 0 {
		t.Fatal("the page has no commands")
	}
	parts := []string{"#!/usr/bin/env bash\nset -euo pipefail\n"}
	for _, block := range blocks {
		parts = append(parts, block[1])
	}
	script := strings.Join(parts, "cd "+r.folder+"\n")
	values := map[string]string{
		"P": project, "R": region, "REVISION": "api-00001", "GOOD": "v1", "LIVE": "v2", "HASH": "0", "GENERATION": "1", "ID": "1", "ID_OF_THE_CLONE": "3", "NUMBER": "1", "KEY": "k", "SITE": "hall-1",
		"ELSEWHERE": "elsewhere", "OWNER": "owner", "REPOSITORY": "repository", "ADDRESS": "192.0.2.1", "ZONE": "zone", "NAME": "name", "FUNCTION": "ingest",
	}
	for _, placeholder := range slices.Sorted(maps.Keys(values)) {
		script = regexp.MustCompile(`\b`+placeholder+`\b`).ReplaceAllString(script, values[placeholder])
	}
	// The scripts of a release by hand are played in TestByHand.
	script = regexp.MustCompile(`(?m)^run/tools/release/(lock|traffic|plan|migrate|apply|switch|synthetic|finish)\b.*$`).ReplaceAllString(script, "")
	script = strings.ReplaceAll(script, `run/tools/release/smoke "$(cat dist/release/next)"`, "")
	var targets []string
	for _, target := range regexp.MustCompile(`(?m)^([a-z-]+):`).FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets = append(targets, target[1])
	}
	r.folders = map[string]string{ownMachine: folder}
	r.environ = append(r.environ, "PAGE_STATE="+state, "PAGE_TERRAFORM="+terraform, "PAGE_MAKEFILE= "+strings.Join(targets, " ")+" ")
	if err := r.run(ownMachine, script); err != nil {
		t.Fatalf("%v\n%s\n%s", err, r.output(), script)
	}
	encoded, err = os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	s = pageState{}
	if err := json.Unmarshal(encoded, &s); err != nil {
		t.Fatal(err)
	}
	return s
}
