package bqreadings

import (
	"encoding/json"
	"os"
	"testing"

	"coldaisle.dev/shared/must"
)

// TestTerraformMakesTheTable compares the deployed table's columns with the fields of a
// row, which BigQuery matches by name.
func TestTerraformMakesTheTable(t *testing.T) {
	t.Parallel()
	content := must.Get(os.ReadFile("../../../terraform/modules/readings/schema.json"))(t)
	type column struct{ Name, Type, Mode string }
	var made, written []column
	must.Do(t, json.Unmarshal(content, &made))
	for _, field := range schema() {
		c := column{Name: field.Name, Type: string(field.Type), Mode: "NULLABLE"}
		if field.Required {
			c.Mode = "REQUIRED"
		}
		written = append(written, c)
	}
	must.Equal(t, "columns (-written +made by terraform)", written, made)
}
