package rooms

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/run/api/audit"
	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/input"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
)

// defaultNodeType is the label of the standard node hardware.
const defaultNodeType = "ESP32-DHT22"

type sensor struct {
	ID       string  `json:"id" doc:"Identifier of the node hardware, the node_id of its readings." example:"esp32-7f3a"`
	Name     string  `json:"name" doc:"Name of the sensor." example:"Rack 12 top"`
	Type     string  `json:"type" doc:"Type of the node hardware." example:"ESP32-DHT22"`
	RoomID   int64   `json:"room_id" doc:"Room that the sensor is in." example:"3"`
	Position *string `json:"position" doc:"Where in the room, such as a rack position; null when not given." example:"R12/U40"`
	Channel  string  `json:"channel" enum:"open,signed" doc:"Whose readings are the sensor's: open, those of gateways that are not enrolled; signed, those of the account's own gateways." example:"signed"`
	// A page warns of it.
	AlsoUnenrolled bool `json:"also_unenrolled" doc:"Whether a signed sensor's id also came through a gateway that is not enrolled within a day. These readings are not the sensor's." example:"false"`
	// A page shows it; it raises nothing.
	CalibrationDue     *string `json:"calibration_due" format:"date" doc:"When it is to be calibrated again, by the newest correction that says when; null without one." example:"2031-03-01"`
	CalibrationOverdue bool    `json:"calibration_overdue" doc:"Whether that date has passed." example:"false"`
}

func sensorOf(s accounts.Sensor) sensor {
	out := sensor{
		ID: s.ID, Name: s.Name, Type: s.Type, RoomID: s.RoomID, Position: s.Position, Channel: "open", AlsoUnenrolled: s.AlsoUnenrolled,
		CalibrationDue: rest.Date(s.CalibrationDue), CalibrationOverdue: s.CalibrationOverdue,
	}
	if s.Signed {
		out.Channel = "signed"
	}
	return out
}

// newSensor accepts both bodies of the specification: {id, name, type, room_id}, all
// required, and {room_id, sensor_id, position}, without name and type (contract 4.5).
type newSensor struct {
	_        struct{}          `additionalProperties:"true"`
	ID       *input.NodeID     `json:"id,omitempty"`
	SensorID *input.NodeID     `json:"sensor_id,omitempty"`
	Name     *input.SingleLine `json:"name,omitempty" minLength:"1" maxLength:"80" doc:"Name of the sensor; with sensor_id it defaults to position." example:"Rack 12 top"`
	Type     *input.SingleLine `json:"type,omitempty" minLength:"1" maxLength:"50" doc:"Type of the node hardware; with sensor_id it defaults to ESP32-DHT22." example:"ESP32-DHT22"`
	RoomID   int64             `json:"room_id" doc:"One of the caller's rooms." example:"3"`
	Position *input.SingleLine `json:"position,omitempty" minLength:"1" maxLength:"80" doc:"Where in the room, such as a rack position." example:"R12/U40"`
}

// TransformSchema says which fields each body requires.
func (newSensor) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	s.AnyOf = []*huma.Schema{
		rest.Alternative("NewSensorByID", "A sensor by id, with its name and type.", "id", "name", "type"),
		rest.Alternative("NewSensorAtPosition", "A sensor by sensor_id and position, which is also its name where none is given.", "sensor_id", "position"),
		rest.Alternative("NewSensorByName", "A sensor by sensor_id and name.", "sensor_id", "name"),
	}
	return s
}

// Resolve names the missing field, which anyOf in the schema cannot.
func (n *newSensor) Resolve(huma.Context, *huma.PathBuffer) []error {
	var errs []error
	missing := func(field string) {
		errs = append(errs, &huma.ErrorDetail{Location: "body", Message: "expected required property " + field + " to be present"})
	}
	switch {
	case n.ID != nil && n.SensorID != nil && *n.ID != *n.SensorID:
		errs = append(errs, &huma.ErrorDetail{Location: "body.sensor_id", Message: "differs from id"})
	case n.SensorID != nil:
		if n.Name == nil && n.Position == nil {
			missing("position")
		}
	default:
		if n.ID == nil {
			missing("id")
		}
		if n.Name == nil {
			missing("name")
		}
		if n.Type == nil {
			missing("type")
		}
	}
	return errs
}

func (n *newSensor) sensor() accounts.NewSensor {
	nodeType := input.SingleLine(defaultNodeType)
	return accounts.NewSensor{
		ID: string(*cmp.Or(n.SensorID, n.ID)), Name: string(*cmp.Or(n.Name, n.Position)), Type: string(*cmp.Or(n.Type, &nodeType)),
		RoomID: n.RoomID, Position: (*string)(n.Position),
	}
}

// newSensors are discovered nodes that become sensors of a room.
type newSensors struct {
	_       struct{}       `additionalProperties:"true"`
	RoomID  int64          `json:"room_id" doc:"One of the caller's rooms." example:"3"`
	Sensors []placedSensor `json:"sensors" minItems:"1" maxItems:"200" nullable:"false" doc:"All of them are registered, or none."`
}

