package bqreadings

import (
	"embed"
	"fmt"
	"strings"
)

// statements are the queries, one file each. A comment at the top says what it scans.
//
//go:embed sql/*.sql
var statements embed.FS

// tablePlaceholder stands for the table in a statement: names of tables cannot be
// parameters. It is replaced by a name made of checked identifiers only.
const tablePlaceholder = "{{readings}}"

// statement returns a query's text on a table given as a quoted path.
func statement(name, table string) (string, error) {
	text, err := statements.ReadFile("sql/" + name + ".sql")
	if err != nil {
		return "", fmt.Errorf("statement %s: %w", name, err)
	}
	return strings.ReplaceAll(string(text), tablePlaceholder, table), nil
}

// quotedTable is the table's path as it stands in a query.
func quotedTable(project, dataset, table string) string {
	return "`" + project + "." + dataset + "." + table + "`"
}
