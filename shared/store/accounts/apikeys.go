package accounts

import (
	"context"
	"time"

	"coldaisle.dev/shared/store"
)

// KeyHash is the SHA-256 of an API key.
type KeyHash [32]byte

// MaxAPIKeys is how many API keys a customer may have.
const MaxAPIKeys = 100

// APIKey is a key with which a program calls the API for a customer. The key itself is not
// stored.
type APIKey struct {
	ID         int64
	CustomerID int64
	Name       string
	Prefix     string // the key's first characters
	Scope      string
	RoomIDs    []int64 // nil for all, see [store.InRooms]
	CreatedAt  time.Time
	ExpiresAt  *time.Time // nil: never
	LastUsedAt *time.Time // to a minute; nil: never
}

// NewAPIKey is a key to be created.
type NewAPIKey struct {
	Name, Prefix, Scope string
	Hash                KeyHash
	RoomIDs             []int64 // nil for all
	ExpiresAt           *time.Time
	CreatedBy           int64 // person
}

const keyColumns = `api_keys.id, api_keys.customer_id, api_keys.name, api_keys.prefix, api_keys.scope, api_keys.room_ids,
	api_keys.created_at, api_keys.expires_at, api_keys.last_used_at`

// CreateAPIKey stores a key. Call it after [Store.LockChanges]. Errors: [store.ErrNoRoom]
// for a room that is not the customer's, [store.ErrTooManyAPIKeys].
func (s Store) CreateAPIKey(ctx context.Context, customerID int64, n NewAPIKey) (APIKey, error) {
	for _, room := range n.RoomIDs {
		if _, err := s.Room(ctx, customerID, room); err != nil {
			return APIKey{}, err
		}
	}
	return store.One[APIKey](ctx, s.db, store.ErrTooManyAPIKeys, `
		INSERT INTO api_keys (customer_id, name, prefix, hash, scope, room_ids, expires_at, created_by)
		SELECT @customer, @name, @prefix, @hash, @scope, @rooms::bigint[], @expires::timestamptz, @by
		WHERE (SELECT count(*) FROM api_keys WHERE customer_id = @customer) < @max
		RETURNING `+keyColumns,
		store.Args{
			"customer": customerID, "name": n.Name, "prefix": n.Prefix, "hash": n.Hash[:], "scope": n.Scope, "rooms": n.RoomIDs,
			"expires": n.ExpiresAt, "max": MaxAPIKeys, "by": n.CreatedBy,
		}, "create API key")
}

// APIKeys lists a customer's keys, oldest first.
func (s Store) APIKeys(ctx context.Context, customerID int64) ([]APIKey, error) {
	return store.All[APIKey](ctx, s.db, `
		SELECT `+keyColumns+`
		FROM api_keys
		WHERE customer_id = @customer
		ORDER BY id`,
		store.Args{"customer": customerID}, "API keys of customer %d", customerID)
}

// APIKeysBy lists the keys that a customer's person has made, oldest first.
func (s Store) APIKeysBy(ctx context.Context, customerID, person int64) ([]APIKey, error) {
	return store.All[APIKey](ctx, s.db, `
		SELECT `+keyColumns+`
		FROM api_keys
		WHERE customer_id = @customer AND created_by = @person
		ORDER BY id`,
		store.Args{"customer": customerID, "person": person}, "API keys of person %d", person)
}

// DeleteAPIKey deletes a customer's key and returns it, or [store.ErrNoAPIKey].
func (s Store) DeleteAPIKey(ctx context.Context, customerID, id int64) (APIKey, error) {
	return store.One[APIKey](ctx, s.db, store.ErrNoAPIKey, `
		DELETE FROM api_keys
		WHERE id = @id AND customer_id = @customer
		RETURNING `+keyColumns,
		store.Args{"id": id, "customer": customerID}, "delete API key %d", id)
}

// APIKeysByHash returns the keys with one of the hashes, of any customer.
func (s Store) APIKeysByHash(ctx context.Context, hashes []KeyHash) (map[KeyHash]APIKey, error) {
	type row struct {
		APIKey

		Hash []byte
	}
	wanted := make([][]byte, len(hashes))
	for i := range hashes {
		wanted[i] = hashes[i][:]
	}
	found, err := store.All[row](ctx, s.db, `
		SELECT `+keyColumns+`, hash
		FROM api_keys
		WHERE hash = ANY(@hashes)`,
		store.Args{"hashes": wanted}, "%d API keys by hash", len(hashes))
	keys := make(map[KeyHash]APIKey, len(found))
	for _, r := range found {
		keys[KeyHash(r.Hash)] = r.APIKey
	}
	return keys, err
}

// RecordAPIKeyUses sets the last use of keys to now, but for those that another transaction holds: requests
// with any key wait for it.
func (s Store) RecordAPIKeyUses(ctx context.Context, ids []int64) error {
	return s.db.Exec(ctx, `
		UPDATE api_keys
		SET last_used_at = now()
		WHERE id IN (SELECT id FROM api_keys WHERE id = ANY(@ids) FOR NO KEY UPDATE SKIP LOCKED)`,
		store.Args{"ids": ids}, "record uses of %d API keys", len(ids))
}
