package tfenv

import (
	"fmt"

	"github.com/caarlos0/env/v11"
)

// Mismatches compares a component's environment with the config struct that reads it,
// and returns a line for each variable that only one of them has. settings points to
// the struct.
func Mismatches(component Component, settings any) ([]string, error) {
	fields, err := env.GetFieldParamsWithOptions(settings, env.Options{Environment: map[string]string{}})
	if err != nil {
		return nil, fmt.Errorf("read the settings' names: %w", err)
	}
	read, set := map[string]bool{}, map[string]bool{}
	for name := range component.Environment {
		set[name] = true
	}
	for _, name := range component.Secrets {
		set[name] = true
	}
	var lines []string
	for _, field := range fields {
		read[field.Key] = true
		if field.Required && !set[field.Key] {
			lines = append(lines, field.Key+" is required and not set")
		}
	}
	for name := range set {
		if !read[name] {
			lines = append(lines, name+" is set and nothing reads it")
		}
	}
	return lines, nil
}
