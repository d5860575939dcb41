package gateway

import (
	"maps"
	"slices"
)

// Routes returns the methods of each path that a gateway answers.
func (g *Gateway) Routes() map[string][]string {
	routes := map[string][]string{}
	for path, methods := range g.routes() {
		routes[path] = slices.Sorted(maps.Keys(methods))
	}
	return routes
}
