// Serve runs the function train alone, as the buildpack's own main does in
// production:
//
//	FUNCTION_TARGET=train PORT=8084 PROJECT_ID=… go run ./functions/train/serve
package main

import (
	"cmp"
	"fmt"
	"os"

	"github.com/GoogleCloudPlatform/functions-framework-go/funcframework"

	_ "coldaisle.dev/functions/train/entrypoint"
)

func main() {
	if err := funcframework.Start(cmp.Or(os.Getenv("PORT"), "8080")); err != nil {
		fmt.Fprintf(os.Stderr, "train: %v\n", err)
		os.Exit(1)
	}
}
