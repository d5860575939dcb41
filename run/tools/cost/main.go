// Cost computes what the pipeline costs per month from list prices and writes
// the page about it:
//
//	go run ./run/tools/cost > docs/cost.md
//
// A test keeps the page equal to what this prints. Change an assumption in
// model.go to see what it does.
package main

import (
	"context"
	"fmt"

	"coldaisle.dev/shared/config"
)

func main() {
	config.Main("cost", func(context.Context) error {
		page, err := render()
		fmt.Print(page)
		return err
	})
}
