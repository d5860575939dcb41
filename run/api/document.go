package api

import (
	"encoding/json"
	"fmt"

	"github.com/danielgtaylor/huma/v2"
)

// Groups of the documentation.
const (
	tagService     = "Service"
	tagCustomers   = "Customers"
	tagRooms       = "Server rooms"
	tagSensors     = "Sensors"
	tagData        = "Data"
	tagAlerts      = "Alerts"
	tagPredictions = "Prediction feedback"
	tagLearning    = "Machine learning"
)

const overview = `Environmental monitoring of server rooms: temperature and relative humidity of sensors, alerts over thresholds, and predictions to validate.

Register, log in, and send the token as ` + "`Authorization: Bearer <ACCESS_TOKEN>`" + `; it is valid for 30 minutes.
Temperatures are in degrees Celsius, humidity in percent, times in RFC 3339 (UTC).
Every error has the body ` + "`{\"detail\": \"...\"}`" + `; what belongs to another customer is answered as if it did not exist.`

// config describes the API to huma: our JSON, our errors, unknown fields
// ignored, and none of huma's own pages.
func (a *api) config() huma.Config {
	config := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "Coldaisle API", Version: Version, Description: overview,
			},
			Servers: []*huma.Server{{URL: "/", Description: "The host that serves this document."}},
			Tags: []*huma.Tag{
				{Name: tagService, Description: "Whether the service is up."},
				{Name: tagCustomers, Description: "Registration, login and profile."},
				{Name: tagRooms, Description: "Server rooms of the caller."},
				{Name: tagSensors, Description: "Sensor nodes in the caller's rooms."},
				{Name: tagData, Description: "Readings of the caller's sensors."},
				{Name: tagAlerts, Description: "Alerts and the thresholds that raise them."},
				{Name: tagPredictions, Description: "Predictions to validate, and their statistics."},
				{Name: tagLearning, Description: "Training runs and forecasts."},
			},
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{bearerScheme: {
					Type: "http", Scheme: "bearer", BearerFormat: "JWT",
					Description: "The access_token of POST /api/v1/customers/login.",
				}},
			},
		},
		Formats:       map[string]huma.Format{"application/json": jsonFormat(), "json": jsonFormat()},
		DefaultFormat: "application/json",
		Transformers:  []huma.Transformer{problemOf},
	}
	return config
}

// describe writes the OpenAPI document, indented: people compare versions of it.
func (a *api) describe() ([]byte, error) {
	compact, err := json.Marshal(a.huma.OpenAPI())
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	var plain any
	if err := json.Unmarshal(compact, &plain); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	dropPatternDescriptions(plain)
	document, err := json.MarshalIndent(plain, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("indent: %w", err)
	}
	return append(document, '\n'), nil
}

// dropPatternDescriptions removes a keyword of huma's own, which words its
// messages and which JSON Schema does not know.
func dropPatternDescriptions(value any) {
	switch v := value.(type) {
	case map[string]any:
		if _, schema := v["pattern"].(string); schema {
			delete(v, "patternDescription")
		}
		for _, member := range v {
			dropPatternDescriptions(member)
		}
	case []any:
		for _, member := range v {
			dropPatternDescriptions(member)
		}
	}
}
