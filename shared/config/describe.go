package config

import (
	"reflect"
	"strings"
	"unicode"
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

// Misspelt returns the setting that a variable of another name seems to mean:
// one that differs in case, separators, or in a letter or two of a long name.
// Short names are compared exactly except for case: PORT is near to too many words.
func Misspelt(variable string, settings []Setting) (meant string, found bool) {
	letters := bare(variable)
	for _, s := range settings {
		if s.Name == variable {
			return "", false
		}
		own, allowed := bare(s.Name), 0
		switch {
		case len(own) >= 10:
			allowed = 2
		case len(own) >= 6:
			allowed = 1
		}
		if !found && distance(letters, own) <= allowed {
			meant, found = s.Name, true
		}
	}
	return meant, found
}

// bare is a name without case and separators.
func bare(name string) []rune {
	var letters []rune
	for _, r := range strings.ToUpper(name) {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			letters = append(letters, r)
		}
	}
	return letters
}

// distance is how many letters must be added, taken away, changed, or swapped with
// the next one to make a of b (optimal string alignment).
func distance(a, b []rune) int {
	var beforeLast []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range a {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range b {
			change := 1
			if a[i] == b[j] {
				change = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+change)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], beforeLast[j-1]+1)
			}
		}
		beforeLast, last = last, row
	}
	return last[len(b)]
}
