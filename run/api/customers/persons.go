package customers

import (
	"context"
	"errors"
	"net/http"
	"time"

	"coldaisle.dev/run/api/audit"
	"coldaisle.dev/run/api/auth"
	"coldaisle.dev/run/api/input"
	"coldaisle.dev/run/api/rest"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/accounts"
	"coldaisle.dev/shared/store/incidents"
)

// PersonFields is exported only because huma reads no embedded fields of unexported types.
type PersonFields struct {
	ID    int64  `json:"id" doc:"Primary key." example:"9"`
	Name  string `json:"name" doc:"What everybody is shown." example:"Ana"`
	Email string `json:"email" doc:"E-mail address." example:"ana@example.com"`
	Role  string `json:"role" enum:"viewer,operator,admin,owner" doc:"What the person may do." example:"operator"`
}

func personOf(p accounts.Person) PersonFields { return PersonFields{p.ID, p.Name, p.Email, p.Role} }

type listedPerson struct {
	PersonFields

	Self bool `json:"self" doc:"Whether it is the caller." example:"false"`
}

// InvitationFields is exported for the same reason.
type InvitationFields struct {
	ID        int64     `json:"id" doc:"Primary key." example:"4"`
	Email     string    `json:"email" doc:"Who is invited." example:"ana@example.com"`
	Role      string    `json:"role" enum:"viewer,operator,admin,owner" doc:"As what." example:"operator"`
	InvitedBy string    `json:"invited_by" doc:"Who invites." example:"coldaisle"`
	ExpiresAt rest.Time `json:"expires_at" doc:"Until when the code is valid, UTC." example:"2026-03-04T12:00:00Z"`
}

func invitationOf(i accounts.Invitation) InvitationFields {
	return InvitationFields{i.ID, i.Email, i.Role, i.InvitedBy, rest.UTC(i.ExpiresAt)}
}

type createdInvitation struct {
	InvitationFields

	Code string `json:"code" doc:"The code. It is shown here and never again." example:"ABCDEFGHIJKLMNOPQRSTUVWXYZ"`
}

type roleChange struct {
	_    struct{} `additionalProperties:"true"`
	Role string   `json:"role" enum:"viewer,operator,admin,owner" doc:"What the person may do from now on." example:"admin"`
}

type newInvitation struct {
	_     struct{}    `additionalProperties:"true"`
	Email input.Email `json:"email"`
	Role  string      `json:"role" enum:"viewer,operator,admin,owner" doc:"As what." example:"operator"`
}

type acceptance struct {
	_        struct{}          `additionalProperties:"true"`
	Code     string            `json:"code" minLength:"1" maxLength:"100" doc:"The code." example:"ABCDEFGHIJKLMNOPQRSTUVWXYZ"`
	Name     *input.PersonName `json:"name,omitempty"`
	Password *input.Password   `json:"password,omitempty"`
}

type accepted struct {
	Username  string `json:"username" doc:"User name of the account." example:"coldaisle"`
	Email     string `json:"email" doc:"With what the person logs in." example:"ana@example.com"`
	Role      string `json:"role" enum:"viewer,operator,admin,owner" doc:"What the person may do." example:"operator"`
	InvitedBy string `json:"invited_by" doc:"Who invites." example:"coldaisle"`
	Accepted  bool   `json:"accepted" doc:"Whether the person can log in now." example:"true"`
}

// LeftKeys is exported for the same reason.
type LeftKeys struct {
	APIKeys []Fields `json:"api_keys" nullable:"false" doc:"API keys that the person made and now could not. They work on until they are revoked."`
}

type changedPerson struct {
	PersonFields
	LeftKeys
}

type personPath struct {
	PersonID int64 `path:"person_id" doc:"Id of one of the account's persons." example:"9"`
}

type changedRole struct {
	PersonID int64 `path:"person_id" doc:"Id of one of the account's persons." example:"9"`
	Body     roleChange
}

type invitationPath struct {
	InvitationID int64 `path:"invitation_id" doc:"Id of one of the account's invitations." example:"4"`
}

