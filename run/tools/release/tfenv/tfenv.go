// Package tfenv reads each component's environment from the terraform configuration.
// Tests start the components with exactly that environment, so that a test fails when
// a variable is renamed in the program or in terraform alone. It is for tests only.
//
// Terraform's variables have their defaults. Values that only Google Cloud knows have
// stand-ins, which differ from every default of the programs.
package tfenv

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/caarlos0/env/v11"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"

	"coldaisle.dev/shared/must"
)

// Stand-ins for resources that terraform creates; modules has the others.
const (
	Project    = "stand-in"
	Dataset    = "dataset_of_stand_in"
	Table      = "table_of_stand_in"
	Bucket     = "models-of-stand-in"
	AlertTopic = "alerts-of-stand-in"
)

// modules are the outputs of modules that the environments refer to.
const modules = `{
  database = { connection_name = "stand-in:europe-west1:coldaisle", database = "metadata", users = users }
  domain   = [] # none, as the variables' defaults have it
  readings = { dataset = "dataset_of_stand_in", table = "table_of_stand_in" }
  models   = { bucket = "models-of-stand-in" }
  records  = { bucket = "models-of-stand-in-records" }
  gateways = { publishing_account = "coldaisle-gateways@stand-in.iam.gserviceaccount.com" }
  topic = {
    for topic in ["data", "alerts", "model-retraining"] : topic => {
      name        = "${topic}-of-stand-in"
      dead_letter = { topic = "projects/stand-in/topics/${topic}-of-stand-in-dead-letter" }
    }
  }
}`

// Components lists the components that have an environment.
func Components() []string {
	return []string{"api", "detect", "ingest", "migrate", "storealert", "train"}
}

// DatabaseUser is the stand-in for a component's database user. Tests that create the
// users add a suffix of their own, because users belong to the whole server.
func DatabaseUser(component, suffix string) string {
	return "coldaisle-" + component + suffix + "@stand-in.iam"
}

// Mismatches compares an environment with the config struct that reads it,
// and returns a line for each variable that only one of them has. settings points to
// the struct.
func Mismatches(tb testing.TB, environ []string, settings any) (lines []string) {
	tb.Helper()
	read, set := map[string]bool{}, env.ToMap(environ)
	for _, field := range must.Get(env.GetFieldParamsWithOptions(settings, env.Options{Environment: map[string]string{}}))(tb) {
		read[field.Key] = true
		if _, ok := set[field.Key]; field.Required && !ok {
			lines = append(lines, field.Key+" is required and not set")
		}
	}
	for name := range set {
		if !read[name] {
			lines = append(lines, name+" is set and nothing reads it")
		}
	}
	return lines
}

// Read returns the components' environments by name, in the form of os.Environ; what Secret Manager fills is empty.
// folder is the configuration's; suffix goes into the database users, see [DatabaseUser].
func Read(tb testing.TB, folder, suffix string) map[string][]string {
	tb.Helper()
	variables := defaults(tb, filepath.Join(folder, "variables.tf"))
	variables["project_id"] = cty.StringVal(Project)
	users := map[string]cty.Value{}
	for _, component := range Components() {
		users[component] = cty.StringVal(DatabaseUser(component, suffix))
	}
	outputs := good(hclsyntax.ParseExpression([]byte(modules), "modules", hcl.InitialPos))(tb)
	found := locals(tb, &hcl.EvalContext{
		Variables: map[string]cty.Value{
			"var":    cty.ObjectVal(variables),
			"module": good(outputs.Value(&hcl.EvalContext{Variables: map[string]cty.Value{"users": cty.MapVal(users)}}))(tb),
			"google_secret_manager_secret": cty.ObjectVal(map[string]cty.Value{
				"secret_key": cty.ObjectVal(map[string]cty.Value{"secret_id": cty.StringVal("SECRET_KEY")}),
			}),
		},
		Functions: map[string]function.Function{
			"tostring": stdlib.MakeToFunc(cty.String), "format": stdlib.FormatFunc, "join": stdlib.JoinFunc, "concat": stdlib.ConcatFunc,
			"merge": stdlib.MergeFunc,
		},
	}, filepath.Join(folder, "size.tf"), filepath.Join(folder, "environment.tf"))
	components := map[string][]string{}
	for name, environment := range found["environment"].AsValueMap() {
		for variable, value := range environment.AsValueMap() {
			components[name] = append(components[name], variable+"="+must.Get(convert.Convert(value, cty.String))(tb).AsString())
		}
	}
	for name, secrets := range found["secrets"].AsValueMap() {
		for variable := range secrets.AsValueMap() {
			components[name] = append(components[name], variable+"=")
		}
	}
	return components
}

// defaults returns the variables' default values.
func defaults(tb testing.TB, path string) map[string]cty.Value {
	tb.Helper()
	values := map[string]cty.Value{}
	for _, block := range parse(tb, path).Blocks {
		attribute, ok := block.Body.Attributes["default"]
		if block.Type != "variable" || !ok {
			continue
		}
		value := good(attribute.Expr.Value(nil))(tb)
		kind, inner, diags := typeexpr.TypeConstraintWithDefaults(block.Body.Attributes["type"].Expr)
		if good(inner, diags)(tb) != nil && !value.IsNull() {
			value = inner.Apply(value)
		}
		values[block.Labels[0]] = must.Get(convert.Convert(value, kind))(tb)
	}
	return values
}

// locals evaluates the locals of files, again and again as long as one refers to another.
func locals(tb testing.TB, context *hcl.EvalContext, paths ...string) map[string]cty.Value {
	tb.Helper()
	left := map[string]hclsyntax.Expression{}
	for _, path := range paths {
		for _, block := range parse(tb, path).Blocks {
			if block.Type == "locals" {
				for name, attribute := range block.Body.Attributes {
					left[name] = attribute.Expr
				}
			}
		}
	}
	values := map[string]cty.Value{"secrets": cty.EmptyObjectVal}
	for len(left) > 0 {
		before, failed := len(left), hcl.Diagnostics(nil)
		for name, expression := range left {
			context.Variables["local"] = cty.ObjectVal(values)
			if value, diags := expression.Value(context); diags.HasErrors() {
				failed = append(failed, diags...)
			} else {
				values[name] = value
				delete(left, name)
			}
		}
		if len(left) == before {
			tb.Fatal(failed)
		}
	}
	return values
}

func parse(tb testing.TB, path string) *hclsyntax.Body {
	tb.Helper()
	content := must.Get(os.ReadFile(path))(tb) //nolint:gosec // the configuration that was named
	body, _ := good(hclsyntax.ParseConfig(content, path, hcl.InitialPos))(tb).Body.(*hclsyntax.Body)
	return body
}

// good returns a value, and ends the test where the configuration is wrong.
func good[T any](value T, diags hcl.Diagnostics) func(testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		if diags.HasErrors() {
			tb.Fatal(diags)
		}
		return value
	}
}
