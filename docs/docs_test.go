// Package docs holds the documents to what they say: nothing but tests.
package docs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// runByCI says why CI does not run a test of a package, a make target's or a .hcl file's,
// or nothing. CI runs every package with make test, without build tags, and every .hcl file
// of the two folders with make terraform.
func runByCI(t *testing.T, folder, test string) string {
	t.Helper()
	if !regexp.MustCompile(`(?m)^make -k lint deadcode terraform test\b`).MatchString(read(t, "../.ci/run")) ||
		!strings.Contains(read(t, "../Makefile"), "\n\tgo test -race -timeout 40m ./... ") || !strings.Contains(read(t, "../Makefile"), "\n\t@.ci/terraform\n") {
		return "CI runs neither all packages nor terraform's tests"
	}
	if strings.HasSuffix(folder, ".hcl") {
		if !strings.Contains(read(t, filepath.Join("..", folder)), `run "`+test+`"`) {
			return folder + " has no run " + test
		}
		return ""
	}
	sources, err := filepath.Glob(filepath.Join("..", folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range sources {
		if text := read(t, source); strings.Contains(text, "func "+test+"(") {
			if constraint := regexp.MustCompile(`(?m)^//go:build (.+)$`).FindStringSubmatch(text); constraint != nil && constraint[1] != "linux" {
				return source + " is built only with " + constraint[1]
			}
			return ""
		}
	}
	return "package " + folder + " has no test " + test
}

// TestThreatModelNamesItsTests looks for every test that SECURITY.md names, and that CI runs it.
func TestThreatModelNamesItsTests(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile("`([a-z0-9/_.-]+) ([A-Za-z_]+)`").FindAllStringSubmatch(read(t, "SECURITY.md"), -1)
	found := 0
	for _, name := range named {
		folder, test := name[1], name[2]
		if slices.Contains([]string{"go", "make", "monitor-gateway", "terraform"}, folder) { // a command
			continue
		}
		found++
		if fault := runByCI(t, folder, test); fault != "" {
			t.Errorf("SECURITY.md: %s", fault)
		}
	}
	if found < 40 {
		t.Errorf("%d tests are named: the claims lack theirs", found)
	}
}

// TestMishapsNameTheirTests wants a page and tests that CI runs in each row of mishaps.md.
func TestMishapsNameTheirTests(t *testing.T) {
	t.Parallel()
	rows := regexp.MustCompile(`(?m)^\| ([^|]+) \| [^|]+ \| \[[^]]+\]\([^)]+\) \| (.+) \|$`).FindAllStringSubmatch(read(t, "mishaps.md"), -1)
	if len(rows) != 10 {
		t.Errorf("%d mishaps have a page", len(rows))
	}
	for _, row := range rows {
		named := regexp.MustCompile("`([a-z0-9/-]+) (Test[A-Za-z]+)`").FindAllStringSubmatch(row[2], -1)
		if len(named) == 0 {
			t.Errorf("%s: no test", row[1])
		}
		for _, name := range named {
			if fault := runByCI(t, name[1], name[2]); fault != "" {
				t.Errorf("%s: %s", row[1], fault)
			}
		}
	}
}

// explained reads the rows of a page like dependencies.md: the licence by name,
// and which names stand there more than once.
func explained(page string) (licences map[string]string, repeated []string) {
	licences = map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| (\S+) \| (\S+) \| .+ \|$`).FindAllStringSubmatch(page, -1) {
		if row[1] == "Module" || row[1] == "Package" {
			continue
		}
		if _, ok := licences[row[1]]; ok {
			repeated = append(repeated, row[1])
		}
		licences[row[1]] = row[2]
	}
	return licences, repeated
}

// TestEveryDependencyIsExplained holds dependencies.md against go.mod, the
// libraries' own licence files and the package.json of the pages.
func TestEveryDependencyIsExplained(t *testing.T) {
	t.Parallel()
	rows, repeated := explained(read(t, "dependencies.md"))
	for _, name := range repeated {
		t.Errorf("%s stands twice in docs/dependencies.md", name)
	}
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
	for _, folder := range []string{"../run/dashboard", "../run/api/pages"} {
		var page struct{ Dependencies map[string]string }
		if err := json.Unmarshal([]byte(read(t, folder+"/package.json")), &page); err != nil {
			t.Fatal(err)
		}
		var lock struct {
			Packages map[string]struct{ License string }
		}
		if err := json.Unmarshal([]byte(read(t, folder+"/package-lock.json")), &lock); err != nil {
			t.Fatal(err)
		}
		for name := range page.Dependencies {
			delete(left, name)
			if got := lock.Packages["node_modules/"+name].License; got != rows[name] {
				t.Errorf("%s is under %s, the page says %q", name, got, rows[name])
			}
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

// files are the paths of the repository's files with these endings, but those of
// the tests' data and this one.
func files(t *testing.T, endings ...string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "node_modules", "testdata", "bin", ".coldaisle", ".terraform", "test-results"}, entry.Name()):
			return fs.SkipDir
		case slices.Contains(endings, filepath.Ext(path)) && entry.Name() != "docs_test.go":
			all = append(all, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// anchors are the fragments by which a page's headings are linked, as GitHub
// makes them: lower case, without punctuation, with hyphens for spaces, and a
// number behind a heading that stands there again.
func anchors(page string) map[string]bool {
	page = regexp.MustCompile("(?ms)^ *```.*?^ *```$").ReplaceAllString(page, "")
	seen, all := map[string]int{}, map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`).FindAllStringSubmatch(page, -1) {
		text := regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`).ReplaceAllString(heading[1], "$1")
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, text)
		if n := seen[anchor]; n > 0 {
			all[fmt.Sprintf("%s-%d", anchor, n)] = true
		} else {
			all[anchor] = true
		}
		seen[anchor]++
	}
	return all
}

// deadLinks are the links of a page to files that are not there, and to headings
// that those files do not have.
func deadLinks(t *testing.T, path, text string) []string {
	t.Helper()
	var dead []string
	for _, link := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(text, -1) {
		target, anchor, _ := strings.Cut(link[1], "#")
		if strings.Contains(link[1], "://") || strings.HasPrefix(link[1], "mailto:") {
			continue
		}
		other := text
		if target != "" {
			file := filepath.Join(filepath.Dir(path), target)
			if _, err := os.Stat(file); err != nil {
				dead = append(dead, link[1])
				continue
			}
			if anchor != "" {
				other = read(t, file)
			}
		}
		if anchor != "" && !anchors(other)[anchor] {
			dead = append(dead, link[1])
		}
	}
	return dead
}

// TestLinksLeadSomewhere follows the links between our own pages, to their
// headings too.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	own := "# A page\n## What `it` does, twice\n## What `it` does, twice\n"
	for link, dead := range map[string]bool{
		"#what-it-does-twice": false, "#what-it-does-twice-1": false, "#what-it-does-twice-2": true, "#a-page": false,
		"README.md": true, "SECURITY.md": false, "SECURITY.md#threat-model": false, "SECURITY.md#no-such-heading": true,
	} {
		if got := deadLinks(t, "page.md", own+"[x]("+link+")"); (len(got) > 0) != dead {
			t.Errorf("%s: dead links %q", link, got)
		}
	}
	all := files(t, ".md")
	if len(all) < 40 {
		t.Errorf("%d pages are found: some are not seen", len(all))
	}
	for _, page := range all {
		for _, link := range deadLinks(t, page, read(t, page)) {
			t.Errorf("%s links to %s, which is not there", page, link)
		}
	}
}

// TestEveryAlertHasAPlaybook holds the folder of playbooks against the keys of
// terraform's alert policies. The texts of the alerts are built from the keys.
func TestEveryAlertHasAPlaybook(t *testing.T) {
	t.Parallel()
	policies := read(t, "../terraform/modules/monitoring/policies.tf")
	if !strings.Contains(policies, "docs/playbooks/${each.key}.md") {
		t.Error("the alerts' texts do not name their playbooks")
	}
	alerts := map[string]bool{}
	for _, key := range regexp.MustCompile(`(?m)^ {4}(\w+) = \{$|\? \["(\w+)"\] : \[\]`).FindAllStringSubmatch(policies, -1) {
		alerts[key[1]+key[2]] = true
	}
	if len(alerts) != strings.Count(policies, "      title ") {
		t.Fatalf("some alerts are not seen, only %v", slices.Sorted(maps.Keys(alerts)))
	}
	for _, file := range files(t, ".tf") { // of those that have a form of their own
		for _, page := range regexp.MustCompile(`docs/playbooks/(\w+)\.md`).FindAllStringSubmatch(read(t, file), -1) {
			alerts[page[1]] = true
		}
		if strings.HasSuffix(file, "/objectives.tf") { // by their keys
			for _, key := range regexp.MustCompile(`(?m)^ {4}(\w+) = \{$`).FindAllStringSubmatch(read(t, file), -1) {
				alerts[key[1]] = true
			}
		}
		for _, policy := range strings.Split(read(t, file), `resource "google_monitoring_alert_policy"`)[1:] {
			if policy, _, _ = strings.Cut(policy, "\n}\n"); !strings.Contains(policy, `\n\nPlaybook: docs/playbooks/`) {
				t.Errorf("%s has an alert whose text names no playbook", file)
			}
		}
	}
	playbooks, err := filepath.Glob("playbooks/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range playbooks {
		alert := strings.TrimSuffix(filepath.Base(file), ".md")
		if !alerts[alert] {
			t.Errorf("%s belongs to no alert", file)
		}
		delete(alerts, alert)
	}
	for alert := range alerts {
		t.Errorf("alert %s has no page docs/playbooks/%[1]s.md", alert)
	}
}

// TestEveryRuleIsCitedByATest holds contract.md against the citations in code, as "contract" and
// 4.3: a test cites each rule, nothing cites a rule that is not there, and no number stands twice.
func TestEveryRuleIsCitedByATest(t *testing.T) {
	t.Parallel()
	rules := map[string]bool{}
	for _, rule := range regexp.MustCompile(`(?m)^- \*\*(\d+\.\d+)\*\* `).FindAllStringSubmatch(read(t, "contract.md"), -1) {
		if rules[rule[1]] {
			t.Errorf("two rules have the number %s", rule[1])
		}
		rules[rule[1]] = true
	}
	if len(rules) < 80 {
		t.Errorf("%d rules are found: some are not seen", len(rules))
	}
	shown := map[string]bool{}
	for _, file := range files(t, ".go", ".sql", ".tf", ".hcl", ".ts", ".tsx", ".md") {
		for _, citation := range citations(read(t, file)) {
			if !rules[citation] {
				t.Errorf("%s cites rule %s of docs/contract.md, which is not there", file, citation)
			}
			if strings.HasSuffix(file, "_test.go") || strings.HasSuffix(file, ".tftest.hcl") {
				shown[citation] = true
			}
		}
	}
	for rule := range rules {
		if !shown[rule] {
			t.Errorf("no test cites rule %s of docs/contract.md", rule)
		}
	}
	if got := citations("// contract 4.2, 4.3 and RFC 1.2\n// (docs/contract.md 6.10)"); !slices.Equal(got, []string{"4.2", "4.3", "6.10"}) {
		t.Errorf("citations: %q", got)
	}
}

// citations are the numbers of rules that a text cites.
func citations(text string) []string {
	var all []string
	for _, cited := range regexp.MustCompile(`\b[Cc]ontract(?:\.md)? (\d+\.\d+(?:, \d+\.\d+)*)`).FindAllStringSubmatch(text, -1) {
		all = append(all, strings.Split(cited[1], ", ")...)
	}
	return all
}

// TestOperatingPagesNameTheirLogin wants each page on operating, as README lists them, to
// say as whom its commands are run.
func TestOperatingPagesNameTheirLogin(t *testing.T) {
	t.Parallel()
	_, operating, _ := strings.Cut(read(t, "../README.md"), "\n- Operating it:")
	operating, _, _ = strings.Cut(operating, "\n- ")
	pages, err := filepath.Glob("playbooks/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range regexp.MustCompile(`\(docs/([a-z-]+\.md)\)`).FindAllStringSubmatch(operating, -1) {
		pages = append(pages, page[1])
	}
	pages = slices.DeleteFunc(pages, func(page string) bool { return page == "cost.md" || page == "mishaps.md" }) // have no commands on the cloud
	if len(pages) < 17 {
		t.Errorf("some pages are not seen, only %q", pages)
	}
	for _, page := range pages {
		if !strings.Contains(read(t, page), "\n**Login:** ") {
			t.Errorf("docs/%s does not say as whom its commands are run", page)
		}
	}
}

// TestEveryCountIsDescribed holds the tables of pipeline.md and gateway.md against the
// names under which functions and gateway count.
func TestEveryCountIsDescribed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		page, row string // of the table, and a name in its first column
		code      string // that counts
		folders   []string
	}{
		{"pipeline.md", "`([a-z]+_[a-z_]+)`", `\.Add\(ctx, "([a-z_]+)"`, []string{"../functions", "../shared/function", "../shared/push"}},
		{"gateway.md", "`gateway_([a-z_]+)[`{]", `(?:counter\(|byReason\(|gauge\(|flag\(|Name: )"([a-z_]+)"`, []string{"../edge-gateway/gateway", "../edge-gateway/announce", "../edge-gateway/discover", "../edge-gateway/enrolment"}},
	} {
		described := map[string]bool{}
		for _, row := range regexp.MustCompile("(?m)^\\| (`[a-z_]+.*?`) \\|").FindAllStringSubmatch(read(t, c.page), -1) {
			for _, name := range regexp.MustCompile(c.row).FindAllStringSubmatch(row[1], -1) {
				described[name[1]] = true
			}
		}
		counted := map[string]bool{}
		for _, file := range files(t, ".go") {
			if strings.HasSuffix(file, "_test.go") || !slices.ContainsFunc(c.folders, func(folder string) bool { return strings.HasPrefix(file, folder+"/") }) {
				continue
			}
			for _, name := range regexp.MustCompile(c.code).FindAllStringSubmatch(read(t, file), -1) {
				counted[name[1]] = true
			}
		}
		for name := range counted {
			if !described[name] {
				t.Errorf("%s says nothing of %s", c.page, name)
			}
			delete(described, name)
		}
		for name := range described {
			t.Errorf("%s describes %s, which nothing counts", c.page, name)
		}
	}
}

// TestNewcomersPath walks from README to where a reading is stored: README, the table in
// design.md, and the function. It looks for every path of the table too.
func TestNewcomersPath(t *testing.T) {
	t.Parallel()
	if !strings.Contains(read(t, "../README.md"), "[where things are stored](docs/design.md#where-things-are-stored)") {
		t.Error("README does not lead to the table")
	}
	_, table, _ := strings.Cut(read(t, "design.md"), "\n## Where things are stored\n")
	table, _, _ = strings.Cut(table, "\n## ")
	for _, path := range regexp.MustCompile("`([a-z-]+/[a-z/.-]+)`").FindAllStringSubmatch(table, -1) {
		if _, err := os.Stat(filepath.Join("..", path[1])); err != nil {
			t.Error(err)
		}
	}
	links := regexp.MustCompile(`\]\((\S+\.go)\)`).FindAllStringSubmatch(table, -1)
	if len(links) != 2 {
		t.Errorf("%d files of readings", len(links))
	}
	for _, link := range links {
		if !strings.Contains(read(t, link[1]), ") Append(ctx context.Context, rows []reading.Reading) error {") {
			t.Errorf("%s does not append readings", link[1])
		}
	}
}

// TestDecisionsAreNumbered fails for a number that two records share, and for one
// whose title or status does not follow the form.
func TestDecisionsAreNumbered(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("decisions/*.md")
	if err != nil || len(files) == 0 {
		t.Fatal(len(files), err)
	}
	head := regexp.MustCompile(`^# (\d+)\. .+\n\nStatus: .+`)
	for i, file := range files { // in the order of their names
		want := strconv.Itoa(i + 1)
		found := head.FindStringSubmatch(read(t, file))
		if found == nil || found[1] != want || !strings.HasPrefix(filepath.Base(file), fmt.Sprintf("%04d-", i+1)) {
			t.Errorf("%s: want number %s in its name and title, and a status", file, want)
		}
	}
}
