package api

import (
	"context"
	"log/slog"
	"time"

	"coldaisle.dev/shared/readings"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/wire"
)

// secretKey signs the tokens of the tests.
const secretKey = "the key of the tests is long enough to be one"

// unused stands where a test asks no readings and publishes nothing.
type unused struct{ readings.Reader }

func (unused) Publish(context.Context, wire.Retraining) error { panic("published") }

func bareConfig(log *slog.Logger) Config {
	return Config{
		DB: &store.DB{}, Readings: unused{}, Publisher: unused{}, Drills: &publishedDrills{}, ProjectID: "project", DataTopic: "data", SecretKey: secretKey,
		Clock: time.Now, Log: log, PasswordCost: 4,
	}
}
