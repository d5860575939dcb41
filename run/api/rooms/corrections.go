package rooms

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"coldaisle.dev/run/api/audit"
	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/input"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
)

type newCorrection struct {
	_                 struct{}          `additionalProperties:"true"`
	SensorID          input.NodeID      `json:"sensor_id"`
	From              input.Timestamp   `json:"from" doc:"Readings of this time and later are corrected, until the next correction begins; ISO 8601, UTC where it has no offset. At least five minutes ahead." example:"2030-03-01T12:00:00Z"`
	TemperatureOffset float64           `json:"temperature_offset,omitempty" minimum:"-10" maximum:"10" doc:"°C that are added to what is measured; at most two decimals." example:"-0.3"`
	HumidityOffset    float64           `json:"humidity_offset,omitempty" minimum:"-30" maximum:"30" doc:"Percent relative humidity that are added to what is measured; at most two decimals." example:"1.5"`
	Certificate       *input.SingleLine `json:"certificate,omitempty" minLength:"1" maxLength:"200" doc:"Certificate of the calibration." example:"DAkkS 2026-1187"`
	SerialNumber      *input.SingleLine `json:"serial_number,omitempty" minLength:"1" maxLength:"80" doc:"Serial number of the sensor." example:"SHT-004711"`
	DueDate           *string           `json:"due_date,omitempty" format:"date" doc:"When it is to be calibrated again." example:"2031-03-01"`
	CalibratedBy      *input.SingleLine `json:"calibrated_by,omitempty" minLength:"1" maxLength:"80" doc:"Who has calibrated it." example:"Metrolab AG"`
}

// Resolve refuses offsets with more decimals than a window's values, which have two.
func (n *newCorrection) Resolve(_ huma.Context, path *huma.PathBuffer) (errs []error) {
	for field, offset := range map[string]float64{"temperature_offset": n.TemperatureOffset, "humidity_offset": n.HumidityOffset} {
		if reading.Round(offset) != offset {
			errs = append(errs, &huma.ErrorDetail{Location: path.With(field), Message: "must have at most two decimals"})
		}
	}
	return errs
}

type correction struct {
	ID                int64      `json:"id" doc:"Primary key." example:"12"`
	SensorID          string     `json:"sensor_id" doc:"The sensor." example:"esp32-7f3a"`
	From              rest.Time  `json:"from" doc:"From when it applies, UTC." example:"2030-03-01T12:00:00Z"`
	TemperatureOffset float64    `json:"temperature_offset" doc:"°C that are added to what is measured." example:"-0.3"`
	HumidityOffset    float64    `json:"humidity_offset" doc:"Percent relative humidity that are added to what is measured." example:"1.5"`
	Certificate       *string    `json:"certificate" doc:"Certificate of the calibration." example:"DAkkS 2026-1187"`
	SerialNumber      *string    `json:"serial_number" doc:"Serial number of the sensor." example:"SHT-004711"`
	DueDate           *string    `json:"due_date" format:"date" doc:"When it is to be calibrated again." example:"2031-03-01"`
	CalibratedBy      *string    `json:"calibrated_by" doc:"Who has calibrated it." example:"Metrolab AG"`
	State             string     `json:"state" enum:"planned,in_force,past,withdrawn" doc:"Whether it applies to readings of now." example:"in_force"`
	Overdue           bool       `json:"overdue" doc:"Whether it is in force and its due date has passed." example:"false"`
	Withdrawable      bool       `json:"withdrawable" doc:"Whether it can be withdrawn: until four minutes before it begins." example:"false"`
	AddedBy           string     `json:"added_by" doc:"Name of the person or API key that added it." example:"Ana"`
	AddedAt           rest.Time  `json:"added_at" doc:"When, UTC." example:"2030-03-01T11:00:00Z"`
	WithdrawnBy       *string    `json:"withdrawn_by" doc:"Name of the person or API key that withdrew it." example:"Ana"`
	WithdrawnAt       *rest.Time `json:"withdrawn_at" nullable:"true" doc:"When, UTC." example:"2030-03-01T11:30:00Z"`
}

func correctionOf(c accounts.Correction) correction {
	return correction{
		ID: c.ID, SensorID: c.SensorID, From: rest.UTC(c.From), TemperatureOffset: c.TemperatureOffset, HumidityOffset: c.HumidityOffset,
		Certificate: c.Certificate, SerialNumber: c.SerialNumber, DueDate: rest.Date(c.DueDate), CalibratedBy: c.CalibratedBy,
		State: c.State, Overdue: c.Overdue, Withdrawable: c.Withdrawable,
		AddedBy: c.AddedBy, AddedAt: rest.UTC(c.AddedAt), WithdrawnBy: c.WithdrawnBy, WithdrawnAt: rest.OptionalUTC(c.WithdrawnAt),
	}
}

