package rest

import (
	"slices"
)

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