type placedSensor struct {
	_    struct{}         `additionalProperties:"true"`
	ID   input.NodeID     `json:"id"`
	Name input.SingleLine `json:"name" minLength:"1" maxLength:"80" doc:"Name of the sensor." example:"Rack 12 top"`
	Type input.SingleLine `json:"type,omitempty" default:"ESP32-DHT22" minLength:"1" maxLength:"50" doc:"Type of the node hardware." example:"ESP32-DHT22"`
}

// nullable is a text in a change. Null clears it; an absent field leaves it.
type nullable[T any] struct {
	Value *T
	set   bool
}

// Schema describes the text.
func (nullable[T]) Schema(registry huma.Registry) *huma.Schema {
	s := registry.Schema(reflect.TypeFor[T](), true, "")
	s.Nullable = true
	return s
}

// UnmarshalJSON reads a text or null. The schema has refused anything else. It returns
// no error, because the fields after it would then not be read.
func (p *nullable[T]) UnmarshalJSON(data []byte) error {
	p.set = true
	_ = json.Unmarshal(data, &p.Value)
	return nil
}

// Resolve applies the rule of a text.
func (p *nullable[T]) Resolve(ctx huma.Context, path *huma.PathBuffer) []error {
	if rule, ok := any(p.Value).(huma.ResolverWithPath); ok && p.Value != nil {
		return rule.Resolve(ctx, path)
	}
	return nil
}

type sensorChange struct {
	_        struct{}                   `additionalProperties:"true"`
	Name     input.SingleLine           `json:"name" minLength:"1" maxLength:"80" doc:"New name of the sensor." example:"Rack 12 top"`
	Type     input.SingleLine           `json:"type" minLength:"1" maxLength:"50" doc:"Type of the node hardware." example:"ESP32-DHT22"`
	RoomID   int64                      `json:"room_id" doc:"One of the caller's rooms; the sensor moves there." example:"3"`
	Position nullable[input.SingleLine] `json:"position,omitzero" minLength:"1" maxLength:"80" doc:"Where in the room. Null clears it; left out, it stays." example:"R12/U40"`
}

type updateSensorInput struct {
	input.SensorPath

	Body sensorChange
}

func (h *Handlers) registerSensors(r *rest.API) {
	// Called by the sensors page and by scripts that register many nodes. A repeat hears that
	// the sensor exists. Keys for some rooms may not call it: that answer reveals sensors of
	// other rooms, and a sensor that is created again shows its past.
	rest.Answer(r, rest.Operation{
		ID: "createSensor", Role: rest.Admin, Keys: rest.WriteKeys, Creates: true, Method: http.MethodPost, Path: "/api/v1/sensors/new_sensor", Tag: rest.TagSensors,
		Status: http.StatusCreated, Summary: "Register a sensor",
		Description: "Takes either body: `id`, `name`, `type`, `room_id`, or `room_id`, `sensor_id`, `position`.",
	}, h.createSensor, store.ErrSensorExists, store.ErrTooManyUnreported, store.ErrNoRoom)
	// Called by the setup page. A repeat hears that a sensor exists.
	rest.Answer(r, rest.Operation{
		ID: "createSensors", Role: rest.Admin, Keys: rest.WriteKeys, Creates: true, Method: http.MethodPost, Path: "/api/v1/sensors/new_sensors", Tag: rest.TagSensors,
		Status: http.StatusCreated, Summary: "Register many sensors of a room",
	}, h.createSensors, store.ErrSensorExists, store.ErrTooManyUnreported, store.ErrNoRoom)
	rest.Answer(r, rest.Operation{
		ID: "listSensors", Role: rest.Viewer, Keys: rest.ReadKeysInRooms, Method: http.MethodGet, Path: "/api/v1/sensors/list_sensors/{room_id}", Tag: rest.TagSensors,
		Summary: "List the sensors of a room",
	}, h.listSensors, store.ErrNoRoom)
	rest.Answer(r, rest.Operation{
		ID: "getSensor", Role: rest.Viewer, Keys: rest.ReadKeysInRooms, Method: http.MethodGet, Path: "/api/v1/sensors/sensor/{sensor_id}", Tag: rest.TagSensors,
		Summary: "Read a sensor",
	}, h.sensor, store.ErrNoSensor)
	// A repeat sets the same values again.
	rest.Answer(r, rest.Operation{
		ID: "updateSensor", Role: rest.Admin, Keys: rest.WriteKeysInRooms, Method: http.MethodPut, Path: "/api/v1/sensors/update_sensor/{sensor_id}", Tag: rest.TagSensors,
		Summary: "Change or move a sensor",
	}, h.updateSensor, store.ErrNoSensor, store.ErrNoRoom)
	// A repeat changes nothing. No API key may call it, because it lets gateways that nobody
	// has enrolled send for the sensor.
	rest.Answer(r, rest.Operation{
		ID: "setBackSensor", Role: rest.Admin, Method: http.MethodPost, Path: "/api/v1/sensors/{sensor_id}/channel", Tag: rest.TagSensors,
		Summary: "Set a sensor back to the open channel",
		Description: "A sensor is signed from the first reading of its id that one of the account's own gateways signs. This makes it accept " +
			"gateways that are not enrolled again, until the next signed reading.",
	}, h.setBackSensor, store.ErrNoSensor, store.ErrSensorExists, store.ErrTooManyUnreported)
	rest.Register(r, rest.Operation{
		ID: "deleteSensor", Role: rest.Admin, Keys: rest.WriteKeys, Method: http.MethodDelete, Path: "/api/v1/sensors/delete_sensor/{sensor_id}", Tag: rest.TagSensors,
		Summary:     "Delete a sensor",
		Description: "Readings already stored are kept; readings that arrive from then on are ignored until the identifier is registered again.",
	}, h.deleteSensor, store.ErrNoSensor)
	h.registerCorrections(r)
}

