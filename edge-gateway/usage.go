package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"coldaisle.dev/shared/config"
)

func usage(out io.Writer) error {
	var text strings.Builder
	text.WriteString(`monitor-gateway takes the readings of a site's sensor nodes and publishes them.

  monitor-gateway           serve until SIGTERM or an interrupt
  monitor-gateway doctor    examine this machine's gateway, its settings and its
                            network, and say what is wrong (doctor -h: more)
  monitor-gateway healthy   fail unless the gateway of this machine is well within a
                            minute, for scripts that upgrade it
  monitor-gateway enrol CODE --api URL
                            make this gateway the customer's whose code it is
  monitor-gateway drill CODE
                            send an alarm drill through this machine's gateway
  monitor-gateway watch --config FILE
                            tell people of the account's incidents until SIGTERM
  monitor-gateway watch test --config FILE
                            send one message through each step; init writes a first
                            configuration, doctor says who would be told of an incident
                            now, take takes one (watch -h: more)
  monitor-gateway version   print what was built
  monitor-gateway help      print this

The settings are environment variables:

`)
	columns := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, s := range config.Describe[Config]() {
		_, _ = fmt.Fprintf(columns, "  %s\t%s\t%s\n", s.Name, presetting(s), s.Help)
	}
	_ = columns.Flush()
	_, err := io.WriteString(out, text.String())
	return err //nolint:wrapcheck // of the terminal
}

func presetting(s config.Setting) string {
	if s.Required {
		return "(required)"
	}
	return cmp.Or(s.Default, "-")
}
