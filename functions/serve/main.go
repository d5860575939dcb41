// Serve runs one of the functions, as the buildpack's own main does in production:
//
//	FUNCTION_TARGET=ingest PORT=8081 PROJECT_ID=… go run ./functions/serve
package main

import (
	"cmp"
	"fmt"
	"os"

	"github.com/GoogleCloudPlatform/functions-framework-go/funcframework"

	_ "coldaisle.dev/functions/detect/entrypoint"
	_ "coldaisle.dev/functions/ingest/entrypoint"
	_ "coldaisle.dev/functions/storealert/entrypoint"
	_ "coldaisle.dev/functions/train/entrypoint"
)

func main() {
	if err := funcframework.Start(cmp.Or(os.Getenv("PORT"), "8080")); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", os.Getenv("FUNCTION_TARGET"), err)
		os.Exit(1)
	}
}
