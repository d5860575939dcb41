package api

import (
	"context"
	"net/http"

	"coldaisle.dev/run/api/rest"
)

// healthPath is asked by Cloud Run's probes and by the dashboard.
const healthPath = "/health"

type health struct {
	Status string `json:"status" enum:"healthy" doc:"Always healthy while the service answers." example:"healthy"`
}

// registerHealth adds the probe. It says that this process answers, and asks
// nothing of the database: a restart would not mend that.
func registerHealth(r *rest.API) {
	rest.Answer(r, rest.Operation{
		ID: "getHealth", Method: http.MethodGet, Path: healthPath, Tag: rest.TagService, Public: true,
		Summary: "Tell whether the service is up",
	}, func(context.Context, *struct{}) (health, error) {
		return health{Status: "healthy"}, nil
	})
}
