package bqreadings

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cloudspannerecosystem/memefish"
	"github.com/cloudspannerecosystem/memefish/ast"

	"coldaisle.dev/shared/must"
)

// parameters are those of each statement, as the code that runs it sends them;
// TestQueriesSendTheirParameters holds the code to the same list.
func parameters() map[string][]string {
	return map[string][]string{
		"range":  {"channels", "end", "froms", "node", "start", "untils"},
		"ranges": {"channels", "end", "froms", "ids", "start", "untils"},
	}
}

// statementText returns a statement of [parameters], without placeholders.
func statementText(t *testing.T, name string) string {
	t.Helper()
	return (&Store{table: "`project.dataset.table`"}).text(name, "'2026-11-19', '2026-11-20'")
}

// TestStatements reads every statement with a parser of GoogleSQL and holds it
// to the rules of the house: named parameters, named columns, and both ends of
// the partition column bounded by parameters, without which a query would scan
// the whole table. The test with build tag googlesql resolves names and types.
func TestStatements(t *testing.T) {
	t.Parallel()
	must.Equal(t, "statements that are tested", len(must.Get(statements.ReadDir("sql"))(t)), len(parameters()))
	for name, want := range parameters() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := statementText(t, name)
			must.Hold(t, !strings.Contains(text, "{{") && strings.Contains(text, "`project.dataset.table"),
				"table not put in: %s", text)
			must.Hold(t, strings.HasPrefix(text, "-- ") && strings.Contains(text, "-- Scans "),
				"no comment on what it scans")
			query := must.Get(memefish.ParseQuery(name+".sql", text))(t)
			var got []string
			bounds := map[ast.BinaryOp]bool{}
			for node := range ast.Preorder(query) {
				switch n := node.(type) {
				case *ast.Param:
					got = append(got, n.Name)
				case *ast.Star, *ast.DotStar:
					t.Errorf("selects all columns at %d", n.Pos())
				case *ast.BinaryExpr:
					if _, ok := n.Right.(*ast.Param); ok && column(n.Left) == "timestamp" {
						bounds[n.Op] = true
					}
				}
			}
			slices.Sort(got)
			must.Equal(t, "parameters", want, slices.Compact(got))
			must.Hold(t, bounds[ast.OpGreaterEqual] && bounds[ast.OpLess],
				"partition column not bounded at both ends: %v", bounds)
		})
	}
}

// column is the name of the column that an expression is, or nothing.
func column(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.Path:
		return e.Idents[len(e.Idents)-1].Name
	}
	return ""
}

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
