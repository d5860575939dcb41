package rest

import "github.com/danielgtaylor/huma/v2"

// version is the API's version; the paths carry its major number.
const version = "1.0.0"

// Groups of the documentation.
const (
	TagService     = "Service"
	TagCustomers   = "Customers"
	TagRooms       = "Server rooms"
	TagSensors     = "Sensors"
	TagGateways    = "Gateways"
	TagWatches     = "Watches"
	TagData        = "Data"
	TagAlerts      = "Alerts"
	TagIncidents   = "Incidents"
	TagPredictions = "Prediction feedback"
	TagLearning    = "Machine learning"
	TagPersons     = "Persons"
	TagKeys        = "API keys"
	TagAudit       = "Audit"
	TagRecords     = "Records"
)

// The security schemes' names in the document.
const (
	bearerScheme = "bearer"
	keyScheme    = "apiKey"
)

// schemaPrefix is the prefix of a reference to a named schema.
const schemaPrefix = "#/components/schemas/"

const overview = `Environmental monitoring of server rooms: temperature and relative humidity of sensors, alerts over thresholds, and predictions to validate.

Register, log in, and send the token as ` + "`Authorization: Bearer <ACCESS_TOKEN>`" + `; it is valid for 30 minutes.
Programs send an API key in its place; each operation says what a key may do.
Temperatures are in degrees Celsius, humidity in percent, times in RFC 3339 (UTC).
JSON answers to GET have an ` + "`ETag`" + `: sent back in ` + "`If-None-Match`" + `, one that has not changed is 304.
An optional field of a body that is null counts as absent, unless it says that null clears it.
Every error has the body ` + "`{\"detail\": \"...\"}`" + `; what belongs to another customer is answered as if it did not exist.`

// humaConfig describes the API to huma: our JSON, our errors, unknown fields
// ignored, and none of huma's own pages.
func (r *API) humaConfig() huma.Config {
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info:    &huma.Info{Title: "Coldaisle API", Version: version, Description: overview},
			Servers: []*huma.Server{{URL: "/", Description: "The host that serves this document."}},
			Tags: []*huma.Tag{
				{Name: TagService, Description: "Whether the service is up."},
				{Name: TagCustomers, Description: "Registration, login and profile."},
				{Name: TagRooms, Description: "Server rooms of the caller."},
				{Name: TagSensors, Description: "Sensor nodes in the caller's rooms."},
				{Name: TagGateways, Description: "Gateways enrolled to the caller, and the nodes that they hear."},
				{Name: TagWatches, Description: "The caller's programs on site that call people."},
				{Name: TagData, Description: "Readings of the caller's sensors."},
				{Name: TagAlerts, Description: "Alerts and the thresholds that raise them."},
				{Name: TagIncidents, Description: "What is wrong, where, since when; the rules that say so, and maintenance windows."},
				{Name: TagPredictions, Description: "Predictions to validate, and their statistics."},
				{Name: TagLearning, Description: "Training runs and forecasts."},
				{Name: TagPersons, Description: "Who logs in for the account, and as what."},
				{Name: TagKeys, Description: "Keys by which programs call, in place of a login."},
				{Name: TagAudit, Description: "Who changed what."},
				{Name: TagRecords, Description: "Signed monthly records of rooms."},
			},
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry(schemaPrefix, huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{bearerScheme: {
					Type: "http", Scheme: "bearer", BearerFormat: "JWT",
					Description: "The access_token of POST /api/v1/customers/login.",
				}, keyScheme: {
					Type: "http", Scheme: "bearer", BearerFormat: "cold_…",
					Description: "An API key of POST /api/v1/api-keys. Each operation says which keys may call it; anything else is 403.",
				}},
			},
			OnAddOperation: []huma.AddOpFunc{r.complete},
		},
		Formats:       map[string]huma.Format{"application/json": jsonFormat(), "json": jsonFormat()},
		DefaultFormat: "application/json",
		Transformers:  []huma.Transformer{r.transformError},
	}
}

// Alternative describes one of the sets of fields that a body may have: its name in the
// document, and the fields that it requires besides those that are always required.
func Alternative(name, description string, required ...string) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, Title: name, Description: description, Required: required}
}

// NamedSchema gives a schema a name in the document and returns a reference to it.
func NamedSchema(registry huma.Registry, name string, schema *huma.Schema) *huma.Schema {
	registry.Map()[name] = schema
	return &huma.Schema{Ref: schemaPrefix + name}
}
