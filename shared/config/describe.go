package config

import (
	"reflect"
	"strings"
)

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
