package bqreadings

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/descriptorpb"
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
	types := map[descriptorpb.FieldDescriptorProto_Type]string{
		descriptorpb.FieldDescriptorProto_TYPE_STRING: "STRING",
		descriptorpb.FieldDescriptorProto_TYPE_DOUBLE: "FLOAT",
	}
	var written []column
	for _, field := range rowDescriptor().GetField() {
		c := column{Name: field.GetName(), Type: types[field.GetType()], Mode: "REQUIRED"}
		switch c.Name {
		case "timestamp":
			c.Type = "TIMESTAMP" // a whole number of microseconds
		case "customer_id": // came later: old rows have none
			c.Type, c.Mode = "INTEGER", "NULLABLE"
		}
		written = append(written, c)
	}
	if diff := cmp.Diff(written, made); diff != "" {
		t.Errorf("columns (-written +made by terraform):\n%s", diff)
	}
}
