package rest

// Keys says which API keys may call an operation. The zero value refuses every key.
//
// A key limited to rooms reads and changes only resources in these rooms. It may not create
// or delete rooms and sensors: sensor ids are unique across rooms, so creating one would
// reveal other rooms' sensors, and a sensor that is created again shows its past. A handler
// of an operation with InRooms must only use queries that honour [store.InRooms].
type Keys int

// The uses of API keys. An operation for ReadKeys changes nothing, whatever its method.
const (
	NoKeys Keys = iota
	ReadKeys
	ReadKeysInRooms
	WatchKeysInRooms // the scope watch alone
	WriteKeys
	WriteKeysInRooms
	TakeKeysInRooms // write, and watch as far as the handler allows
)

// The scopes of API keys. All may read; write may change things, watch is for a program that calls people.
const (
	ScopeRead  = "read"
	ScopeWrite = "write"
	ScopeWatch = "watch"
)

// The errors for API keys that may not call an operation.
const (
	detailNoKeys   = "API keys may not do this"
	detailWriteKey = "This needs an API key with the scope write"
	detailTakeKey  = "This needs an API key with the scope write or watch"
	detailWatchKey = "This needs an API key with the scope watch"
	detailRoomsKey = "This needs an API key for all rooms"
)

func (k Keys) inRooms() bool { return k != ReadKeys && k != WriteKeys }

// Refuse returns why a key may not call an operation, or "" for one that may.
func (k Keys) Refuse(scope string, allRooms bool) string {
	switch {
	case k == NoKeys:
		return detailNoKeys
	case k == WatchKeysInRooms && scope != ScopeWatch:
		return detailWatchKey
	case k == TakeKeysInRooms && scope == ScopeRead:
		return detailTakeKey
	case (k == WriteKeys || k == WriteKeysInRooms) && scope != ScopeWrite:
		return detailWriteKey
	case !k.inRooms() && !allRooms:
		return detailRoomsKey
	default:
		return ""
	}
}

// describe returns the sentence of the document on API keys, and their errors.
func (k Keys) describe() (sentence string, errs []*Error) {
	forbid := func(detail string) { errs = append(errs, Forbidden(detail)) }
	if k == NoKeys {
		forbid(detailNoKeys)
		return "API keys: none.", errs
	}
	switch {
	case k == WatchKeysInRooms:
		sentence = "API keys: scope `watch`"
		forbid(detailWatchKey)
	case k == TakeKeysInRooms:
		sentence = "API keys: scope `write` or `watch`"
		forbid(detailTakeKey)
	case k >= WriteKeys:
		sentence = "API keys: scope `write`"
		forbid(detailWriteKey)
	default:
		sentence = "API keys: any scope"
	}
	if k.inRooms() {
		return sentence + "; a key for some rooms sees only these.", errs
	}
	forbid(detailRoomsKey)
	return sentence + ", for all rooms.", errs
}
