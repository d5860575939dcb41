package rest

import (
	"slices"
)

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

// Role is what a person may do in the account. An operation names the lowest that it needs;
// the zero value refuses everybody.
type Role int

// The roles. Each may also do what the one before it may.
const (
	NoRole   Role = iota
	Viewer        // reads
	Operator      // takes incidents, judges, sets maintenance
	Admin         // changes rooms, sensors, rules, gateways and keys, and invites
	Owner         // changes and removes persons
)

// RoleNames returns the names of the roles, in the store and in the API.
func RoleNames() []string { return []string{"", "viewer", "operator", "admin", "owner"} }

func (r Role) String() string { return RoleNames()[r] }

// RoleOf returns the role with a name, or NoRole.
func RoleOf(name string) Role { return Role(max(0, slices.Index(RoleNames(), name))) }

func (r Role) detail() string {
	if r == NoRole {
		return "Only API keys may do this"
	}
	return "This needs the role " + r.String()
}

// Refuse returns why a person of a role may not call an operation, or "" for one that may.
func (r Role) Refuse(has string) string {
	if r == NoRole || RoleOf(has) < r {
		return r.detail()
	}
	return ""
}

// describe returns the sentence of the document on roles, and their errors.
func (r Role) describe() (sentence string, errs []*Error) {
	if r > Viewer || r == NoRole {
		errs = []*Error{Forbidden(r.detail())}
	}
	switch r {
	case NoRole:
		return "Role: none.", errs
	case Owner:
		return "Role: `owner`.", errs
	default:
		return "Role: `" + r.String() + "` or above.", errs
	}
}
