package docs

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/tooltest"
)

// shell are the commands of the pages, the release's scripts and cloudbuild.yaml, by
// file, comments left out and continued lines joined.
func shell(t *testing.T) map[string]string {
	t.Helper()
	code := regexp.MustCompile("(?s)```sh\n.*?```|`[^`\n]+`|(?m)(^ {4,}[^ ].*\n)+")
	texts := map[string]string{"../cloudbuild.yaml": read(t, "../cloudbuild.yaml")}
	for _, pattern := range []string{"*.md", "playbooks/*.md", "../*.md", "../terraform/*.md"} {
		for _, page := range must.Get(filepath.Glob(pattern))(t) {
			texts[page] = strings.Join(code.FindAllString(read(t, page), -1), "\n")
		}
	}
	for _, script := range must.Get(filepath.Glob("../run/tools/release/*"))(t) {
		if info, err := os.Stat(script); err == nil && info.Mode().IsRegular() && filepath.Ext(script) == "" {
			texts[script] = read(t, script)
		}
	}
	for name, text := range texts {
		text = regexp.MustCompile(`(?m)^ *#.*$`).ReplaceAllString(text, "")
		texts[name] = regexp.MustCompile(`\\\n\s*`).ReplaceAllString(text, " ")
	}
	return texts
}

// invocations are the words of each call of a program in a text.
func invocations(text, program string) [][]string {
	var all [][]string
	for _, at := range regexp.MustCompile(`(^|[\s(|;&`+"`"+`])`+program+` `).FindAllStringIndex(text, -1) {
		all = append(all, words(text[at[1]:]))
	}
	return all
}

// words are those of a command at the beginning of a text, as a shell splits them.
func words(text string) []string {
	var all []string
	word, inside, depth := "", false, 0
	var quote rune
	end := func() {
		if inside {
			all = append(all, word)
		}
		word, inside = "", false
	}
	for i, r := range text {
		switch {
		case quote == '\'' && r == '\'', quote == '"' && r == '"' && depth == 0:
			quote = 0
		case quote != 0:
			word += string(r)
			if quote == '"' && r == '(' && i > 0 && text[i-1] == '$' {
				depth++
			} else if r == ')' && depth > 0 {
				depth--
			}
		case r == '\'' || r == '"':
			quote, inside = r, true
		case r == ' ' || r == '\t':
			end()
		case strings.ContainsRune("|;&)<>`\n", r):
			end()
			return all
		default:
			word, inside = word+string(r), true
		}
	}
	end()
	return all
}

// surface is what of gcloud's commands the SDK itself knows for completion: a flag's
// type is "bool", "value", "dynamic", or the list of its values.
type surface struct {
	Commands map[string]surface `json:"commands"`
	Flags    map[string]any     `json:"flags"`
}

// fault says what gcloud does not know of a command, or nothing.
func (s surface) fault(command []string) string {
	node, known := s, []map[string]any{s.Flags}
	for i := 0; i < len(command); i++ {
		word := command[i]
		if !strings.HasPrefix(word, "--") {
			if inner, ok := node.Commands[word]; ok {
				node = inner
				known = append(known, node.Flags)
			} else if len(node.Commands) > 0 {
				return "no command " + word
			}
			continue
		}
		flag, _, given := strings.Cut(word, "=")
		kind := any(nil)
		for _, flags := range known {
			if flags[flag] != nil {
				kind = flags[flag]
			} else if positive := "--" + strings.TrimPrefix(flag, "--no-"); positive != flag && flags[positive] == "bool" {
				kind = "bool"
			}
		}
		switch {
		case kind == nil:
			return "no flag " + flag
		case kind == "bool":
		case !given && i+1 == len(command):
			return flag + " lacks its value"
		case !given:
			i++
		}
	}
	if len(node.Commands) > 0 {
		return "not a whole command"
	}
	return ""
}

func sdk(t *testing.T) surface {
	t.Helper()
	program, err := exec.LookPath("gcloud")
	if err != nil {
		tooltest.Skip(t, "gcloud is not installed")
	}
	program = must.Get(filepath.EvalSymlinks(program))(t)
	tree := read(t, filepath.Join(filepath.Dir(program), "../data/cli/gcloud_completions.py"))
	_, tree, _ = strings.Cut(tree, "STATIC_COMPLETION_CLI_TREE = ")
	var s surface
	must.Do(t, json.Unmarshal([]byte(tree), &s))
	return s
}

// TestGcloudKnowsEveryFlag holds every gcloud command that we name against the
// installed gcloud.
func TestGcloudKnowsEveryFlag(t *testing.T) {
	t.Parallel()
	s := sdk(t)
	for command, want := range map[string]string{
		"run jobs execute migrate --wait --region R":         "",
		"run jobs execute migrate --wiat":                    "no flag --wiat",
		"run jobs run migrate":                               "no command run",
		"run jobs":                                           "not a whole command",
		"sql instances patch x --no-deletion-protection":     "",
		"storage cp a b --if-generation-match":               "--if-generation-match lacks its value",
		"storage cp a b --no-if-generation-match":            "no flag --no-if-generation-match",
		"run services list --format 'value(a,b)' --region=R": "",
	} {
		must.Equal(t, command, want, s.fault(words(command)))
	}
	found := 0
	for name, text := range shell(t) {
		for _, command := range invocations(text, "gcloud") {
			found++
			must.Equal(t, name+": gcloud "+strings.Join(command, " "), "", s.fault(command))
		}
	}
	if found < 60 {
		t.Errorf("%d commands are found: some are not seen", found)
	}
}

// TestCommandsNameTheirProject wants each command of the pages that looks for a project to name
// it: what gcloud's own configuration names may be another.
func TestCommandsNameTheirProject(t *testing.T) {
	t.Parallel()
	global := []string{"auth", "billing", "config", "dns", "iam", "projects", "storage"} // in their arguments
	for name, text := range shell(t) {
		for _, command := range invocations(text, "gcloud") {
			named := slices.Contains(global, command[0]) || slices.Contains(command, "--project")
			must.Equal(t, name+": gcloud "+strings.Join(command, " ")+" names its project", true, named)
		}
	}
}

// TestPlaybooksCanBeFollowed wants who follows playbooks to have the role that each look needs,
// and no plan without the image and the archives that are live: it would take the API away.
func TestPlaybooksCanBeFollowed(t *testing.T) {
	t.Parallel()
	_, given, _ := strings.Cut(read(t, "deploy.md"), "- **follows a [playbook]")
	given, _, _ = strings.Cut(given, "\n- ")
	roles := map[string]string{"read": "*Viewer*", "describe": "*Viewer*", "list": "*Viewer*", "pull": "*Pub/Sub Subscriber*"}
	looks := 0
	for _, page := range must.Get(filepath.Glob("playbooks/*.md"))(t) {
		text := strings.ReplaceAll(read(t, page), "\\\n", " ")
		bare := regexp.MustCompile("terraform (plan|apply)`").FindString(text)
		must.Equal(t, page+": terraform without image and archives", "", bare)
		look, _, _ := strings.Cut(text, "\n## Do\n")
		for _, command := range invocations(look, "gcloud") {
			looks++
			verb := slices.IndexFunc(command, func(word string) bool { return roles[word] != "" })
			may := verb >= 0 && strings.Contains(given, roles[command[verb]])
			must.Equal(t, page+": who follows playbooks may gcloud "+strings.Join(command, " "), true, may)
		}
	}
	if looks < 30 {
		t.Errorf("%d looks are found: some are not seen", looks)
	}
}
