package release

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
)

// gcloud stands in for the program of that name where it is not installed: it knows
// the commands and flags that the scripts use and no others, and asks the cloud of
// the test. [TestReleasesWithTheRealTools] plays the same releases with the real one.
type gcloud struct {
	flags     map[string]string
	arguments []string
}

// command is what a command of gcloud's takes. Flags that end in "!" take no value.
type command struct {
	flags     string
	arguments int
	run       func(gcloud) error
}

func commands() map[string]command {
	const everywhere = "project format flatten "
	const run = everywhere + "region "
	return map[string]command{
		"storage cp":               {"if-generation-match", 2, gcloud.copyObject},
		"storage rm":               {"if-generation-match", 1, gcloud.removeObject},
		"storage cat":              {"", 1, gcloud.printObject},
		"storage objects describe": {everywhere, 1, gcloud.describeObject},
		"storage objects list":     {everywhere, 1, gcloud.listObjects},
		"builds describe": {run, 1, func(g gcloud) error {
			return g.show("/v1/projects/" + g.flags["project"] + "/locations/" + g.flags["region"] + "/builds/" + g.arguments[0])
		}},
		"run services list":     {run, 0, func(g gcloud) error { return g.show(g.services()) }},
		"run services describe": {run, 1, func(g gcloud) error { return g.show(g.services() + "/" + g.arguments[0]) }},
		"run services update":   {run + "cpu-throttling! no-cpu-throttling!", 1, gcloud.updateBilling},
		"run revisions describe": {run, 1, func(g gcloud) error {
			return g.show(strings.TrimSuffix(g.services(), "services") + "revisions/" + g.arguments[0])
		}},
		"run services update-traffic": {run + "to-revisions to-latest!", 1, gcloud.updateTraffic},
		"pubsub topics publish":       {everywhere + "attribute message", 1, gcloud.publish},
		"run jobs list":               {run + "filter", 0, func(g gcloud) error { return g.show(g.jobs()) }},
		"run jobs update":             {run + "image", 1, gcloud.updateJob},
		"run jobs execute":            {run + "args wait!", 1, gcloud.executeJob},
	}
}

// runGcloud is the stand-in's main.
func runGcloud(arguments []string) error { return runCommand(commands(), arguments) }

// runCommand runs a command that is known, and refuses others and their flags.
func runCommand(known map[string]command, arguments []string) error {
	words := 1
	for ; words < len(arguments) && known[strings.Join(arguments[:words], " ")].run == nil; words++ {
	}
	name := strings.Join(arguments[:min(words, len(arguments))], " ")
	c, ok := known[name]
	if !ok {
		return fmt.Errorf("no command %s", arguments)
	}
	g := gcloud{flags: map[string]string{}}
	for rest := arguments[words:]; len(rest) > 0; rest = rest[1:] {
		flag, isFlag := strings.CutPrefix(rest[0], "--")
		if !isFlag {
			g.arguments = append(g.arguments, rest[0])
			continue
		}
		flag, value, given := strings.Cut(flag, "=")
		switch allowed := strings.Fields(c.flags); {
		case slices.Contains(allowed, flag+"!"):
			g.flags[flag] = "true"
		case !slices.Contains(allowed, flag):
			return fmt.Errorf("%s: unrecognized arguments: --%s", name, flag)
		case given:
			g.flags[flag] = value
		case len(rest) == 1:
			return fmt.Errorf("%s: argument --%s: expected one argument", name, flag)
		default:
			rest = rest[1:]
			g.flags[flag] = rest[0]
		}
	}
	if len(g.arguments) != c.arguments {
		return fmt.Errorf("%s takes %d arguments, got %q", name, c.arguments, g.arguments)
	}
	if err := c.run(g); err != nil {
		return fmt.Errorf("(gcloud.%s) %w", strings.ReplaceAll(name, " ", "."), err)
	}
	return nil
}

// call asks the cloud, for JSON when into is not nil.
func call(method, path string, body any, into any) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return err
	}
	return send(method, path, "application/json", bytes.NewReader(encoded), into)
}

func send(method, path, kind string, body io.Reader, into any) error {
	request, err := http.NewRequest(method, os.Getenv("RELEASE_CLOUD")+path, body)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", kind)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 300 {
		return fmt.Errorf("HTTPError %d: %s", response.StatusCode, answer)
	}
	if text, ok := into.(*[]byte); ok {
		*text = answer
		return nil
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer, into)
}

