package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Listen calls notified with the payload of each notification of a channel, and listening once
// it is subscribed and misses none. It returns when ctx ends or the connection fails. It holds
// one connection of the pool, but never the only one.
func (db *DB) Listen(ctx context.Context, channel string, listening func(), notified func(payload string)) error {
	if db.Connections() < 2 {
		return errors.New("a pool of one connection cannot listen")
	}
	acquired, err := db.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connection to listen on: %w", err)
	}
	defer acquired.Release()
	connection := acquired.Conn()
	defer func() { // it must not return to the pool while it listens
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = connection.Close(closing)
	}()
	if _, err := connection.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return fmt.Errorf("listen to %s: %w", channel, err)
	}
	listening()
	for {
		notification, err := connection.WaitForNotification(ctx)
		if err != nil {
			return fmt.Errorf("notifications of %s: %w", channel, err)
		}
		notified(notification.Payload)
	}
}
