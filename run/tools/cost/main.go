// Cost computes what the pipeline costs per month from list prices and writes
// the page about it:
//
//	go run ./run/tools/cost > docs/cost.md
//
// A test keeps the page equal to what this prints. Change an assumption in
// model.go to see what it does.
package main

import (
	"fmt"
	"os"
)

func main() {
	page, err := render()
	if err == nil {
		_, err = os.Stdout.WriteString(page)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "cost: %v\n", err)
		os.Exit(1)
	}
}
