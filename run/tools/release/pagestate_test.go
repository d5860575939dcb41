package release

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// pageState is what of a project the commands of the operating pages change, apart from
// what [cloud] has. It lies in a file, since each command is a process of its own.
type pageState struct {
	Version   int               // of the sources that are checked out: see numbered
	Secrets   []string          // contents of SECRET_KEY's versions, empty when destroyed
	Key       int               // version of it that the API's newest revision has
	Instances map[string]string // what is in each database
	Protected map[string]bool   // databases that may not be deleted
	Restored  map[string]bool   // databases whose logs a restore has deleted
	Backups   []backup          // by id, from 1 on
	Tables    map[string]string // what is in each
	Buckets   map[string]bool
	Pushes    []string // endpoints of the subscription, one after the other
	Applied   string   // variables of terraform's last apply
	// Bootstrapped are the addresses that were imported into the bootstrap's state.
	Bootstrapped []string
	Locked       []string // folders whose providers are locked
	Made         []string // what else was made, see made
}

type backup struct{ Instance, Content string }

// numbered is the version of a number: 2 has the functions ingest:2 and detect:2.
func numbered(n int) version {
	return pipeline(fmt.Sprintf("registry/api@sha256:%064d", n), fmt.Sprintf("ingest:%d", n), fmt.Sprintf("detect:%d", n))
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
	// In a pipeline several commands run at a time, of which one changes something.
	changed, _ := json.Marshal(s)
	if bytes.Equal(changed, encoded) {
		return nil
	}
	return errors.Join(os.WriteFile(path+".new", changed, 0o600), os.Rename(path+".new", path))
}

func (s *pageState) run(program string, arguments []string) error {
	switch program {
	case "gcloud":
		return runCommand(s.commands(), arguments)
	case "bq":
		return s.bq(strings.Join(arguments, " "))
	case "terraform":
		return s.terraform(arguments)
	case "git":
		if arguments[0] == "checkout" && len(arguments) == 2 {
			_, err := fmt.Sscanf(arguments[1], "v%d", &s.Version)
			return err
		}
	case "make":
		for _, target := range arguments {
			if !strings.Contains(os.Getenv("PAGE_MAKEFILE"), " "+target+" ") {
				return errors.New("no such target")
			}
			s.Made = append(s.Made, target)
		}
	case "go":
		return s.tool(arguments)
	}
	return nil
}

// tool runs a program of the repository, whose flags must be its own.
func (s *pageState) tool(arguments []string) error {
	if len(arguments) < 2 || arguments[0] != "run" {
		return errors.New("no such command")
	}
	source, err := os.ReadFile(filepath.Join(arguments[1], "main.go"))
	if err != nil {
		return err
	}
	for _, argument := range arguments[2:] {
		if name, isFlag := strings.CutPrefix(argument, "-"); isFlag && !strings.Contains(string(source), `"`+name+`"`) {
			return errors.New("no flag " + argument)
		}
	}
	switch filepath.Base(arguments[1]) {
	case "image":
		if !slices.Contains(s.Made, "page") {
			return errors.New("the dashboard is not built")
		}
		fmt.Println(numbered(s.Version).api)
	case "archive":
		err = os.MkdirAll("dist/functions", 0o700)
		for name, archive := range numbered(s.Version).functions {
			err = errors.Join(err, os.WriteFile("dist/functions/"+name+".zip", []byte(archive), 0o600))
		}
	}
	return err
}

// made is a command that makes something of which nothing else is kept, after what it needs.
func (s *pageState) made(what string, needs ...string) func(gcloud) error {
	return func(gcloud) error {
		for _, need := range needs {
			if !slices.Contains(s.Made, need) {
				return fmt.Errorf("%s is missing", need)
			}
		}
		s.Made = append(s.Made, what)
		return nil
	}
}