func (h *Handlers) createSensors(ctx context.Context, in *rest.Body[newSensors]) ([]sensor, error) {
	return audit.Changed(ctx, h.DB, func(tx *store.DB) ([]sensor, audit.Entry, error) {
		all := make([]sensor, 0, len(in.Body.Sensors))
		for _, s := range in.Body.Sensors {
			created, err := accounts.New(tx).CreateSensor(ctx, auth.Caller(ctx), accounts.NewSensor{
				ID: string(s.ID), Name: string(s.Name), Type: string(s.Type), RoomID: in.Body.RoomID, MaxUnreported: h.MaxUnreported,
			})
			if err != nil {
				return nil, audit.Entry{}, err
			}
			all = append(all, sensorOf(created))
		}
		return all, audit.Entry{Subject: audit.Subject("room", in.Body.RoomID), After: map[string]any{"sensors": all}}, nil
	})
}

func (h *Handlers) createSensor(ctx context.Context, in *rest.Body[newSensor]) (sensor, error) {
	wanted := in.Body.sensor()
	wanted.MaxUnreported = h.MaxUnreported
	return audit.Changed(ctx, h.DB, func(tx *store.DB) (sensor, audit.Entry, error) {
		created, err := accounts.New(tx).CreateSensor(ctx, auth.Caller(ctx), wanted)
		out := sensorOf(created)
		return out, audit.Entry{Subject: audit.Subject("sensor", wanted.ID), After: out}, err
	})
}

func (h *Handlers) listSensors(ctx context.Context, in *roomPath) ([]sensor, error) {
	found, err := accounts.New(h.DB).Sensors(ctx, auth.Caller(ctx), in.RoomID)
	return rest.List(found, sensorOf), err
}

func (h *Handlers) sensor(ctx context.Context, in *input.SensorPath) (sensor, error) {
	found, err := accounts.New(h.DB).Sensor(ctx, auth.Caller(ctx), in.SensorID)
	return sensorOf(found), err
}

func (h *Handlers) updateSensor(ctx context.Context, in *updateSensorInput) (sensor, error) {
	return h.change(ctx, in.SensorID, func(tx *store.DB, _ accounts.Sensor) (accounts.Sensor, error) {
		return accounts.New(tx).UpdateSensor(ctx, auth.Caller(ctx), in.SensorID, accounts.SensorChange{
			Name: string(in.Body.Name), Type: string(in.Body.Type), RoomID: in.Body.RoomID,
			Position: (*string)(in.Body.Position.Value), KeepPosition: !in.Body.Position.set,
		})
	})
}

// change changes a sensor, and answers with the result.
func (h *Handlers) change(ctx context.Context, id string, do func(tx *store.DB, before accounts.Sensor) (accounts.Sensor, error)) (sensor, error) {
	return audit.Updated(ctx, h.DB, audit.Subject("sensor", id), sensorOf,
		func(tx *store.DB) (accounts.Sensor, error) { return accounts.New(tx).Sensor(ctx, auth.Caller(ctx), id) }, do)
}

func (h *Handlers) setBackSensor(ctx context.Context, in *input.SensorPath) (sensor, error) {
	return h.change(ctx, in.SensorID, func(tx *store.DB, _ accounts.Sensor) (accounts.Sensor, error) {
		return accounts.New(tx).SetBackSensor(ctx, auth.Caller(ctx), in.SensorID, h.MaxUnreported)
	})
}

func (h *Handlers) deleteSensor(ctx context.Context, in *input.SensorPath) (*struct{}, error) {
	return nil, audit.Change(ctx, h.DB, func(tx *store.DB) (audit.Entry, error) {
		before, err := accounts.New(tx).Sensor(ctx, auth.Caller(ctx), in.SensorID)
		if err != nil {
			return audit.Entry{}, err
		}
		ended, err := h.End(ctx, tx, incident.Scope{SensorID: in.SensorID})
		if err != nil {
			return audit.Entry{}, err
		}
		return audit.Entry{Subject: audit.Subject("sensor", in.SensorID), Before: sensorOf(before), Also: ended}, accounts.New(tx).DeleteSensor(ctx, auth.Caller(ctx), in.SensorID)
	})
}
