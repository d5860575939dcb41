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

// statement returns a query's text, with the table and the days to scan, neither of which
// can be a parameter.
func (s *Store) statement(name, days string) (string, error) {
	text, err := statements.ReadFile("sql/" + name + ".sql")
	if err != nil {
		return "", fmt.Errorf("statement %s: %w", name, err)
	}
	return strings.NewReplacer("{{readings}}", s.table, "{{days}}", days).Replace(string(text)), nil
}
