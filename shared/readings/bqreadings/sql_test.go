package bqreadings

import (
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/cloudspannerecosystem/memefish"
	"github.com/cloudspannerecosystem/memefish/ast"
	"github.com/google/go-cmp/cmp"
)

// parameters are those of each statement, as the code that runs it sends them;
// TestQueriesSendTheirParameters holds the code to the same list.
func parameters() map[string][]string {
	return map[string][]string{
		"latest":          {"channels", "from", "froms", "ids", "until", "untils"},
		"range":           {"channels", "end", "froms", "node", "start", "untils"},
		"ranges":          {"channels", "end", "froms", "ids", "start", "untils"},
		"summary buckets": {"channels", "end", "first", "fold", "from", "froms", "leads", "node", "untils", "width"},
		"summary stats":   {"channels", "end", "fold", "from", "froms", "leads", "node", "starts", "untils"},
		"hours":           {"channels", "end", "from", "froms", "node", "untils"},
		"complete":        nil,
		"runs":            {"since"},
		"copy":            {"days", "end", "from"},
	}
}

// statementText returns a statement of [parameters], without placeholders.
func statementText(t *testing.T, name string) string {
	t.Helper()
	file, form, _ := strings.Cut(name, " ")
	part := map[string]string{"buckets": partOfRange, "stats": partOfWindows}[form]
	sql, err := newTables("project", Config{Dataset: "dataset", Table: "table"}).statement(file, map[string]string{
		"part": part, "days": "'2026-11-19', '2026-11-20'",
	})
	if err != nil {
		t.Fatal(err)
	}
	return sql
}

// TestStatements reads every statement with a parser of GoogleSQL and holds it
// to the rules of the house: named parameters, named columns, and both ends of
// the partition column bounded by parameters, without which a query would scan
// the whole table. The test with build tag googlesql resolves names and types.
func TestStatements(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(statements, "sql/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	tested := map[string]bool{}
	for name := range parameters() {
		file, _, _ := strings.Cut(name, " ")
		tested[file] = true
	}
	if len(files) != len(tested) {
		t.Errorf("%d statements, %d tested", len(files), len(tested))
	}
	for name, want := range parameters() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := statementText(t, name)
			if strings.Contains(text, "{{") || !strings.Contains(text, "`project.dataset.table") {
				t.Errorf("table not put in: %s", text)
			}
			if !strings.HasPrefix(text, "-- ") || !strings.Contains(text, "-- Scans ") {
				t.Error("no comment on what it scans")
			}
			query, err := memefish.ParseQuery(name+".sql", text)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			bounds := map[ast.BinaryOp]bool{}
			for node := range ast.Preorder(query) {
				switch n := node.(type) {
				case *ast.Param:
					got = append(got, n.Name)
				case *ast.Star, *ast.DotStar:
					t.Errorf("selects all columns at %d", n.Pos())
				case *ast.BinaryExpr:
					if _, ok := n.Right.(*ast.Param); ok && (column(n.Left) == "timestamp" || column(n.Left) == "hour") {
						bounds[n.Op] = true
					}
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
				t.Errorf("parameters (-want +got):\n%s", diff)
			}
			if partitioned := name != "complete" && name != "runs"; partitioned && (!bounds[ast.OpGreaterEqual] || !bounds[ast.OpLess]) {
				t.Errorf("partition column not bounded at both ends: %v", bounds)
			}
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
