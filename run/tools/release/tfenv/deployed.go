// Package tfenv reads from the terraform configuration what each part of the
// system runs with in production. Tests start the parts with exactly that: a
// setting that the program or the configuration renames alone then fails one.
//
// Variables have their defaults, what only Google knows has a stand-in, which
// differs from every default of the programs.
package tfenv

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

// What stands in for what is made by terraform.
const (
	Project    = "stand-in"
	Connection = Project + ":europe-west1:coldaisle"
	Database   = "metadata"
	Dataset    = "dataset_of_stand_in"
	Table      = "table_of_stand_in"
	Bucket     = "models-of-stand-in"
	// AlertTopic and RetrainingTopic are named as by the topic module.
	AlertTopic      = "alerts-of-stand-in"
	RetrainingTopic = "model-retraining-of-stand-in"
	dataTopic       = "data-of-stand-in"
)

// Parts are those that run by an environment.
func Parts() []string {
	return []string{"api", "detect", "ingest", "migrate", "storealert", "train"}
}

// User is the stand-in of a part's database user. Tests that make the users give
// them a suffix of their own, for users belong to the whole server.
func User(part, suffix string) string { return "coldaisle-" + part + suffix + "@stand-in.iam" }

// Part is what one part runs with.
type Part struct {
	// Environment is what its variables are set to.
	Environment map[string]string
	// Secrets are the variables that Secret Manager fills.
	Secrets []string
}

// Environ is the environment as of os.Environ, the secrets being value.
func (p Part) Environ(value string) []string {
	var environ []string
	for _, name := range slices.Sorted(maps.Keys(p.Environment)) {
		environ = append(environ, name+"="+p.Environment[name])
	}
	for _, name := range p.Secrets {
		environ = append(environ, name+"="+value)
	}
	return environ
}

// Read returns the parts by name. folder is that of the configuration; suffix
// goes into the database users, see [User].
func Read(folder, suffix string) (map[string]Part, error) {
	parser := hclparse.NewParser()
	variables, err := defaults(parser, filepath.Join(folder, "variables.tf"))
	if err != nil {
		return nil, err
	}
	variables["project_id"] = cty.StringVal(Project)
	context := &hcl.EvalContext{
		Variables: map[string]cty.Value{"var": cty.ObjectVal(variables), "module": modules(suffix)},
		Functions: map[string]function.Function{
			"tostring": stdlib.MakeToFunc(cty.String), "format": stdlib.FormatFunc, "join": stdlib.JoinFunc, "concat": stdlib.ConcatFunc,
		},
	}
	found, err := locals(parser, filepath.Join(folder, "environment.tf"), context)
	if err != nil {
		return nil, err
	}
	parts := map[string]Part{}
	for name, environment := range found["environment"].AsValueMap() {
		part := Part{Environment: map[string]string{}}
		for variable, value := range environment.AsValueMap() {
			text, err := convert.Convert(value, cty.String)
			if err != nil {
				return nil, fmt.Errorf("%s of %s: %w", variable, name, err)
			}
			part.Environment[variable] = text.AsString()
		}
		if secrets := found["secrets"]; secrets.Type().HasAttribute(name) {
			part.Secrets = slices.Sorted(maps.Keys(secrets.GetAttr(name).AsValueMap()))
		}
		parts[name] = part
	}
	return parts, nil
}

// modules are the outputs of modules that environments are made of.
func modules(suffix string) cty.Value {
	users := map[string]cty.Value{}
	for _, part := range Parts() {
		users[part] = cty.StringVal(User(part, suffix))
	}
	object := func(attributes map[string]string) cty.Value {
		values := map[string]cty.Value{}
		for name, value := range attributes {
			values[name] = cty.StringVal(value)
		}
		return cty.ObjectVal(values)
	}
	return cty.ObjectVal(map[string]cty.Value{
		"database": cty.ObjectVal(map[string]cty.Value{
			"connection_name": cty.StringVal(Connection), "database": cty.StringVal(Database), "users": cty.MapVal(users),
		}),
		"domain":     cty.EmptyTupleVal, // none, as the variables' defaults have it
		"readings":   object(map[string]string{"dataset": Dataset, "table": Table}),
		"models":     object(map[string]string{"bucket": Bucket}),
		"secret_key": object(map[string]string{"name": "SECRET_KEY"}),
		"topic": cty.ObjectVal(map[string]cty.Value{
			"data":             object(map[string]string{"name": dataTopic}),
			"alerts":           object(map[string]string{"name": AlertTopic}),
			"model-retraining": object(map[string]string{"name": RetrainingTopic}),
		}),
	})
}

// defaults are the values of variables of which nothing is said.
func defaults(parser *hclparse.Parser, path string) (map[string]cty.Value, error) {
	body, err := parse(parser, path)
	if err != nil {
		return nil, err
	}
	values := map[string]cty.Value{}
	for _, block := range body.Blocks {
		attribute, ok := block.Body.Attributes["default"]
		if block.Type != "variable" || !ok {
			continue
		}
		value, faults := attribute.Expr.Value(nil)
		if faults.HasErrors() {
			return nil, fmt.Errorf("default of %s: %w", block.Labels[0], faults)
		}
		kind, inner, faults := typeexpr.TypeConstraintWithDefaults(block.Body.Attributes["type"].Expr)
		if faults.HasErrors() {
			return nil, fmt.Errorf("type of %s: %w", block.Labels[0], faults)
		}
		if inner != nil && !value.IsNull() {
			value = inner.Apply(value)
		}
		if values[block.Labels[0]], err = convert.Convert(value, kind); err != nil {
			return nil, fmt.Errorf("default of %s: %w", block.Labels[0], err)
		}
	}
	return values, nil
}

// locals evaluates the locals of a file.
func locals(parser *hclparse.Parser, path string, context *hcl.EvalContext) (map[string]cty.Value, error) {
	body, err := parse(parser, path)
	if err != nil {
		return nil, err
	}
	values := map[string]cty.Value{"secrets": cty.EmptyObjectVal}
	for _, block := range body.Blocks {
		if block.Type != "locals" {
			continue
		}
		for name, attribute := range block.Body.Attributes {
			value, faults := attribute.Expr.Value(context)
			if faults.HasErrors() {
				return nil, fmt.Errorf("local %s: %w", name, faults)
			}
			values[name] = value
		}
	}
	if _, ok := values["environment"]; !ok {
		return nil, fmt.Errorf("%s has no local environment", path)
	}
	return values, nil
}

func parse(parser *hclparse.Parser, path string) (*hclsyntax.Body, error) {
	content, err := os.ReadFile(path) //nolint:gosec // the configuration that was named
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	file, faults := parser.ParseHCL(content, path)
	if faults.HasErrors() {
		return nil, fmt.Errorf("read the configuration: %w", faults)
	}
	body, ok := file.Body.(*hclsyntax.Body)
	if !ok {
		return nil, fmt.Errorf("%s is not in terraform's own syntax", path)
	}
	return body, nil
}