// commands are those of the pages beside those of the releases. Whether gcloud has them is
// asked of the SDK itself, in package docs.
func (s *pageState) commands() map[string]command {
	const everywhere = "project format "
	const run = everywhere + "region "
	looks := func(gcloud) error { return nil }
	known := commands()
	updateBilling := known["run services update"].run
	maps.Copy(known, map[string]command{
		"services enable":                  {everywhere, 4, s.made("APIs")},
		"beta services identity create":    {everywhere + "service", 0, s.made("Pub/Sub's account", "APIs")},
		"auth application-default login":   {"impersonate-service-account", 0, s.made("login")},
		"compute networks peerings delete": {everywhere + "network", 1, s.made("no peering")},
		"compute ssl-certificates list":    {everywhere + "global!", 0, looks},
		"dns record-sets create":           {"type ttl rrdatas zone", 1, s.made("A record")},
		"projects describe":                {everywhere, 1, func(g gcloud) error { return g.print(map[string]any{"projectNumber": "1"}) }},
		"projects add-iam-policy-binding": {"member role condition", 1, func(g gcloud) error {
			return s.made(g.flags["role"] + " for " + g.flags["member"])(g)
		}},
		"builds connections create github": {run, 1, s.made("connection", "roles/secretmanager.admin for serviceAccount:service-1@gcp-sa-cloudbuild.iam.gserviceaccount.com")},
		"builds connections describe": {run, 1, func(g gcloud) error {
			return g.print(map[string]any{"installationState": map[string]any{"stage": "COMPLETE"}})
		}},
		"builds repositories create":     {run + "remote-uri connection", 1, s.made("repository", "connection")},
		"builds triggers create github":  {run + "name branch-pattern repository build-config substitutions service-account", 0, s.made("trigger", "repository")},
		"iam service-accounts keys list": {"iam-account managed-by", 0, looks},
		"iam service-accounts keys delete": {"iam-account", 1, func(g gcloud) error {
			return s.made("no key of " + g.flags["iam-account"])(g)
		}},
		"run revisions list": {run + "service", 0, looks},
		"sql backups list":   {everywhere + "instance", 0, looks},
		"sql export sql":     {everywhere + "database", 2, s.made("export")},
		"storage ls":         {"all-versions! long!", 1, looks},
		"storage rsync": {"recursive!", 2, func(g gcloud) error {
			if name := strings.TrimPrefix(g.arguments[0], "gs://"); !s.Buckets[name] {
				return errors.New("no bucket " + name)
			}
			return s.made("copy of " + g.arguments[0])(g)
		}},
		"pubsub subscriptions pull": {everywhere + "limit", 1, looks},
		"secrets versions add":      {everywhere + "data-file", 1, s.addSecret},
		"secrets versions access": {everywhere + "secret", 1, func(gcloud) error {
			if len(s.Secrets) == 0 || s.Secrets[len(s.Secrets)-1] == "" {
				return errors.New("NOT_FOUND")
			}
			fmt.Print(s.Secrets[len(s.Secrets)-1])
			return nil
		}},
		"secrets versions list": {everywhere + "filter", 1, func(g gcloud) error {
			for i, content := range slices.Backward(s.Secrets) {
				if content != "" || g.flags["filter"] != "state=ENABLED" {
					fmt.Println(i + 1)
				}
			}
			return nil
		}},
		"secrets versions destroy": {everywhere + "secret quiet!", 1, func(g gcloud) error {
			number, err := strconv.Atoi(g.arguments[0])
			if err != nil || number < 1 || number > len(s.Secrets) || s.Secrets[number-1] == "" || number == s.Key {
				return errors.New("no such version, or the API has it")
			}
			s.Secrets[number-1] = ""
			return nil
		}},
		"config get": {"", 1, func(gcloud) error { fmt.Println("anna@example.com"); return nil }},
		"billing accounts add-iam-policy-binding": {"member role", 1, s.made("budgets")},
		"storage buckets list": {everywhere + "filter", 0, func(g gcloud) error {
			if name := strings.TrimPrefix(g.flags["filter"], "name="); s.Buckets[name] {
				fmt.Println(name)
			}
			return nil
		}},
		"storage buckets create": {everywhere + "location uniform-bucket-level-access! public-access-prevention!", 1, func(g gcloud) error {
			s.Buckets[strings.TrimPrefix(g.arguments[0], "gs://")] = true
			return nil
		}},
		"run services update": {run + "image update-secrets cpu-throttling! no-cpu-throttling!", 1, func(g gcloud) error {
			if g.flags["update-secrets"] == "" {
				return updateBilling(g)
			}
			_, number, _ := strings.Cut(g.flags["update-secrets"], "SECRET_KEY=SECRET_KEY:")
			var err error
			if s.Key, err = strconv.Atoi(number); err != nil || s.Key > len(s.Secrets) || s.Secrets[s.Key-1] == "" {
				return errors.New("no such version")
			}
			if g.flags["image"] == "" {
				return updateBilling(g) // a revision of the newest's image
			}
			return deploy([]string{"api", g.flags["image"]})
		}},
		"sql backups create": {everywhere + "instance", 0, func(g gcloud) error {
			content, ok := s.Instances[g.flags["instance"]]
			if !ok {
				return errors.New("no such instance")
			}
			s.Backups = append(s.Backups, backup{g.flags["instance"], content})
			return nil
		}},
		"sql backups restore": {everywhere + "restore-instance backup-instance", 1, func(g gcloud) error {
			number, err := strconv.Atoi(g.arguments[0])
			if err != nil || number < 1 || number > len(s.Backups) {
				return errors.New("no such backup")
			}
			from := s.Backups[number-1]
			if _, exists := s.Instances[g.flags["restore-instance"]]; !exists || g.flags["backup-instance"] != "" && g.flags["backup-instance"] != from.Instance {
				return errors.New("no such instance")
			}
			s.Instances[g.flags["restore-instance"]] = from.Content
			s.Restored[g.flags["restore-instance"]] = true
			return nil
		}},
		"sql instances clone": {everywhere + "point-in-time", 2, func(g gcloud) error {
			from, to, then := g.arguments[0], g.arguments[1], g.flags["point-in-time"]
			if then != "" && s.Restored[from] {
				return errors.New("the logs of that time are gone")
			}
			s.Instances[to], s.Protected[to] = s.Instances[from], s.Protected[from]
			if then != "" {
				s.Instances[to] += " as of " + then
			}
			return nil
		}},
		"sql export csv": {everywhere + "database query", 2, s.made("archive of alerts")},
		"sql instances patch": {everywhere + "no-deletion-protection! database-version", 1, func(g gcloud) error {
			if version := g.flags["database-version"]; version != "" {
				s.Instances[g.arguments[0]] += " in " + version
			}
			s.Protected[g.arguments[0]] = s.Protected[g.arguments[0]] && g.flags["no-deletion-protection"] == ""
			return nil
		}},
		"sql instances delete": {everywhere, 1, func(g gcloud) error {
			if s.Protected[g.arguments[0]] {
				return errors.New("the instance is protected")
			}
			delete(s.Instances, g.arguments[0])
			return nil
		}},
		"pubsub subscriptions modify-push-config": {everywhere + "push-endpoint push-auth-service-account push-auth-token-audience", 1, func(g gcloud) error {
			endpoint := g.flags["push-endpoint"]
			if endpoint != "" && (g.flags["push-auth-token-audience"] != endpoint || g.flags["push-auth-service-account"] == "") {
				return errors.New("the function refuses who pushes")
			}
			s.Pushes = append(s.Pushes, endpoint)
			return nil
		}},
		"functions describe": {run + "v2!", 1, func(g gcloud) error {
			return g.print(map[string]any{"serviceConfig": map[string]any{"uri": "https://" + g.arguments[0] + ".example.com"}})
		}},
		"builds submit": {everywhere + "config substitutions", 0, func(g gcloud) error {
			if g.flags["config"] == ".ci/checks.yaml" {
				return s.made("checks")(g)
			}
			if g.flags["config"] != "cloudbuild.yaml" || g.flags["substitutions"] != "_REGION="+region || !slices.Contains(s.Made, "checks") {
				return errors.New("another build, or sources that have not passed the checks")
			}
			s.Version++ // work goes on
			return send(http.MethodPost, fmt.Sprintf("/builds/%d", s.Version-1), "", nil, nil)
		}},
		"storage rm": {"if-generation-match recursive!", 1, func(g gcloud) error {
			if g.flags["recursive"] == "" {
				return g.removeObject()
			}
			delete(s.Buckets, strings.TrimPrefix(g.arguments[0], "gs://"))
			return nil
		}},
	})
	return known
}

