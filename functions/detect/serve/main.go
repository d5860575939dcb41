// Serve runs the function detect alone, as the buildpack's own main does in
// production:
//
//	FUNCTION_TARGET=detect PORT=8081 PROJECT_ID=… go run ./functions/detect/serve
package main

import (
	"cmp"
	"fmt"
	"os"

	"github.com/GoogleCloudPlatform/functions-framework-go/funcframework"

	_ "coldaisle.dev/functions/detect/entrypoint"
)

func main() {
	if err := funcframework.Start(cmp.Or(os.Getenv("PORT"), "8080")); err != nil {
		fmt.Fprintf(os.Stderr, "detect: %v\n", err)
		os.Exit(1)
	}
}
