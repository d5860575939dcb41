package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"coldaisle.dev/edge-gateway/gateway"
)

// runDrill is the subcommand drill: this machine's gateway sends an alarm drill.
func runDrill(ctx context.Context, args, environ []string, out io.Writer, installed installation) error {
	if len(args) != 1 || strings.HasPrefix(args[0], "-") || len(args[0]) > gateway.MaxDrillCode {
		return errors.New("drill: the code from the page or POST /api/v1/drills is required: monitor-gateway drill CODE")
	}
	socket := filepath.Join(folderOf(withServiceEnvironment(environ, installed)), gateway.ControlSocket)
	client := gateway.LocalClient(socket)
	client.Timeout = 30 * time.Second
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://gateway/drill", strings.NewReader(args[0]))
	if err != nil {
		return fmt.Errorf("drill: %w", err)
	}
	answer, err := client.Do(request) //nolint:gosec // a socket of this machine
	if err != nil {
		return fmt.Errorf("drill: no gateway answers at %s: %w", socket, err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		var problem struct{ Error string }
		_ = json.NewDecoder(answer.Body).Decode(&problem) // optional
		return fmt.Errorf("drill: not sent: %s", problem.Error)
	}
	_, err = fmt.Fprintln(out, "The drill is sent. Its stages are on the page Drills, and in GET /api/v1/drills.")
	return err //nolint:wrapcheck // of the terminal
}
