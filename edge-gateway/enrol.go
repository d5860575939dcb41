package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"coldaisle.dev/edge-gateway/enrolment"
)

// runEnrol is the subcommand enrol: it shows the account of the code, asks for confirmation, and
// enrols this machine's gateway.
func runEnrol(ctx context.Context, args, environ []string, in io.Reader, out io.Writer, installed installation) error {
	flags := flag.NewFlagSet("enrol", flag.ContinueOnError)
	flags.SetOutput(out)
	api := flags.String("api", "", "address of the API, https://…")
	yes := flags.Bool("yes", false, "do not ask")
	flags.Usage = func() {
		_, _ = fmt.Fprintln(out, "monitor-gateway enrol CODE --api URL [--yes]")
		flags.PrintDefaults()
	}
	code, err := parseAround(flags, args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("enrol: %w", err)
	}
	if code == "" || *api == "" {
		return errors.New("enrol: the code and --api are required: monitor-gateway enrol CODE --api URL")
	}
	folder := folderOf(withServiceEnvironment(environ, installed))
	confirm := func(o enrolment.Offer) bool {
		_, _ = fmt.Fprintf(out, "Account: %s\nGateway: %s\n", o.Account, o.Name)
		if o.Former != nil {
			_, _ = fmt.Fprintf(out, "This gateway is enrolled as %s of %s. Readings that it has not published yet will not be published.\n", o.Former.Name, o.Former.Account)
		}
		if *yes {
			return true
		}
		_, _ = fmt.Fprint(out, "Give this account the readings of this gateway? [y/N] ")
		answer, _ := bufio.NewReader(in).ReadString('\n')
		answer = strings.ToLower(strings.TrimSpace(answer))
		return answer == "y" || answer == "yes"
	}
	id, err := enrolment.Enrol(ctx, folder, code, *api, confirm)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "Enrolled as %s. The key is in %s.\nRestart the gateway if it runs: sudo systemctl restart monitor-gateway\n", id.GatewayID, folder)
	return err //nolint:wrapcheck // of the terminal
}

// parseAround parses flags before and after the one argument.
func parseAround(flags *flag.FlagSet, args []string) (argument string, err error) {
	if err := flags.Parse(args); err != nil {
		return "", err //nolint:wrapcheck // flag.ErrHelp among them
	}
	if flags.NArg() == 0 {
		return "", nil
	}
	argument = flags.Arg(0)
	if err := flags.Parse(flags.Args()[1:]); err != nil {
		return "", err //nolint:wrapcheck // flag.ErrHelp among them
	}
	if flags.NArg() > 0 {
		return "", fmt.Errorf("unknown arguments %q", flags.Args())
	}
	return argument, nil
}
