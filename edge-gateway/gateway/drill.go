package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"

	"github.com/go-json-experiment/json/v1"

	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/wire"
)

// ControlSocket is the name of the socket in the gateway's folder that [Gateway.ServeControl] serves.
const ControlSocket = "control.sock"

// MaxDrillCode bounds the code of a drill, in bytes.
const MaxDrillCode = 100

// validateDrill refuses a drill from a node: only the operator of the gateway's machine may send one.
func validateDrill(drill json.RawMessage) error {
	if drill != nil {
		return errors.New("drill must not be sent by nodes")
	}
	return nil
}

// Control answers the operator of the gateway's machine: POST /drill with the code as its body
// sends an alarm drill. Serve it at a socket that cannot be reached from the network.
func (g *Gateway) Control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /drill", func(w http.ResponseWriter, r *http.Request) {
		body, ok := g.requests.read(w, r, MaxDrillCode, detailBody)
		if !ok {
			return
		}
		if err := g.sender.drill(r.Context(), string(body)); err != nil {
			write(w, http.StatusInternalServerError, errorBody{Error: err.Error()})
			return
		}
		write(w, http.StatusOK, struct{}{})
	})
	return mux
}

// ServeControl serves [Gateway.Control] at a socket in a folder, which only the gateway's user and
// root may open. A failure is logged, and nodes are still served.
func (g *Gateway) ServeControl(ctx context.Context, folder string, log *slog.Logger) error {
	listener, err := ListenLocal(ctx, filepath.Join(folder, ControlSocket)) // no other gateway serves it: the outbox is locked
	if err != nil {
		log.ErrorContext(ctx, "no control socket: drills cannot be sent from here", "error", err.Error())
		<-ctx.Done()
		return nil
	}
	return Serve(ctx, listener, g.Control(), log)
}

// drill signs and publishes the message of an alarm drill. It is not kept while Pub/Sub is
// unavailable: a drill that comes late has failed.
func (s *sender) drill(ctx context.Context, code string) error {
	if s.signer.enrolment == nil {
		return errors.New("this gateway is not enrolled: nobody would know whose drill it is")
	}
	at := reading.TruncateTime(s.clock())
	encoded := wire.EncodeDrill(code, at)
	m := s.signer.message(reading.Reading{NodeID: reading.ProbeNodeID, Time: at}, encoded, 0, s.signer.enrolmentID())
	return s.publishNow(ctx, m)
}
