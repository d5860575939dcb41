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

// TestAnalyze resolves every statement with Google's own analyzer against the table's schema and the types of the
// parameters, as BigQuery does before it runs one. It needs no server and no cgo, but the analyzer takes some
// minutes to compile the first time, hence the build tag:
//
//	go test -tags googlesql -run TestAnalyze ./shared/readings/bqreadings
func TestAnalyze(t *testing.T) { //nolint:paralleltest // the analyzer is one per process
	must.Do(t, googlesql.Init())
	language := must.Get(googlesql.NewLanguageOptions())(t)
	must.Do(t, language.EnableMaximumLanguageFeatures())
	must.Do(t, language.SetProductMode(googlesql.ProductModeProductExternal))
	must.Do(t, language.SetSupportsAllStatementKinds())
	catalog := must.Get(googlesql.NewSimpleCatalog("project", nil))(t)
	must.Do(t, catalog.AddBuiltinFunctionsAndTypes(&googlesql.BuiltinFunctionOptions{LanguageOptions: language}))
	types := must.Get(googlesql.NewTypeFactory())(t)

	type kind = googlesql.Googlesql_TypeNode
	var text, number, whole, instant kind
	text, number = must.Get(types.GetString())(t), must.Get(types.GetDouble())(t)
	whole, instant = must.Get(types.GetInt64())(t), must.Get(types.GetTimestamp())(t)
	texts, wholes := must.Get(types.MakeArrayType(text))(t), must.Get(types.MakeArrayType(whole))(t)

	columnKinds := map[bigquery.FieldType]kind{
		bigquery.StringFieldType: text, bigquery.FloatFieldType: number, bigquery.IntegerFieldType: whole, bigquery.TimestampFieldType: instant,
	}
	for name, columns := range map[string]bigquery.Schema{"table": schema()} {
		table := must.Get(googlesql.NewSimpleTable("project.dataset."+name, 0))(t)
		for _, column := range columns {
			must.Do(t, table.AddColumn2(must.Get(googlesql.NewSimpleColumn(name, column.Name, columnKinds[column.Type], false, true))(t), false))
		}
		must.Do(t, catalog.AddTable(table))
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
		options := must.Get(googlesql.NewAnalyzerOptions2())(t)
		must.Do(t, options.SetLanguage(language))
		for _, parameter := range used {
			must.Do(t, options.AddQueryParameter(parameter, kinds[parameter]))
		}
		output := must.Get(googlesql.AnalyzeStatement(text, options, catalog, types))(t)
		return must.Get(output.ResolvedStatement())(t)
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
			for i := range must.Get(resolved.OutputColumnListSize())(t) {
				names = append(names, must.Get(must.Get(resolved.OutputColumnList2(i))(t).Name())(t))
			}
			must.Equal(t, "columns", columns[name], names)
		})
	}
}