func (s *pageState) addSecret(g gcloud) error {
	content, err := io.ReadAll(os.Stdin)
	if err != nil || g.flags["data-file"] != "-" {
		return errors.Join(err, errors.New("nothing to add"))
	}
	for key := range strings.SplitSeq(string(content), ",") {
		if len(key) < 32 || strings.ContainsAny(key, "\n ") {
			return fmt.Errorf("%q is no key", key)
		}
	}
	s.Secrets = append(s.Secrets, string(content))
	fmt.Printf("projects/1/secrets/SECRET_KEY/versions/%d\n", len(s.Secrets))
	return nil
}

// bq copies, fills and removes tables, as who has rights of his own.
func (s *pageState) bq(command string) error {
	table := regexp.MustCompile(project + `[:.](sensor_data\.\w+)(@\d+)?`)
	named := table.FindAllStringSubmatch(command, -1)
	if len(named) == 0 {
		return errors.New("no table is named")
	}
	if len(named) == 2 && strings.Contains(command, " cp ") {
		s.Tables[named[1][1]] = s.Tables[named[0][1]] + named[0][2]
	}
	for _, name := range named {
		if s.Tables[name[1]] == "" {
			return fmt.Errorf("no table %s", name[1])
		}
	}
	if len(named) == 2 && strings.Contains(command, "INSERT INTO") {
		s.Tables[named[0][1]] += " and " + s.Tables[named[1][1]]
	}
	if strings.Contains(command, " extract ") && len(named) == 1 && strings.Contains(command, " gs://elsewhere/") {
		s.Made = append(s.Made, "copy of the readings")
	}
	if strings.Contains(command, " rm ") {
		delete(s.Tables, named[0][1])
	}
	return nil
}

