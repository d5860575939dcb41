//go:build googlesql

package bqreadings

import (
	"os"
	"regexp"
	"testing"

	"cloud.google.com/go/bigquery"
	"github.com/goccy/go-googlesql"

	"coldaisle.dev/shared/must"
)

// TestAnalyze resolves every statement with Google's own analyzer against the
// table's schema and the types of the parameters, as BigQuery does before it
// runs one. It needs no server and no cgo, but the analyzer takes some minutes
// to compile the first time, hence the build tag:
//
//	go test -tags googlesql -run TestAnalyze ./shared/readings/bqreadings
func TestAnalyze(t *testing.T) { //nolint:paralleltest // the analyzer is one per process
	check(t, googlesql.Init())
	language := got(googlesql.NewLanguageOptions())(t)
	check(t, language.EnableMaximumLanguageFeatures())
	check(t, language.SetProductMode(googlesql.ProductModeProductExternal))
	check(t, language.SetSupportsAllStatementKinds())
	catalog := got(googlesql.NewSimpleCatalog("project", nil))(t)
	check(t, catalog.AddBuiltinFunctionsAndTypes(&googlesql.BuiltinFunctionOptions{LanguageOptions: language}))
	types := got(googlesql.NewTypeFactory())(t)

	type kind = googlesql.Googlesql_TypeNode
	var text, number, whole, instant kind
	text, number = got(types.GetString())(t), got(types.GetDouble())(t)
	whole, instant = got(types.GetInt64())(t), got(types.GetTimestamp())(t)
	texts, wholes := got(types.MakeArrayType(text))(t), got(types.MakeArrayType(whole))(t)

	columnKinds := map[bigquery.FieldType]kind{
		bigquery.StringFieldType: text, bigquery.FloatFieldType: number, bigquery.IntegerFieldType: whole, bigquery.TimestampFieldType: instant,
	}
	for name, columns := range map[string]bigquery.Schema{"table": schema()} {
		table := got(googlesql.NewSimpleTable("project.dataset."+name, 0))(t)
		for _, column := range columns {
			check(t, table.AddColumn2(got(googlesql.NewSimpleColumn(name, column.Name, columnKinds[column.Type], false, true))(t), false))
		}
		check(t, catalog.AddTable(table))
	}

	kinds := map[string]kind{
		"node": text, "ids": texts, "channels": wholes, "froms": wholes, "untils": wholes, "start": instant, "end": instant,
	}
	columns := map[string][]string{
		"range":  {"customer_id", "message_id", "timestamp", "temperature", "humidity", "uncorrected_temperature", "uncorrected_humidity"},
		"ranges": {"node_id", "customer_id", "message_id", "timestamp", "temperature", "humidity", "uncorrected_temperature", "uncorrected_humidity"},
	}
	analyze := func(t *testing.T, text string, used ...string) any {
		t.Helper()
		options := got(googlesql.NewAnalyzerOptions2())(t)
		check(t, options.SetLanguage(language))
		for _, parameter := range used {
			check(t, options.AddQueryParameter(parameter, kinds[parameter]))
		}
		output := got(googlesql.AnalyzeStatement(text, options, catalog, types))(t)
		return got(output.ResolvedStatement())(t)
	}
	page := string(must.Get(os.ReadFile("../../../docs/operations.md"))(t))
	given := regexp.MustCompile(`--use_legacy_sql=false '([^']+)'`).FindAllStringSubmatch(page, -1)
	must.Equal(t, "statements of the page", 1, len(given))
	for _, statement := range given {
		analyze(t, regexp.MustCompile("P\\.sensor_data\\.readings(_then)?").ReplaceAllString(statement[1], "project.dataset.table"))
	}
	for name, used := range parameters() {
		t.Run(name, func(t *testing.T) {
			resolved, ok := analyze(t, statementText(t, name), used...).(*googlesql.ResolvedQueryStmt)
			if !ok {
				t.Fatal("not a query")
			}
			var names []string
			for i := range got(resolved.OutputColumnListSize())(t) {
				names = append(names, got(got(resolved.OutputColumnList2(i))(t).Name())(t))
			}
			must.Equal(t, "columns", columns[name], names)
		})
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// got passes a value on and ends the test on an error.
func got[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		check(t, err)
		return value
	}
}
