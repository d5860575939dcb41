package bqreadings

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTerraformMakesTheTableThatRowsAreFor compares the deployed table's columns
// with the fields of a row: BigQuery matches them by name, and refuses rows that
// lack a required one.
func TestTerraformMakesTheTableThatRowsAreFor(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../../../terraform/modules/readings/schema.json")
	if err != nil {
		t.Fatal(err)
	}
	type column struct{ Name, Type, Mode string }
	var made []column
	if err := json.Unmarshal(content, &made); err != nil {
		t.Fatal(err)
	}
	var written []column
	for _, field := range schema() {
		c := column{Name: field.Name, Type: string(field.Type), Mode: "NULLABLE"}
		if field.Required {
			c.Mode = "REQUIRED"
		}
		written = append(written, c)
	}
	if diff := cmp.Diff(written, made); diff != "" {
		t.Errorf("columns (-written +made by terraform):\n%s", diff)
	}
}
