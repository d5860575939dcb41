// Package config reads a program's config from its environment into a struct, and
// reports each error in a line of its own.
//
// Every component owns its config struct, with the names of its variables in `env`
// tags. Only mains and entrypoints pass the environment, so that nothing
// else depends on it.
package config

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"strings"
	"syscall"

	"github.com/caarlos0/env/v11"
)

// Validator is a config struct with rules for its values. Its error names the variables
// that break them.
type Validator interface {
	Validate() error
}

// Load fills a T from an environment in the form of [os.Environ]. Tags are those
// of caarlos0/env: `env:"PORT" envDefault:"8080"`, `env:"PROJECT_ID,required,notEmpty"`.
//
// The error joins all errors, one line each, beginning with the variable's
// name. No line repeats a value: a secret put into the wrong variable must not
// reach a log.
func Load[T any](environ []string) (T, error) {
	var config T
	if err := env.ParseWithOptions(&config, env.Options{Environment: env.ToMap(environ)}); err != nil {
		return config, joinErrors(reflect.TypeFor[T](), err)
	}
	if v, ok := any(config).(Validator); ok {
		if err := v.Validate(); err != nil {
			return config, fmt.Errorf("config: %w", err)
		}
	}
	return config, nil
}

// Defaults returns a T from an empty environment, for a program that sets some values of a
// component's config and keeps the defaults of the others.
func Defaults[T any]() T {
	var config T
	_ = env.ParseWithOptions(&config, env.Options{Environment: map[string]string{}}) // required variables are not set
	return config
}

// joinErrors turns the library's errors into lines that name the variable.
func joinErrors(config reflect.Type, err error) error {
	all, ok := errors.AsType[env.AggregateError](err)
	if !ok {
		return fmt.Errorf("config: %w", err)
	}
	lines := make([]error, 0, len(all.Errors))
	for _, err := range all.Errors {
		lines = append(lines, errorLine(config, err))
	}
	return errors.Join(lines...)
}

func errorLine(config reflect.Type, err error) error {
	if missing, ok := errors.AsType[env.VarIsNotSetError](err); ok {
		return fmt.Errorf("%s is required and not set", missing.Key)
	}
	if empty, ok := errors.AsType[env.EmptyVarError](err); ok {
		return fmt.Errorf("%s is required and empty", empty.Key)
	}
	if malformed, ok := errors.AsType[env.ParseError](err); ok {
		return fmt.Errorf("%s is not a valid %s", variableName(config, malformed.Name), typeName(malformed.Type))
	}
	return fmt.Errorf("config: %w", err)
}

// variableName finds the environment variable of a field, also in nested structs.
func variableName(config reflect.Type, field string) string {
	for f := range config.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("env"), ","); name != "" && f.Name == field {
			return name
		}
		if f.Type.Kind() == reflect.Struct {
			if name := variableName(f.Type, field); name != field {
				return name
			}
		}
	}
	return field
}

func typeName(t reflect.Type) string {
	switch {
	case t.PkgPath() == "time" && t.Name() == "Duration":
		return "duration (such as 15s or 5m)"
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		return "whole number"
	case t.Kind() == reflect.Float32 || t.Kind() == reflect.Float64:
		return "number"
	case t.Kind() == reflect.Bool:
		return "boolean (true or false)"
	default:
		return t.String()
	}
}

// PrintError writes an error of [Load], or any error that ended a program, for a user:
// the program's name before each line.
func PrintError(w io.Writer, program string, err error) {
	for text := range strings.SplitSeq(err.Error(), "\n") {
		_, _ = fmt.Fprintf(w, "%s: %s\n", program, text)
	}
}

// Setting is one variable of a config struct.
type Setting struct {
	Name     string
	Default  string // empty for none
	Help     string // of the tag help
	Required bool
}

// Describe returns the variables of a config struct in its order.
func Describe[T any]() []Setting {
	var described []Setting
	for _, field := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		name, options, _ := strings.Cut(field.Tag.Get("env"), ",")
		if name != "" {
			described = append(described, Setting{
				Name: name, Default: field.Tag.Get("envDefault"), Help: field.Tag.Get("help"),
				Required: strings.Contains(options, "required"),
			})
		}
	}
	return described
}

// Main is the body of a program's main. The context of run ends with an interrupt
// or SIGTERM. An error is printed by [PrintError] and ends the program with status
// 1; a request for help is not an error.
func Main(program string, run func(context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		PrintError(os.Stderr, program, err)
		os.Exit(1)
	}
}
