// Serve runs the function ingest alone, as the buildpack's own main does in
// production:
//
//	FUNCTION_TARGET=ingest PORT=8081 PROJECT_ID=… go run ./functions/ingest/serve
package main

import (
	"cmp"
	"fmt"
	"os"

	"github.com/GoogleCloudPlatform/functions-framework-go/funcframework"

	_ "coldaisle.dev/functions/ingest/entrypoint"
)

func main() {
	if err := funcframework.Start(cmp.Or(os.Getenv("PORT"), "8080")); err != nil {
		fmt.Fprintf(os.Stderr, "ingest: %v\n", err)
		os.Exit(1)
	}
}
