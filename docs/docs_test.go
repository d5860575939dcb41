// Package docs holds the documents to what they say: nothing but tests.
package docs

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// TestThreatModelNamesItsTests looks for every test that security.md names.
func TestThreatModelNamesItsTests(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile("`([a-z0-9/_.-]+) ([A-Za-z_]+)`").FindAllStringSubmatch(read(t, "security.md"), -1)
	found := 0
	for _, name := range named {
		folder, test := name[1], name[2]
		if folder == "go" || folder == "terraform" { // a command
			continue
		}
		found++
		if strings.HasSuffix(folder, ".hcl") {
			if !strings.Contains(read(t, filepath.Join("..", folder)), `run "`+test+`"`) {
				t.Errorf("%s has no run %s", folder, test)
			}
			continue
		}
		if !has(t, filepath.Join("..", folder), "func "+test+"(") {
			t.Errorf("package %s has no test %s", folder, test)
		}
	}
	if found < 40 {
		t.Errorf("%d tests are named: the claims lack theirs", found)
	}
}

// has reports whether a test file of a package holds a text.
func has(t *testing.T, folder, text string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.Contains(read(t, file), text) {
			return true
		}
	}
	return false
}

// explained reads the rows of dependencies.md: the licence by name.
func explained(t *testing.T) map[string]string {
	t.Helper()
	rows := map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| (\S+) \| (\S+) \| .+ \|$`).FindAllStringSubmatch(read(t, "dependencies.md"), -1) {
		if row[1] != "Module" && row[1] != "Package" {
			rows[row[1]] = row[2]
		}
	}
	return rows
}

// TestEveryDependencyIsExplained holds dependencies.md against go.mod, the
// libraries' own licence files and the page's package.json.
func TestEveryDependencyIsExplained(t *testing.T) {
	t.Parallel()
	rows := explained(t)
	listed := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Path}} {{.Indirect}} {{.Dir}}", "all")
	listed.Dir = ".."
	output, err := listed.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	left := maps.Clone(rows)
	for line := range strings.Lines(string(output)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] == "coldaisle.dev" {
			continue
		}
		delete(left, fields[0])
		licence, ok := rows[fields[0]]
		if !ok && fields[1] == "false" {
			t.Errorf("%s is not explained: add a row to docs/dependencies.md", fields[0])
		}
		if !ok || len(fields) < 3 { // not here to read
			continue
		}
		if got := licenceOf(t, fields[2]); got != licence {
			t.Errorf("%s is under %s, the page says %s", fields[0], got, licence)
		}
	}
	var page struct{ Dependencies map[string]string }
	if err := json.Unmarshal([]byte(read(t, "../run/dashboard/package.json")), &page); err != nil {
		t.Fatal(err)
	}
	var lock struct {
		Packages map[string]struct{ License string }
	}
	if err := json.Unmarshal([]byte(read(t, "../run/dashboard/package-lock.json")), &lock); err != nil {
		t.Fatal(err)
	}
	for name := range page.Dependencies {
		delete(left, name)
		if got := lock.Packages["node_modules/"+name].License; got != rows[name] {
			t.Errorf("%s is under %s, the page says %q", name, got, rows[name])
		}
	}
	for name := range left {
		t.Errorf("%s is explained and not used: take its row out of docs/dependencies.md", name)
	}
}

// licenceOf tells a licence by a sentence that only it has.
func licenceOf(t *testing.T, folder string) string {
	t.Helper()
	for _, name := range []string{"LICENSE", "LICENSE.md", "LICENSE.txt", "LICENCE"} {
		content, err := os.ReadFile(filepath.Join(folder, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Fields(string(content)), " ")
		// Some quote another licence further down, for a part of theirs.
		licence, first := "", len(text)
		for sentence, name := range map[string]string{
			"Mozilla Public License":                            "MPL-2.0",
			"Redistribution and use in source and binary forms": "BSD",
			"Apache License":                                    "Apache-2.0",
			"Permission is hereby granted, free of charge":      "MIT",
		} {
			if at := strings.Index(text, sentence); at >= 0 && at < first {
				licence, first = name, at
			}
		}
		if licence != "BSD" {
			return licence
		}
		if strings.Contains(text, "Neither the name") {
			return "BSD-3-Clause"
		}
		return "BSD-2-Clause"
	}
	return "no licence that we know"
}

// TestLinksLeadSomewhere follows the links between our own pages.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(pages, "../README.md")
	for _, page := range pages {
		for _, link := range regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`).FindAllStringSubmatch(read(t, page), -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), link[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", page, link[1])
			}
		}
	}
}