// print prints rows of the fields that --format 'value(a,b)' asks for, one row for
// each element of the list that --flatten 'path[]' names.
func (g gcloud) print(items ...any) error {
	if g.flags["format"] == "json" {
		encoded, err := json.MarshalIndent(items[0], "", "  ")
		fmt.Println(string(encoded))
		return err
	}
	columns, ok := strings.CutPrefix(g.flags["format"], "value(")
	if !ok {
		return fmt.Errorf("format %q is not one of the stand-in's", g.flags["format"])
	}
	for _, item := range items {
		for _, row := range flattened(item, strings.TrimSuffix(g.flags["flatten"], "[]")) {
			var cells []string
			for column := range strings.SplitSeq(strings.TrimSuffix(columns, ")"), ",") {
				cells = append(cells, field(row, column))
			}
			fmt.Println(strings.Join(cells, "\t"))
		}
	}
	return nil
}

func flattened(item any, path string) []any {
	if path == "" {
		return []any{item}
	}
	name, rest, _ := strings.Cut(path, ".")
	object, _ := item.(map[string]any)
	inner, _ := object[name].([]any)
	if rest != "" {
		inner = flattened(object[name], rest)
	}
	var rows []any
	for _, element := range inner {
		row := maps.Clone(object)
		row[name] = element
		rows = append(rows, row)
	}
	return rows
}

// place is the path at which Cloud Storage has gs://BUCKET/NAME#GENERATION.
func place(address string) string {
	address, generation, _ := strings.Cut(address, "#")
	bucket, name := parts(address)
	return "/storage/v1/b/" + bucket + "/o/" + url.PathEscape(name) + "?generation=" + generation
}

// parts splits gs://BUCKET/NAME.
func parts(address string) (bucket, name string) {
	path, ok := strings.CutPrefix(address, "gs://")
	if bucket, name, _ = strings.Cut(path, "/"); !ok || name == "" {
		_, _ = fmt.Fprintln(os.Stderr, address+" is no object's address")
		os.Exit(1) // of the stand-in's own process
	}
	return bucket, name
}

// store writes an object.
func store(bucket, name, content, condition string) error {
	body := "--b\r\n\r\n{\"name\":\"" + name + "\"}\r\n--b\r\n\r\n" + content + "\r\n--b--\r\n"
	return send(http.MethodPost, "/upload/storage/v1/b/"+bucket+"/o?uploadType=multipart"+condition, "multipart/related; boundary=b", strings.NewReader(body), nil)
}

func (g gcloud) condition() string {
	if want, ok := g.flags["if-generation-match"]; ok {
		return "&ifGenerationMatch=" + url.QueryEscape(want)
	}
	return ""
}

func (g gcloud) copyObject() error {
	if strings.HasPrefix(g.arguments[0], "gs://") {
		var content []byte
		err := call(http.MethodGet, place(g.arguments[0])+"&alt=media", nil, &content)
		return errors.Join(err, os.WriteFile(g.arguments[1], content, 0o600))
	}
	content, err := os.ReadFile(g.arguments[0])
	if err != nil {
		return err
	}
	bucket, name := parts(g.arguments[1])
	return store(bucket, name, string(content), g.condition())
}

func (g gcloud) removeObject() error {
	return call(http.MethodDelete, place(g.arguments[0])+g.condition(), nil, nil)
}

func (g gcloud) printObject() error {
	var content []byte
	err := call(http.MethodGet, place(g.arguments[0])+"&alt=media", nil, &content)
	fmt.Print(string(content))
	return err
}

func (g gcloud) describeObject() error {
	err := g.show(place(g.arguments[0]))
	if err != nil && strings.HasPrefix(err.Error(), "HTTPError 404") {
		return fmt.Errorf("%s not found: 404", g.arguments[0])
	}
	return err
}

// show prints what the cloud has at a path, or of a list what passes the filter.
func (g gcloud) show(path string) error {
	var answer map[string]any
	if err := call(http.MethodGet, path, nil, &answer); err != nil {
		return err
	}
	list, ok := answer["items"].([]any)
	if !ok {
		return g.print(answer)
	}
	if name, want, filtered := strings.Cut(g.flags["filter"], "="); filtered {
		list = slices.DeleteFunc(list, func(item any) bool { return field(item, name) != want })
	}
	return g.print(list...)
}

// listObjects lists noncurrent versions too, without being asked.
func (g gcloud) listObjects() error {
	bucket, name := parts(g.arguments[0])
	var answer struct{ Items []any }
	if err := call(http.MethodGet, "/storage/v1/b/"+bucket+"/o?versions=true&prefix="+url.QueryEscape(name), nil, &answer); err != nil {
		return err
	}
	answer.Items = slices.DeleteFunc(answer.Items, func(item any) bool { return field(item, "name") != name })
	return g.print(answer.Items...)
}

