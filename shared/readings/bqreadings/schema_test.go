package bqreadings

import (
	"encoding/json"
	"os"
	"testing"

	"cloud.google.com/go/bigquery"
	"github.com/google/go-cmp/cmp"
)

// TestTerraformMakesTheTablesThatRowsAreFor compares the deployed tables' columns
// with the fields of a row, which BigQuery matches by name, and with what an emulator
// is given, which is what the queries are tested on.
func TestTerraformMakesTheTablesThatRowsAreFor(t *testing.T) {
	t.Parallel()
	for file, wanted := range map[string]bigquery.Schema{"schema": schema(), "hourly": hourlySchema(), "runs": runsSchema()} {
		content, err := os.ReadFile("../../../terraform/modules/readings/" + file + ".json")
		if err != nil {
			t.Fatal(err)
		}
		type column struct{ Name, Type, Mode string }
		var made []column
		if err := json.Unmarshal(content, &made); err != nil {
			t.Fatal(err)
		}
		var written []column
		for _, field := range wanted {
			c := column{Name: field.Name, Type: string(field.Type), Mode: "NULLABLE"}
			if field.Required {
				c.Mode = "REQUIRED"
			}
			written = append(written, c)
		}
		if diff := cmp.Diff(written, made); diff != "" {
			t.Errorf("%s: columns (-written +made by terraform):\n%s", file, diff)
		}
	}
}
