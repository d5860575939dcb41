// Package docs holds the documents to what they say: nothing but tests.
package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/tooltest"
)

func read(t *testing.T, path string) string {
	t.Helper()
	return string(must.Get(os.ReadFile(path))(t))
}

// files returns the paths of the repository's files with an extension.
func files(t *testing.T, extension string) []string {
	t.Helper()
	var all []string
	must.Do(t, filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "node_modules", "testdata", "bin", ".coldaisle", ".terraform", "test-results"}, entry.Name()):
			return fs.SkipDir
		case filepath.Ext(path) == extension:
			all = append(all, path)
		}
		return nil
	}))
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
		must.Equal(t, link+" is dead", dead, len(deadLinks(t, "page.md", own+"[x]("+link+")")) > 0)
	}
	all := files(t, ".md")
	if len(all) < 20 {
		t.Errorf("%d pages are found: some are not seen", len(all))
	}
	for _, page := range all {
		for _, link := range deadLinks(t, page, read(t, page)) {
			t.Errorf("%s links to %s, which is not there", page, link)
		}
	}
}

// TestNamedTestsExist looks for the tests, benchmarks and runs of terraform test that pages name.
func TestNamedTestsExist(t *testing.T) {
	t.Parallel()
	var tests strings.Builder
	for _, path := range files(t, ".go") {
		if strings.HasSuffix(path, "_test.go") {
			tests.WriteString(read(t, path))
		}
	}
	for _, page := range files(t, ".md") {
		for _, name := range regexp.MustCompile(`\b(Test|Fuzz|Benchmark)[A-Z]\w+`).FindAllString(read(t, page), -1) {
			must.Equal(t, page+": there is "+name, true, strings.Contains(tests.String(), "func "+name))
		}
		for _, run := range regexp.MustCompile("`(?:terraform/tests/)?(\\w+\\.tftest\\.hcl) (\\w+)`").FindAllStringSubmatch(read(t, page), -1) {
			there := strings.Contains(read(t, "../terraform/tests/"+run[1]), "run \""+run[2]+"\"")
			must.Equal(t, page+": there is "+run[2]+" in "+run[1], true, there)
		}
		// As in "-bench 'A|B'", and in design.md's "`A ./package`".
		for _, found := range regexp.MustCompile("-bench '?([\\w|]+)|`(\\w+)[\\w/]* \\./[a-z/]+`").FindAllStringSubmatch(read(t, page), -1) {
			for name := range strings.SplitSeq(found[1]+found[2], "|") {
				there := name == "NAME" || strings.Contains(tests.String(), "func Benchmark"+name+"(")
				must.Equal(t, page+": there is a benchmark "+name, true, there)
			}
		}
	}
}

// TestPicturesComeFromTheSystem wants each picture taken by make pictures and shown in README, and
// nothing put into that system, whose nodes' readings alone may say something.
func TestPicturesComeFromTheSystem(t *testing.T) {
	t.Parallel()
	script, readme := read(t, "../run/dashboard/scripts/pictures.mjs"), read(t, "../README.md")
	must.Equal(t, "pictures are made by", "", regexp.MustCompile(`\.route\(|\.evaluate\(|from "pg"|seed`).FindString(script))
	pictures := must.Get(filepath.Glob("images/*"))(t)
	if len(pictures) == 0 {
		t.Error("no pictures")
	}
	for _, picture := range pictures {
		name := strings.TrimSuffix(filepath.Base(picture), ".png")
		taken, shown := strings.Contains(script, `shoot("`+name+`")`), strings.Contains(readme, "(docs/"+picture+")")
		must.Equal(t, picture+" is taken by make pictures, and shown in README", [2]bool{true, true}, [2]bool{taken, shown})
	}
	for _, path := range must.Get(filepath.Glob("../run/local/system/*.go"))(t) {
		inserts := !strings.HasSuffix(path, "_test.go") && strings.Contains(read(t, path), "INSERT")
		must.Equal(t, path+" inserts what the pipeline would make", false, inserts)
	}
}

// TestOneVersion wants the changelog's newest version of both documents of OpenAPI, the page and what
// make builds.
func TestOneVersion(t *testing.T) {
	t.Parallel()
	version := regexp.MustCompile(`(?m)^## \[(.*)\]`).FindStringSubmatch(read(t, "CHANGELOG.md"))[1]
	for _, path := range []string{"run/api/openapi.json", "edge-gateway/gateway/openapi.json", "run/dashboard/package.json"} {
		same := strings.Contains(read(t, "../"+path), `"version": "`+version+`"`)
		must.Equal(t, path+" has version "+version, true, same)
	}
	built := must.Get(command(t, "make -n build").Output())(t)
	must.Contain(t, "make build", string(built), "-X main.version="+version+"+")
}

// TestNewcomersPath walks from README to the code that stores a reading: README, the table
// in design.md, and the function. Every path of that page must exist.
func TestNewcomersPath(t *testing.T) {
	t.Parallel()
	tooltest.Long(t)
	leads := strings.Contains(read(t, "../README.md"), "[where things are stored](docs/design.md#where-things-are-stored)")
	must.Equal(t, "README leads to the table", true, leads)
	page := read(t, "design.md")
	for _, path := range regexp.MustCompile("`([a-z-]+/[a-z/.-]+)`").FindAllStringSubmatch(page, -1) {
		must.Get(os.Stat(filepath.Join("..", path[1])))(t)
	}
	_, table, _ := strings.Cut(page, "\n## Where things are stored\n")
	table, _, _ = strings.Cut(table, "\n## ")
	_, row, _ := strings.Cut(table, "\n| readings |")
	row, _, _ = strings.Cut(row, "\n")
	links := regexp.MustCompile(`\]\((\S+\.go)\)`).FindAllStringSubmatch(row, -1)
	must.Equal(t, "files of readings", 2, len(links))
	for _, link := range links {
		appends := strings.Contains(read(t, link[1]), ") Append(ctx context.Context, rows []reading.Reading) error {")
		must.Equal(t, link[1]+" appends readings", true, appends)
	}
}

// TestCitedRulesExist looks up the rules that the code cites, as in "contract 4.8, 9.7".
func TestCitedRulesExist(t *testing.T) {
	t.Parallel()
	rules := map[string]bool{}
	for _, rule := range regexp.MustCompile(`(?m)^- \*\*(\d+\.\d+)\*\* `).FindAllStringSubmatch(read(t, "contract.md"), -1) {
		rules[rule[1]] = true
	}
	citation, number := regexp.MustCompile(`[Cc]ontract(?:\s+//)?\s+\d+\.\d+(?:(?:,| and)\s+\d+\.\d+)*`), regexp.MustCompile(`\d+\.\d+`)
	cited := map[string]bool{}
	for _, file := range files(t, ".go") {
		for _, found := range citation.FindAllString(read(t, file), -1) {
			for _, rule := range number.FindAllString(found, -1) {
				cited[rule] = true
				must.Equal(t, file+" cites "+rule+", which is a rule", true, rules[rule])
			}
		}
	}
	for rule := range rules {
		must.Equal(t, "something cites rule "+rule, true, cited[rule])
	}
}