func (g gcloud) services() string {
	return "/apis/serving.knative.dev/v1/namespaces/" + g.flags["project"] + "/services"
}

func (g gcloud) jobs() string {
	return "/apis/run.googleapis.com/v1/namespaces/" + g.flags["project"] + "/jobs"
}

// updateBilling makes a revision that is billed by instance, or by request.
func (g gcloud) updateBilling() error {
	annotations := map[string]any{"run.googleapis.com/cpu-throttling": strconv.FormatBool(g.flags["no-cpu-throttling"] == "")}
	return call(http.MethodPut, g.services()+"/"+g.arguments[0], map[string]any{"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": annotations}}}}, nil)
}

func (g gcloud) publish() error {
	name, value, _ := strings.Cut(g.flags["attribute"], "=")
	message := map[string]any{"data": []byte(g.flags["message"]), "attributes": map[string]string{name: value}}
	return call(http.MethodPost, "/v1/projects/"+g.flags["project"]+"/topics/"+g.arguments[0]+":publish", map[string]any{"messages": []any{message}}, nil)
}

func (g gcloud) updateTraffic() error {
	targets := []any{map[string]any{"latestRevision": true, "percent": 100}}
	if g.flags["to-latest"] == "" {
		targets = nil
		for target := range strings.SplitSeq(g.flags["to-revisions"], ",") {
			revision, percent, _ := strings.Cut(target, "=")
			targets = append(targets, map[string]any{"revisionName": revision, "percent": json.Number(percent)})
		}
	}
	return call(http.MethodPut, g.services()+"/"+g.arguments[0], map[string]any{"spec": map[string]any{"traffic": targets}}, nil)
}

func (g gcloud) updateJob() error {
	var wanted any = map[string]any{"image": g.flags["image"]}
	wanted = map[string]any{"spec": map[string]any{"containers": []any{wanted}}}
	wanted = map[string]any{"spec": map[string]any{"template": wanted}}
	return call(http.MethodPut, g.jobs()+"/"+g.arguments[0], map[string]any{"spec": map[string]any{"template": wanted}}, nil)
}

func (g gcloud) executeJob() error {
	overrides := map[string]any{}
	if arguments, ok := g.flags["args"]; ok {
		container := map[string]any{"args": strings.Split(arguments, ",")}
		overrides["overrides"] = map[string]any{"containerOverrides": []any{container}}
	}
	var execution any
	if err := call(http.MethodPost, g.jobs()+"/"+g.arguments[0]+":run", overrides, &execution); err != nil {
		return err
	}
	if g.flags["wait"] == "" {
		return nil
	}
	path := strings.Replace(g.jobs(), "/jobs", "/executions/", 1) + field(execution, "metadata.name")
	if err := call(http.MethodGet, path, nil, &execution); err != nil {
		return err
	}
	if field(execution, "status.conditions[0].status") != "True" {
		return fmt.Errorf("the execution failed: %s", field(execution, "status.conditions[0].message"))
	}
	return nil
}

// field follows a path such as a.b[0].c into decoded JSON.
func field(value any, path string) string {
	for name := range strings.SplitSeq(strings.NewReplacer("[", ".", "]", "").Replace(path), ".") {
		switch inner := value.(type) {
		case map[string]any:
			value = inner[name]
		case []any:
			index, err := strconv.Atoi(name)
			if err != nil || index >= len(inner) {
				return ""
			}
			value = inner[index]
		}
	}
	if value == nil {
		return ""
	}
	return fmt.Sprint(value)
}

const (
	project = "coldaisle-test"
	region  = "europe-west1"
	bucket  = project + "-terraform-state"
)

// standIns are the programs that the stand-in can be, by the name in the variable RELEASE_STAND_IN.
func standIns() map[string]func([]string) error {
	return map[string]func([]string) error{"gcloud": runGcloud, "terraform": runTerraform, "deploy": deploy, "page": page}
}

// main is that of the stand-in: see buildStandIn.
func main() { //nolint:unused // this package's files are built as a program
	if err := standIns()[os.Getenv("RELEASE_STAND_IN")](os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "ERROR:", err)
		os.Exit(1)
	}
}

// version is what a release brings: an image of the API and one of each function, which is known by its name here.
type version struct {
	api       string
	functions map[string]string
}

func pipeline(api, ingest, detect string) version {
	return version{api, map[string]string{"ingest": ingest, "detect": detect}}
}

// first is the version that most tests begin with.
var first = pipeline("api:1", "ingest:1", "detect:1")

// live is what serves when the version is released.
func (v version) live() map[string]string {
	live := maps.Clone(v.functions)
	live["api"] = v.api
	return live
}
