// Serve runs the function storealert alone, as the buildpack's own main does in
// production:
//
//	FUNCTION_TARGET=storealert PORT=8081 PROJECT_ID=… go run ./functions/storealert/serve
package main

import (
	"cmp"
	"fmt"
	"os"

	"github.com/GoogleCloudPlatform/functions-framework-go/funcframework"

	_ "coldaisle.dev/functions/storealert/entrypoint"
)

func main() {
	if err := funcframework.Start(cmp.Or(os.Getenv("PORT"), "8080")); err != nil {
		fmt.Fprintf(os.Stderr, "storealert: %v\n", err)
		os.Exit(1)
	}
}
