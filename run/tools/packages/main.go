// Package main draws the diagram of packages in docs/design.md, from go list and
// the layers of the linter's import rule:
//
//	go run ./run/tools/packages
//
// A folder and what is in it is one box. Tests, what only tests use, and run/tools
// are left out. An arrow points at what is imported; one that follows from others
// is left out too.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	module = "coldaisle.dev/"
	begin  = "<!-- packages -->\n"
	end    = "<!-- /packages -->"
)

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run writes the diagram into the document of the repository at root.
func run(root string) error {
	path := filepath.Join(root, "docs/design.md")
	document, err := os.ReadFile(path) //nolint:gosec // our own document
	if err != nil {
		return fmt.Errorf("read the document: %w", err)
	}
	packages, err := list(root)
	if err != nil {
		return err
	}
	layers, err := readLayers(root)
	if err != nil {
		return err
	}
	drawn, err := replace(string(document), diagram(packages, layers))
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(drawn), 0o600); err != nil { //nolint:gosec // an existing file keeps its mode; the path is ours
		return fmt.Errorf("write the document: %w", err)
	}
	return nil
}

// list returns the folders of the module's packages, each with the folders that it
// imports outside of its tests.
func list(root string) (map[string][]string, error) {
	command := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...") //nolint:noctx // ends by itself
	command.Dir = root
	command.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64") // the same diagram everywhere
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, stderr.Bytes())
	}
	packages := map[string][]string{}
	for lines := bufio.NewScanner(bytes.NewReader(output)); lines.Scan(); {
		words := strings.Fields(lines.Text())
		folder := strings.TrimPrefix(words[0], module)
		packages[folder] = []string{}
		for _, imported := range words[1:] {
			if name, ours := strings.CutPrefix(imported, module); ours {
				packages[folder] = append(packages[folder], name)
			}
		}
	}
	return packages, nil
}

// layer is a rule of .golangci.yml whose name begins with "layer-".
type layer struct {
	name            string
	files, excludes []*regexp.Regexp
}

// readLayers returns the layers of the import rule, in the order of the file.
func readLayers(root string) ([]layer, error) {
	content, err := os.ReadFile(filepath.Join(root, ".golangci.yml")) //nolint:gosec // our own file
	if err != nil {
		return nil, fmt.Errorf("read the linter's rules: %w", err)
	}
	var config struct {
		Linters struct {
			Settings struct {
				Depguard struct {
					Rules yaml.Node
				}
			}
		}
	}
	if err := yaml.Unmarshal(content, &config); err != nil {
		return nil, fmt.Errorf("read the linter's rules: %w", err)
	}
	var layers []layer
	rules := config.Linters.Settings.Depguard.Rules.Content
	for i := 0; i+1 < len(rules); i += 2 {
		name, ok := strings.CutPrefix(rules[i].Value, "layer-")
		if !ok {
			continue
		}
		var rule struct{ Files []string }
		if err := rules[i+1].Decode(&rule); err != nil {
			return nil, fmt.Errorf("read the rule of %s: %w", name, err)
		}
		l := layer{name: name}
		for _, glob := range rule.Files {
			if excluded, ok := strings.CutPrefix(glob, "!"); ok {
				l.excludes = append(l.excludes, expression(excluded))
			} else {
				l.files = append(l.files, expression(glob))
			}
		}
		layers = append(layers, l)
	}
	if len(layers) == 0 {
		return nil, errors.New("the linter's rules name no layer")
	}
	return layers, nil
}

// expression is a glob of depguard as a regular expression.
func expression(glob string) *regexp.Regexp {
	return regexp.MustCompile("^" + strings.NewReplacer(
		"**", ".*", "*", "[^/]*", "{", "(", "}", ")", ",", "|", ".", `\.`,
	).Replace(glob) + "$")
}

// has reports whether the layer's rule holds for a file of a folder.
func (l layer) has(folder string) bool {
	file := "/" + folder + "/file.go"
	matches := func(e *regexp.Regexp) bool { return e.MatchString(file) }
	return slices.ContainsFunc(l.files, matches) && !slices.ContainsFunc(l.excludes, matches)
}

// layersOf are the names of the layers that a folder is in; one, if all is well.
func layersOf(folder string, layers []layer) []string {
	var names []string
	for _, l := range layers {
		if l.has(folder) {
			names = append(names, l.name)
		}
	}
	return names
}

// box is what a folder is drawn as: the gateway as a whole, everything else by the
// first two parts of its path.
func box(folder string) string {
	parts := strings.Split(folder, "/")
	if parts[0] == "edge-gateway" {
		return parts[0]
	}
	return strings.Join(parts[:min(2, len(parts))], "/")
}

// diagram draws packages in their layers.
func diagram(packages map[string][]string, layers []layer) string {
	boxes := map[string]map[string]bool{} // by layer
	imports := map[string]map[string]bool{}
	shown := func(folder string) bool {
		in := layersOf(folder, layers)
		return len(in) > 0 && !slices.Contains([]string{"docs", "testsupport", "tools"}, in[0])
	}
	for folder, imported := range packages {
		if !shown(folder) {
			continue
		}
		name := layersOf(folder, layers)[0]
		if boxes[name] == nil {
			boxes[name] = map[string]bool{}
		}
		from := box(folder)
		boxes[name][from] = true
		if imports[from] == nil {
			imports[from] = map[string]bool{}
		}
		for _, other := range imported {
			if to := box(other); to != from && shown(other) {
				imports[from][to] = true
			}
		}
	}
	var out strings.Builder
	out.WriteString("```mermaid\nflowchart TD\n")
	for _, l := range slices.Backward(layers) {
		if len(boxes[l.name]) == 0 {
			continue
		}
		fmt.Fprintf(&out, "  subgraph %s\n", l.name)
		for _, name := range slices.Sorted(maps.Keys(boxes[l.name])) {
			fmt.Fprintf(&out, "    %s[%s]\n", id(name), name)
		}
		out.WriteString("  end\n")
	}
	for _, from := range slices.Sorted(maps.Keys(imports)) {
		for _, to := range slices.Sorted(maps.Keys(imports[from])) {
			if !follows(from, to, imports) {
				fmt.Fprintf(&out, "  %s --> %s\n", id(from), id(to))
			}
		}
	}
	out.WriteString("```\n")
	return out.String()
}

// id is a name that Mermaid takes for a box: "run/api" becomes "run_api".
func id(name string) string {
	return strings.NewReplacer("/", "_", "-", "_").Replace(name)
}

// follows reports whether from reaches to through another import of from's.
func follows(from, to string, imports map[string]map[string]bool) bool {
	seen := map[string]bool{from: true}
	var reaches func(string) bool
	reaches = func(at string) bool {
		if at == to {
			return true
		}
		if seen[at] {
			return false
		}
		seen[at] = true
		for next := range imports[at] {
			if reaches(next) {
				return true
			}
		}
		return false
	}
	for next := range imports[from] {
		if next != to && reaches(next) {
			return true
		}
	}
	return false
}

// replace puts a diagram between the markers of a document.
func replace(document, diagram string) (string, error) {
	before, rest, found := strings.Cut(document, begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return "", fmt.Errorf("the document lacks %q or %q", begin, end)
	}
	return before + begin + diagram + end + after, nil
}
