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

// tables are the quoted paths that stand for placeholders in statements: names of
// tables cannot be parameters. They are made of checked identifiers only.
type tables struct{ readings, hourly, runs string }

func newTables(project string, c Config) tables {
	quoted := func(table string) string { return "`" + project + "." + c.Dataset + "." + table + "`" }
	return tables{readings: quoted(c.Table), hourly: quoted(c.Table + hourlySuffix), runs: quoted(c.Table + runsSuffix)}
}

// The tables of the hourly aggregates and of the runs that made them are called after
// the table of readings.
const (
	hourlySuffix = "_hourly"
	runsSuffix   = "_hourly_runs"
)

// statement returns a query's text, with other texts for further placeholders.
func (t tables) statement(name string, texts map[string]string) (string, error) {
	text, err := statements.ReadFile("sql/" + name + ".sql")
	if err != nil {
		return "", fmt.Errorf("statement %s: %w", name, err)
	}
	pairs := []string{"{{readings}}", t.readings, "{{hourly}}", t.hourly, "{{runs}}", t.runs}
	for placeholder, text := range texts {
		pairs = append(pairs, "{{"+placeholder+"}}", text)
	}
	return strings.NewReplacer(pairs...).Replace(string(text)), nil
}