func (h *Handlers) registerPersons(r *rest.API) {
	rest.Answer(r, rest.Operation{
		ID: "listPersons", Role: rest.Viewer, Method: http.MethodGet, Path: "/api/v1/persons", Tag: rest.TagPersons,
		Summary: "List the account's persons, oldest first",
	}, h.listPersons)
	rest.Answer(r, rest.Operation{
		ID: "setRole", Role: rest.Owner, Method: http.MethodPatch, Path: "/api/v1/persons/{person_id}", Tag: rest.TagPersons,
		Summary:     "Change a person's role",
		Description: "It ends the person's sessions and invitations, and unused enrolment codes that the new role could not make, and gives back the incidents of who becomes a viewer. API keys stay; such ones are in the answer.",
	}, h.setRole, store.ErrNoPerson, store.ErrLastOwner)
	rest.Answer(r, rest.Operation{
		ID: "removePerson", Role: rest.Owner, Method: http.MethodDelete, Path: "/api/v1/persons/{person_id}", Tag: rest.TagPersons,
		Summary:     "Remove a person",
		Description: "It ends the person's sessions, invitations and unused enrolment codes, and gives back the incidents that the person has. The name stays in the audit log and on incidents.",
	}, h.removePerson, store.ErrNoPerson, store.ErrLastOwner)
	rest.Answer(r, rest.Operation{
		ID: "invitePerson", Role: rest.Admin, Creates: true, Method: http.MethodPost, Path: "/api/v1/invitations", Tag: rest.TagPersons,
		Status: http.StatusCreated, Summary: "Invite a person",
		Description: "The code is valid once within 72 hours, and shown only here. Nobody can invite to a higher role than their own.",
	}, h.invite,
		rest.BadRequest(input.InvalidEmail), store.ErrEmailTaken, store.ErrTooManyPersons, errAbove(rest.Owner))
	rest.Answer(r, rest.Operation{
		ID: "listInvitations", Role: rest.Admin, Method: http.MethodGet, Path: "/api/v1/invitations", Tag: rest.TagPersons,
		Summary: "List the invitations that can be accepted, oldest first",
	}, h.listInvitations)
	rest.Register(r, rest.Operation{
		ID: "revokeInvitation", Role: rest.Admin, Method: http.MethodDelete, Path: "/api/v1/invitations/{invitation_id}", Tag: rest.TagPersons,
		Summary: "Revoke an invitation",
	}, h.revokeInvitation, store.ErrNoInvitation, errAbove(rest.Owner))
	// Called by the page of the invitation's link, first to show what it is for.
	rest.Answer(r, rest.Operation{
		ID: "acceptInvitation", Method: http.MethodPost, Path: "/api/v1/invitations/accept", Tag: rest.TagPersons,
		Public: true, Summary: "Accept an invitation by its code",
		Description: "With a name and a password the person can log in from then on; without both the answer says what the code is for, " +
			"and nothing changes. A client that tries many unknown codes is refused for a while.",
	}, h.accept, errInvitation, store.ErrEmailTaken, errGuesses(auth.GuessEvery), auth.ErrBusy)
}

func errAbove(role rest.Role) *rest.Error {
	return rest.Forbidden(role.Refuse(""))
}

// errInvitation answers a code that is unknown, used, revoked or expired.
var errInvitation = rest.NotFound("Invitation is unknown, used, or has expired")

func errGuesses(wait time.Duration) *rest.Error {
	return rest.TooManyRequests("Too many unknown invitations", wait)
}

func (h *Handlers) listPersons(ctx context.Context, _ *struct{}) ([]listedPerson, error) {
	found, err := accounts.New(h.DB).Persons(ctx, auth.Caller(ctx))
	return rest.List(found, func(p accounts.Person) listedPerson { return listedPerson{personOf(p), p.ID == auth.Person(ctx).ID} }), err
}

func (h *Handlers) setRole(ctx context.Context, in *changedRole) (changedPerson, error) {
	return audit.Changed(ctx, h.DB, func(tx *store.DB) (out changedPerson, entry audit.Entry, err error) {
		s, customer := accounts.New(tx), auth.Caller(ctx)
		before, err := s.Person(ctx, customer, in.PersonID)
		if err == nil && before.Role != in.Body.Role { // a repeat ends no invitation made since
			err = s.SetRole(ctx, customer, in.PersonID, in.Body.Role)
		}
		if err == nil && rest.Operator.Refuse(in.Body.Role) != "" { // who could not give them back
			err = incidents.New(tx).GiveBackAll(ctx, customer, before.Name, auth.Who(ctx), h.Clock())
		}
		if err != nil {
			return out, entry, err
		}
		after := before
		after.Role = in.Body.Role
		out.PersonFields, out.APIKeys = personOf(after), []Fields{}
		if createKeyRole.Refuse(after.Role) != "" {
			keys, err := s.APIKeysBy(ctx, customer, in.PersonID)
			if err != nil {
				return out, entry, err
			}
			out.APIKeys = rest.List(keys, fieldsOf)
		}
		return out, audit.Entry{Subject: audit.Subject("person", in.PersonID), Before: personOf(before), After: out.PersonFields}, nil
	})
}

