package main

import (
	"context"
	"net/http"
	"sync"
	"time"

	"coldaisle.dev/run/local/queue"
	"coldaisle.dev/shared/closing"
	"coldaisle.dev/shared/postgres"
	"coldaisle.dev/shared/proxytest"
)

// project is the name under which topics exist.
const project = "coldaisle-soak"

// maxOutstanding bounds the messages of one function in flight.
const maxOutstanding = 128

// pubSub is the local system's queue over a PostgreSQL of its own, which no event touches. It
// runs in this process, so that its memory is not counted as a program's.
type pubSub struct {
	GatewayProxy *proxytest.Proxy // used by the gateways
	ServiceProxy *proxytest.Proxy // used by functions and API
	Queue        *queue.Queue
}

func (c *cluster) startPubSub(ctx context.Context, dir string) error {
	database, err := postgres.Start(ctx, postgres.Options{Dir: dir, Log: c.log})
	if err != nil {
		return err
	}
	c.opened.Push("PostgreSQL of Pub/Sub", database.Stop)
	c.PubSub = &pubSub{}
	c.PubSub.Queue, err = queue.Open(ctx, queue.Config{
		DatabaseURL: database.URL(), Project: project, Clock: time.Now, Log: c.log, //nolint:forbidigo // as Google's service, which has no clock of ours
		// The soak's outages are shorter than production's, and there must be dead letters to redeliver.
		Policy: queue.Policy{MinBackoff: 500 * time.Millisecond, MaxBackoff: 10 * time.Second, MaxAttempts: 12, MaxOutstanding: maxOutstanding},
	})
	if err != nil {
		return err
	}
	c.opened.Push("queue", closing.NoError(c.PubSub.Queue.Close))
	for _, proxy := range []**proxytest.Proxy{&c.PubSub.GatewayProxy, &c.PubSub.ServiceProxy} {
		if *proxy, err = proxytest.New(ctx, c.PubSub.Queue.Address()); err != nil {
			return err
		}
		c.opened.Push("proxy of Pub/Sub", closing.NoError((*proxy).Close))
	}
	return nil
}

// push starts the pushes to the functions' load balancers.
func (c *cluster) push(ctx context.Context) {
	handlers := map[string]http.Handler{}
	for function, balancer := range c.Functions {
		handlers[function] = balancer.Config.Handler
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { c.PubSub.Queue.Run(ctx, handlers) })
	c.opened.Push("pushes", closing.NoError(func() { stop(); running.Wait() }))
}