type correctionPath struct {
	CorrectionID int64 `path:"correction_id" doc:"Id of a correction of one of the caller's sensors." example:"12"`
}

type correctionsInput struct {
	SensorID string `query:"sensor_id" maxLength:"50" doc:"All corrections of this sensor, newest first." example:"esp32-7f3a"`
}

func (h *Handlers) registerCorrections(r *rest.API) {
	// Called by the sensor's page. A repeat hears that the correction exists.
	rest.Answer(r, rest.Operation{
		ID: "addCorrection", Role: rest.Admin, Keys: rest.WriteKeysInRooms, Creates: true, Method: http.MethodPost, Path: "/api/v1/corrections", Tag: rest.TagSensors,
		Status: http.StatusCreated, Summary: "Add a correction of a sensor",
		Description: "Offsets from its calibration, which are added to each reading from a time on. Stored readings do not change.",
	}, h.addCorrection, store.ErrNoSensor, store.ErrCorrectionExists, store.ErrTooManyCorrections, errFromSoon)
	// Called by the sensor's page for one sensor, and by `monitor-gateway watch` for all.
	rest.Answer(r, rest.Operation{
		ID: "listCorrections", Role: rest.Viewer, Keys: rest.ReadKeysInRooms, Method: http.MethodGet, Path: "/api/v1/corrections", Tag: rest.TagSensors,
		Summary: "List corrections of sensors",
		Description: "With `sensor_id` all of that sensor, newest first. Without it those of all sensors, by sensor and time, that apply to " +
			"readings of the last day or will apply.",
	}, h.listCorrections, store.ErrNoSensor)
	rest.Register(r, rest.Operation{
		ID: "withdrawCorrection", Role: rest.Admin, Keys: rest.WriteKeysInRooms, Method: http.MethodDelete, Path: "/api/v1/corrections/{correction_id}", Tag: rest.TagSensors,
		Summary:     "Withdraw a correction",
		Description: "Until four minutes before it begins. It stays in the list of its sensor.",
	}, h.withdrawCorrection, store.ErrNoCorrection, errWithdrawLate)
}

var (
	errFromSoon     = rest.BadRequest("from: must lie at least five minutes ahead")
	errWithdrawLate = rest.Conflict("A correction can be withdrawn until four minutes before it begins; add another one")
)

func (h *Handlers) addCorrection(ctx context.Context, in *rest.Body[newCorrection]) (correction, error) {
	wanted := accounts.NewCorrection{
		SensorID: string(in.Body.SensorID), From: reading.TruncateTime(in.Body.From.Time),
		TemperatureOffset: in.Body.TemperatureOffset, HumidityOffset: in.Body.HumidityOffset,
		Certificate: (*string)(in.Body.Certificate), SerialNumber: (*string)(in.Body.SerialNumber),
		CalibratedBy: (*string)(in.Body.CalibratedBy), AddedBy: auth.Who(ctx),
	}
	if in.Body.DueDate != nil {
		due, err := time.Parse(time.DateOnly, *in.Body.DueDate)
		if err != nil {
			return correction{}, rest.BadRequest("due_date: must be a date")
		}
		wanted.DueDate = &due
	}
	return audit.Changed(ctx, h.DB, func(tx *store.DB) (correction, audit.Entry, error) {
		added, err := accounts.New(tx).AddCorrection(ctx, auth.Caller(ctx), wanted)
		if errors.Is(err, store.ErrCorrectionSoon) {
			err = errFromSoon
		}
		out := correctionOf(added)
		return out, audit.Entry{Subject: audit.Subject("sensor", out.SensorID), After: out}, err
	})
}

func (h *Handlers) listCorrections(ctx context.Context, in *correctionsInput) ([]correction, error) {
	if in.SensorID == "" {
		found, err := accounts.New(h.DB).Corrections(ctx, auth.Caller(ctx))
		return rest.List(found, correctionOf), err
	}
	found, err := accounts.New(h.DB).CorrectionsOf(ctx, auth.Caller(ctx), in.SensorID)
	return rest.List(found, correctionOf), err
}

func (h *Handlers) withdrawCorrection(ctx context.Context, in *correctionPath) (*struct{}, error) {
	return nil, audit.Change(ctx, h.DB, func(tx *store.DB) (audit.Entry, error) {
		before, err := accounts.New(tx).Correction(ctx, auth.Caller(ctx), in.CorrectionID)
		if err != nil {
			return audit.Entry{}, err
		}
		err = accounts.New(tx).WithdrawCorrection(ctx, auth.Caller(ctx), in.CorrectionID, auth.Who(ctx))
		if errors.Is(err, store.ErrCorrectionSoon) {
			err = errWithdrawLate
		}
		out := correctionOf(before)
		return audit.Entry{Subject: audit.Subject("sensor", out.SensorID), Before: out}, err
	})
}