func (h *Handlers) removePerson(ctx context.Context, in *personPath) (LeftKeys, error) {
	return audit.Changed(ctx, h.DB, func(tx *store.DB) (LeftKeys, audit.Entry, error) {
		s, customer := accounts.New(tx), auth.Caller(ctx)
		found, err := s.Person(ctx, customer, in.PersonID)
		if err != nil {
			return LeftKeys{}, audit.Entry{}, err
		}
		if err := incidents.New(tx).GiveBackAll(ctx, customer, found.Name, auth.Who(ctx), h.Clock()); err != nil {
			return LeftKeys{}, audit.Entry{}, err
		}
		keys, err := s.DeletePerson(ctx, customer, in.PersonID)
		return LeftKeys{rest.List(keys, fieldsOf)}, audit.Entry{Subject: audit.Subject("person", in.PersonID), Before: personOf(found)}, err
	})
}

func invitationSubject(i accounts.Invitation) string { return "invitation of " + i.Email }

// mayInvite refuses a role above the caller's own.
func mayInvite(ctx context.Context, role string) error {
	if wanted := rest.RoleOf(role); wanted.Refuse(auth.Person(ctx).Role) != "" {
		return errAbove(wanted)
	}
	return nil
}

func (h *Handlers) invite(ctx context.Context, in *rest.Body[newInvitation]) (createdInvitation, error) {
	if err := mayInvite(ctx, in.Body.Role); err != nil {
		return createdInvitation{}, err
	}
	return audit.Changed(ctx, h.DB, func(tx *store.DB) (createdInvitation, audit.Entry, error) {
		created, code, err := accounts.New(tx).CreateInvitation(ctx, auth.Person(ctx), string(in.Body.Email), in.Body.Role)
		out := createdInvitation{invitationOf(created), code}
		return out, audit.Entry{Subject: invitationSubject(created), After: out.InvitationFields}, err
	})
}

func (h *Handlers) listInvitations(ctx context.Context, _ *struct{}) ([]InvitationFields, error) {
	found, err := accounts.New(h.DB).Invitations(ctx, auth.Caller(ctx))
	return rest.List(found, invitationOf), err
}

func (h *Handlers) revokeInvitation(ctx context.Context, in *invitationPath) (*struct{}, error) {
	return nil, audit.Change(ctx, h.DB, func(tx *store.DB) (audit.Entry, error) {
		s, customer := accounts.New(tx), auth.Caller(ctx)
		found, err := s.Invitation(ctx, customer, in.InvitationID)
		if err == nil {
			err = mayInvite(ctx, found.Role)
		}
		if err != nil {
			return audit.Entry{}, err
		}
		return audit.Entry{Subject: invitationSubject(found), Before: invitationOf(found)}, s.DeleteInvitation(ctx, customer, found.ID)
	})
}

func (h *Handlers) accept(ctx context.Context, in *rest.Body[acceptance]) (accepted, error) {
	if wait := h.guesses.Wait(auth.Client(ctx), h.Clock()); wait > 0 {
		return accepted{}, errGuesses(wait)
	}
	out, err := h.join(ctx, in.Body)
	if errors.Is(err, store.ErrNoInvitation) {
		h.guesses.Count(auth.Client(ctx), h.Clock())
		return accepted{}, errInvitation
	}
	return out, err
}

// join finds the invitation before it hashes the password, so that an unknown code costs one
// query.
func (h *Handlers) join(ctx context.Context, a acceptance) (accepted, error) {
	found, err := accounts.New(h.DB).InvitationByCode(ctx, a.Code)
	out := accepted{found.Username, found.Email, found.Role, found.InvitedBy, false}
	if err != nil || a.Name == nil || a.Password == nil {
		return out, err
	}
	hash, err := h.Passwords.Hash(ctx, "", string(*a.Password))
	if err != nil {
		return out, err
	}
	out.Accepted = true
	return out, h.DB.InTx(ctx, func(tx *store.DB) error {
		created, err := accounts.New(tx).AcceptInvitation(ctx, a.Code, string(*a.Name), hash)
		if err != nil {
			return err
		}
		return audit.Append(ctx, tx, created.CustomerID, audit.PersonActor(created), audit.Entry{
			Subject: audit.Subject("person", created.ID), After: personOf(created),
		})
	})
}