// terraform knows the variables and outputs of the real configuration. What a release
// calls it leaves to the releases' stand-in.
func (s *pageState) terraform(arguments []string) error {
	if folder, ok := strings.CutPrefix(arguments[0], "-chdir="); ok {
		if err := os.Chdir(folder); err != nil {
			return err
		}
		arguments = arguments[1:]
	}
	work, err := os.Getwd()
	if err != nil {
		return err
	}
	folder, last := ".", arguments[len(arguments)-1]
	if strings.HasSuffix(work, "/bootstrap") {
		folder = "bootstrap"
	} else if !s.Buckets[bucket] {
		return errors.New("the bucket of the state does not exist")
	}
	known := func(file, kind, name string) error {
		text, err := os.ReadFile(filepath.Join(os.Getenv("PAGE_TERRAFORM"), folder, file))
		if err == nil && !strings.Contains(string(text), kind+` "`+name+`"`) {
			err = fmt.Errorf("no %s %s", kind, name)
		}
		return err
	}
	variables := map[string]string{}
	for i, argument := range arguments {
		if argument == "-var" {
			name, value, _ := strings.Cut(arguments[i+1], "=")
			if err := known("variables.tf", "variable", name); err != nil {
				return err
			}
			variables[name] = value
		}
	}
	_, initialised := os.Stat(".initialised")
	switch {
	case arguments[0] == "init":
		if _, err := os.Stat("backend.tf"); err != nil && folder == "." || folder == "bootstrap" && !slices.Contains(arguments, "bucket="+bucket) {
			return errors.New("the state would stay on this machine")
		}
		return os.WriteFile(".initialised", nil, 0o600)
	case arguments[0] == "output":
		if err := known("outputs.tf", "output", last); err != nil {
			return err
		}
		if last != "backend" && last != "domain_address" {
			return runTerraform(arguments)
		}
		fmt.Println("printed")
		return nil
	case initialised != nil:
		return errors.New("not initialised")
	case arguments[0] == "providers":
		s.Locked = append(s.Locked, folder)
		return nil
	case arguments[0] == "plan":
		archives, _ := json.Marshal(archives())
		return errors.Join(os.WriteFile("functions.json", archives, 0o600), runTerraform(arguments))
	case arguments[0] == "apply" && slices.Contains(arguments, "-json"):
		return runTerraform(arguments)
	case folder == "bootstrap" && arguments[0] == "state" && arguments[1] == "list":
		for _, address := range s.Bootstrapped {
			fmt.Println(address)
		}
		return nil
	case folder == "bootstrap" && arguments[0] == "state" && arguments[1] == "rm":
		s.Bootstrapped = slices.DeleteFunc(s.Bootstrapped, func(address string) bool { return address == last })
		return nil
	case folder == "bootstrap" && arguments[0] == "import":
		s.Bootstrapped = append(s.Bootstrapped, arguments[len(arguments)-2])
		return nil
	case folder == "bootstrap" && arguments[0] == "apply":
		if _, err := os.Stat("terraform.tfvars"); err != nil || !slices.Contains(s.Made, "Pub/Sub's account") || !slices.Contains(s.Bootstrapped, "google_storage_bucket.state") {
			return errors.New("nobody may deploy, there is no account of Pub/Sub's, or the bucket exists already")
		}
		return nil
	case folder == "bootstrap":
		if slices.Contains(s.Bootstrapped, "google_storage_bucket.state") {
			return errors.New("the state's own bucket cannot go")
		}
		return nil
	case arguments[0] == "apply":
		s.Applied = strings.Join(arguments, " ")
		return s.apply(variables["api_image"])
	default:
		delete(s.Tables, "sensor_data.readings")                                                                  // terraform's own
		if !strings.Contains(s.Applied, "deletion_protection=false") || len(s.Tables) > 0 || len(s.Buckets) > 1 { // that of the state is the bootstrap's
			return errors.New("it is protected, or there is something in it")
		}
		if !slices.Contains(s.Made, "no peering") {
			return errors.New("the network has a peering")
		}
		clear(s.Instances)
		return errors.Join(deploy([]string{"api"}), deploy([]string{"ingest"}), deploy([]string{"detect"}))
	}
}

// archives are those that lie beside the configuration, by function.
func archives() map[string]string {
	found := map[string]string{}
	paths, _ := filepath.Glob("../dist/functions/*.zip")
	for _, path := range paths {
		content, _ := os.ReadFile(path)
		found[strings.TrimSuffix(filepath.Base(path), ".zip")] = string(content)
	}
	return found
}

// apply makes the functions of the archives, and the API where it has an image. Cloud Run
// starts no revision whose secret is not there.
func (s *pageState) apply(image string) error {
	var err error
	components := []string{"api"}
	found := archives()
	for _, name := range slices.Sorted(maps.Keys(found)) {
		components = append(components, name)
		err = errors.Join(err, deploy([]string{name, found[name]}))
	}
	if len(components) == 1 {
		return errors.New("no archives")
	}
	s.Instances["coldaisle"], s.Protected["coldaisle"] = "data", true
	if image == "" {
		return err
	}
	if len(s.Secrets) == 0 {
		return errors.New("SECRET_KEY has no version")
	}
	return errors.Join(err, deploy([]string{"api", image, strings.Join(components, ",")}))
}
