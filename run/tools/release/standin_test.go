package release

import (
	"fmt"
	"maps"
	"os"
)

const (
	project = "coldaisle-test"
	region  = "europe-west1"
	bucket  = project + "-terraform-state"
)

// standIns are the programs that the stand-in can be, by the name in the variable
// RELEASE_STAND_IN.
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

// version is what a release brings: an image of the API and one of each function,
// which is known by its name here.
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
