package doctor

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// Severity is the severity of a finding.
type Severity int

// The severities, ascending. A Warning is worth a look; the gateway does its work.
const (
	OK Severity = iota
	Warning
	Problem
)

// String is the word before a finding.
func (s Severity) String() string { return [...]string{"ok", "warning", "PROBLEM"}[s] }

// Finding is one result of an examination.
type Finding struct {
	Subject  string // such as settings, clock, outbox or network
	Severity Severity
	Text     string
	Remedy   string // what to do about it
}

// Report is the findings of an examination.
type Report struct {
	Findings []Finding
	Advice   string // follows them; it may be empty
}

// Healthy reports whether there is no problem.
func (r *Report) Healthy() bool { return r.count(Problem) == 0 }

// err returns the findings of at least a severity as an error of one line, or nil.
func (r *Report) err(least Severity) error {
	var texts []string
	for _, f := range r.Findings {
		if f.Severity >= least {
			texts = append(texts, f.Text)
		}
	}
	if len(texts) == 0 {
		return nil
	}
	return errors.New(strings.Join(texts, "; "))
}

func (r *Report) count(severity Severity) (n int) {
	for _, f := range r.Findings {
		if f.Severity == severity {
			n++
		}
	}
	return n
}

func (r *Report) ok(subject, format string, values ...any) {
	r.Findings = append(r.Findings, Finding{Subject: subject, Text: fmt.Sprintf(format, values...)})
}

func (r *Report) warn(subject, remedy, format string, values ...any) {
	r.Findings = append(r.Findings, Finding{subject, Warning, fmt.Sprintf(format, values...), remedy})
}

func (r *Report) problem(subject, remedy, format string, values ...any) {
	r.Findings = append(r.Findings, Finding{subject, Problem, fmt.Sprintf(format, values...), remedy})
}

// Write writes the report for a person at a terminal.
func (r *Report) Write(w io.Writer) error {
	var text strings.Builder
	subject := ""
	for _, f := range r.Findings {
		if f.Subject != subject {
			subject = f.Subject
			text.WriteString(subject + "\n")
		}
		paragraph(&text, fmt.Sprintf("  %-9s", f.Severity), f.Text)
		if f.Remedy != "" {
			paragraph(&text, strings.Repeat(" ", 9)+"→ ", f.Remedy)
		}
	}
	if r.Advice != "" {
		text.WriteString("\n" + r.Advice + "\n")
	}
	text.WriteString("\n" + r.summary() + "\n")
	if _, err := io.WriteString(w, text.String()); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// paragraph writes text with a margin, and indents further lines.
func paragraph(to *strings.Builder, margin, text string) {
	to.WriteString(margin + strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", 11)) + "\n")
}

func (r *Report) summary() string {
	problems, warnings := r.count(Problem), r.count(Warning)
	switch {
	case problems > 0 && warnings > 0:
		return fmt.Sprintf("%s and %s.", plural(problems, "problem"), plural(warnings, "warning"))
	case problems > 0:
		return plural(problems, "problem") + "."
	case warnings > 0:
		return "No problem, " + plural(warnings, "warning") + "."
	default:
		return "Everything is in order."
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
