// Package tfenv reads each component's environment from the terraform configuration.
// Tests start the components with exactly that environment, so that a test fails when
// a variable is renamed in the program or in terraform alone. It is for tests only.
//
// Terraform's variables have their defaults. Values that only Google Cloud knows have
// stand-ins, which differ from every default of the programs.
package tfenv

import (
	"errors"
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

// Stand-ins for resources that terraform creates.
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

// Components lists the components that have an environment.
func Components() []string {
	return []string{"api", "detect", "ingest", "migrate", "storealert", "train"}
}

// DatabaseUser is the stand-in for a component's database user. Tests that create the
// users add a suffix of their own, because users belong to the whole server.
func DatabaseUser(component, suffix string) string {
	return "coldaisle-" + component + suffix + "@stand-in.iam"
}

// Component is the environment of one component.
type Component struct {
	// Environment maps variables to their values.
	Environment map[string]string
	// Secrets are the variables that Secret Manager fills.
	Secrets []string
}

// Environ returns the environment in the form of os.Environ, with value for each
// secret.
func (p Component) Environ(value string) []string {
	var environ []string
	for _, name := range slices.Sorted(maps.Keys(p.Environment)) {
		environ = append(environ, name+"="+p.Environment[name])
	}
	for _, name := range p.Secrets {
		environ = append(environ, name+"="+value)
	}
	return environ
}

// Read returns the components by name. folder is the configuration's; suffix goes into
// the database users, see [DatabaseUser].
func Read(folder, suffix string) (map[string]Component, error) {
	parser := hclparse.NewParser()
	variables, err := defaults(parser, filepath.Join(folder, "variables.tf"))
	if err != nil {
		return nil, err
	}
	variables["project_id"] = cty.StringVal(Project)
	context := &hcl.EvalContext{
		Variables: map[string]cty.Value{
			"var": cty.ObjectVal(variables), "module": modules(suffix),
			"google_secret_manager_secret": cty.ObjectVal(map[string]cty.Value{
				"secret_key": cty.ObjectVal(map[string]cty.Value{"secret_id": cty.StringVal("SECRET_KEY")}),
			}),
		},
		Functions: map[string]function.Function{
			"tostring": stdlib.MakeToFunc(cty.String), "format": stdlib.FormatFunc, "join": stdlib.JoinFunc, "concat": stdlib.ConcatFunc,
			"merge": stdlib.MergeFunc,
		},
	}
	found, err := locals(parser, context, filepath.Join(folder, "size.tf"), filepath.Join(folder, "environment.tf"))
	if err != nil {
		return nil, err
	}
	components := map[string]Component{}
	for name, environment := range found["environment"].AsValueMap() {
		component := Component{Environment: map[string]string{}}
		for variable, value := range environment.AsValueMap() {
			text, err := convert.Convert(value, cty.String)
			if err != nil {
				return nil, fmt.Errorf("%s of %s: %w", variable, name, err)
			}
			component.Environment[variable] = text.AsString()
		}
		if secrets := found["secrets"]; secrets.Type().HasAttribute(name) {
			component.Secrets = slices.Sorted(maps.Keys(secrets.GetAttr(name).AsValueMap()))
		}
		components[name] = component
	}
	return components, nil
}

// modules returns the module outputs that the environments refer to.
func modules(suffix string) cty.Value {
	users := map[string]cty.Value{}
	for _, component := range Components() {
		users[component] = cty.StringVal(DatabaseUser(component, suffix))
	}
	object := func(attributes map[string]string) cty.Value {
		values := map[string]cty.Value{}
		for name, value := range attributes {
			values[name] = cty.StringVal(value)
		}
		return cty.ObjectVal(values)
	}
	topic := func(name string) cty.Value {
		return cty.ObjectVal(map[string]cty.Value{
			"name": cty.StringVal(name), "dead_letter": object(map[string]string{"topic": "projects/" + Project + "/topics/" + name + "-dead-letter"}),
		})
	}
	return cty.ObjectVal(map[string]cty.Value{
		"database": cty.ObjectVal(map[string]cty.Value{
			"connection_name": cty.StringVal(Connection), "database": cty.StringVal(Database), "users": cty.MapVal(users),
		}),
		"domain":   cty.EmptyTupleVal, // none, as the variables' defaults have it
		"readings": object(map[string]string{"dataset": Dataset, "table": Table}),
		"models":   object(map[string]string{"bucket": Bucket}),
		"records":  object(map[string]string{"bucket": Bucket + "-records"}),
		"gateways": object(map[string]string{"publishing_account": "coldaisle-gateways@" + Project + ".iam.gserviceaccount.com"}),
		"topic": cty.ObjectVal(map[string]cty.Value{
			"data":             topic(dataTopic),
			"alerts":           topic(AlertTopic),
			"model-retraining": topic(RetrainingTopic),
		}),
	})
}

// defaults returns the variables' default values.
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
		value, diags := attribute.Expr.Value(nil)
		if diags.HasErrors() {
			return nil, fmt.Errorf("default of %s: %w", block.Labels[0], diags)
		}
		kind, inner, diags := typeexpr.TypeConstraintWithDefaults(block.Body.Attributes["type"].Expr)
		if diags.HasErrors() {
			return nil, fmt.Errorf("type of %s: %w", block.Labels[0], diags)
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

// locals evaluates the locals of files, again and again as long as one refers to another.
func locals(parser *hclparse.Parser, context *hcl.EvalContext, paths ...string) (map[string]cty.Value, error) {
	left := map[string]hclsyntax.Expression{}
	for _, path := range paths {
		body, err := parse(parser, path)
		if err != nil {
			return nil, err
		}
		for _, block := range body.Blocks {
			if block.Type == "locals" {
				for name, attribute := range block.Body.Attributes {
					left[name] = attribute.Expr
				}
			}
		}
	}
	values := map[string]cty.Value{"secrets": cty.EmptyObjectVal}
	for len(left) > 0 {
		before, failed := len(left), error(nil)
		for _, name := range slices.Sorted(maps.Keys(left)) {
			context.Variables["local"] = cty.ObjectVal(values)
			value, diags := left[name].Value(context)
			if diags.HasErrors() {
				failed = errors.Join(failed, fmt.Errorf("local %s: %w", name, diags))
				continue
			}
			values[name] = value
			delete(left, name)
		}
		if len(left) == before {
			return nil, failed
		}
	}
	if _, ok := values["environment"]; !ok {
		return nil, errors.New("there is no local environment")
	}
	return values, nil
}

func parse(parser *hclparse.Parser, path string) (*hclsyntax.Body, error) {
	content, err := os.ReadFile(path) //nolint:gosec // the configuration that was named
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	file, diags := parser.ParseHCL(content, path)
	if diags.HasErrors() {
		return nil, fmt.Errorf("read the configuration: %w", diags)
	}
	body, ok := file.Body.(*hclsyntax.Body)
	if !ok {
		return nil, fmt.Errorf("%s is not in terraform's own syntax", path)
	}
	return body, nil
}
