package api

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"coldaisle.dev/run/api/alerting"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/wire"
)

// secretKey signs the tokens of the tests.
const secretKey = "the key of the tests is long enough to be one"

// published is a topic that takes messages, or fails to.
type published[M any] struct {
	mu    sync.Mutex
	taken []M
	fail  error
}

func (p *published[M]) Publish(_ context.Context, m M) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fail == nil {
		p.taken = append(p.taken, m)
	}
	return p.fail
}

func (p *published[M]) all() []M {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.taken)
}

func (p *published[M]) last() M { return p.all()[len(p.all())-1] }

func (p *published[M]) failing(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail = err
}

func bareConfig(log *slog.Logger) Config {
	return Config{
		DB: &store.DB{}, Readings: fakeReader{}, Publisher: &published[wire.Retraining]{}, Drills: &published[alerting.DrillMessage]{}, ProjectID: "project", DataTopic: "data", SecretKey: secretKey,
		Clock: time.Now, Log: log, PasswordCost: 4,
	}
}
