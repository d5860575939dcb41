package release

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The stand-in for terraform, where it is not installed, applies the configuration of testdata/terraform: the functions
// of functions.json and the API. It keeps its state and locks it in the cloud's bucket as the backend "gcs" does,
// refuses a plan of an older state, and writes the lines of -json that releases read. [TestReleasesWithTheRealTools]
// plays the same releases with the real one.

const (
	statePath = "coldaisle/default.tfstate"
	lockPath  = "coldaisle/default.tflock"
)

// tfState is what was applied: images by component, and how often.
type tfState struct {
	Serial int
	Images map[string]string
}

type tfPlan struct {
	Serial  int
	Desired map[string]string
}

// runTerraform is the stand-in's main.
func runTerraform(arguments []string) error {
	flags, rest := map[string]string{}, []string(nil)
	for _, argument := range arguments[1:] {
		if len(rest) > 0 && (rest[len(rest)-1] == "-var" || rest[len(rest)-1] == "-out") {
			name, value, _ := strings.Cut(argument, "=")
			if rest[len(rest)-1] == "-out" {
				name, value = "out", argument
			}
			flags[name], rest = value, rest[:len(rest)-1]
			continue
		}
		if name, value, ok := strings.Cut(argument, "="); ok && name == "-lock-timeout" {
			flags[name] = value
			continue
		}
		rest = append(rest, argument)
	}
	switch command := strings.Join(append(arguments[:1:1], rest...), " "); {
	case command == "init":
		_, err := os.Stat("backend.tf")
		return err
	case command == "plan":
		return planTerraform(flags)
	case strings.HasPrefix(command, "apply -json ") && len(rest) == 2:
		return applyTerraform(flags, rest[1])
	case command == "output -raw api_uri", command == "output -raw api_next_uri":
		uri, err := os.ReadFile("uri")
		fmt.Print(string(uri))
		if strings.HasSuffix(command, "next_uri") {
			fmt.Print("/next")
		}
		return err
	case command == "output -raw takes_open_readings":
		fmt.Print("true")
		return nil
	case command == "output -raw billing":
		fmt.Print(cmp.Or(os.Getenv("BILLING"), "ingest=request"))
		return nil
	case command == "output -raw archives":
		state, err := readState()
		for _, name := range slices.Sorted(maps.Keys(state.Images)) {
			if name != "api" {
				fmt.Print(name + "/" + state.Images[name] + ".zip ")
			}
		}
		return err
	default:
		return fmt.Errorf("no command %q", command)
	}
}

// locked runs work with the state locked. Without -lock-timeout it does not wait.
func locked(flags map[string]string, work func() error) error {
	patience, _ := time.ParseDuration(flags["-lock-timeout"])
	deadline := time.Now().Add(patience)
	for {
		err := store(bucket, lockPath, `{"ID":"stand-in"}`, "&ifGenerationMatch=0")
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("Error acquiring the state lock: %w", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	err := work()
	return errors.Join(err, call(http.MethodDelete, place("gs://"+bucket+"/"+lockPath), nil, nil))
}

func readState() (tfState, error) {
	var s tfState
	err := call(http.MethodGet, place("gs://"+bucket+"/"+statePath)+"&alt=media", nil, &s)
	if err != nil && strings.Contains(err.Error(), "404") {
		return tfState{Images: map[string]string{}}, nil
	}
	return s, err
}

func planTerraform(flags map[string]string) error {
	if flags["project_id"] == "" || flags["region"] == "" || flags["api_image"] == "" || flags["out"] == "" {
		return fmt.Errorf("flags %v", flags)
	}
	return locked(flags, func() error {
		current, err := readState()
		if err != nil {
			return err
		}
		functions, err := os.ReadFile("functions.json")
		if err != nil {
			return err
		}
		plan := tfPlan{Serial: current.Serial}
		if err := json.Unmarshal(functions, &plan.Desired); err != nil {
			return err
		}
		maps.Copy(plan.Desired, archives())
		components := strings.Join(append([]string{"api"}, slices.Sorted(maps.Keys(plan.Desired))...), ",")
		plan.Desired["api"] = flags["api_image"] + " " + components + " " + strings.NewReplacer("{", "", "}", "", `"`, "").Replace(flags["api_traffic"])
		encoded, err := json.Marshal(plan)
		if err != nil {
			return err
		}
		return os.WriteFile(flags["out"], encoded, 0o600)
	})
}

func applyTerraform(flags map[string]string, path string) error {
	encoded, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var plan tfPlan
	if err := json.Unmarshal(encoded, &plan); err != nil {
		return err
	}
	tell("info", "Terraform 1.11.4", `"type":"version"`)
	err = locked(flags, func() error {
		current, err := readState()
		if err != nil {
			return err
		}
		if current.Serial != plan.Serial {
			return errors.New("Error: Saved plan is stale")
		}
		return change(current, plan.Desired)
	})
	if err != nil {
		tell("error", strings.Trim(strconv.Quote(err.Error()), `"`), `"type":"diagnostic"`)
	}
	return err
}

// change applies component by component, the API last, and notes down how far it came.
// After one whose image is "-watched" it fails once, as if an alert's metric were too new.
func change(current tfState, desired map[string]string) (err error) {
	components := slices.Sorted(maps.Keys(desired))
	for component := range current.Images {
		if _, ok := desired[component]; !ok {
			components = append(components, component)
		}
	}
	components = append(slices.DeleteFunc(components, func(component string) bool { return component == "api" }), "api")
	for _, component := range components {
		if current.Images[component] == desired[component] {
			continue
		}
		address := `module.function[\"` + component + `\"].terraform_data.revision`
		if component == "api" {
			address = "module.api.terraform_data.revision"
		}
		tell("info", address+": Modifying...", `"hook":{"resource":{"addr":"`+address+`"},"action":"update"},"type":"apply_start"`)
		if err = deploy(append([]string{component}, strings.Fields(desired[component])...)); err != nil {
			break
		}
		early := strings.HasSuffix(desired[component], "-watched") && current.Images[component] != desired[component]
		if current.Images[component] = desired[component]; desired[component] == "" {
			delete(current.Images, component)
		}
		if early {
			err = errors.New(`Error: Error creating AlertPolicy: googleapi: Error 404: Cannot find metric(s) that match type = "logging.googleapis.com/user/coldaisle/dark". ` +
				"If a metric was created recently, it could take up to 10 minutes to become available. Please wait and retry your request.")
			break
		}
	}
	current.Serial++
	encoded, _ := json.Marshal(current)
	return errors.Join(err, store(bucket, statePath, string(encoded), ""))
}

// tell writes a line of -json.
func tell(level, message, rest string) {
	fmt.Printf(`{"@level":"%s","@message":"%s","@module":"terraform.ui","@timestamp":"2026-11-20T12:00:00Z",%s}`+"\n", level, message, rest)
}

// deploy has the cloud do what terraform's provider asks of Google: PART [IMAGE [PARTS [TRAFFIC]]].
func deploy(arguments []string) error {
	for len(arguments) < 4 {
		arguments = append(arguments, "")
	}
	form := url.Values{"image": {arguments[1]}, "components": {arguments[2]}, "traffic": {arguments[3]}}
	return send(http.MethodPost, "/terraform/"+arguments[0], "application/x-www-form-urlencoded", strings.NewReader(form.Encode()), nil)
}
