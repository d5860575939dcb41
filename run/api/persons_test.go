package api

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"coldaisle.dev/shared/must"
)

const (
	acceptPath  = "/api/v1/invitations/accept"
	personsPath = "/api/v1/persons/"
)

// invite invites a person.
func (a *testCustomer) invite(tb testing.TB, email, role string) reply {
	tb.Helper()
	return a.call(tb, a.token, http.MethodPost, "/api/v1/invitations", fmt.Sprintf(`{"email":%q,"role":%q}`, email, role))
}

// codeOf returns the code of an invitation.
func codeOf(tb testing.TB, invited reply) string {
	tb.Helper()
	return into[struct{ Code string }](tb, invited).Code
}

func accepting(code string) string {
	return fmt.Sprintf(`{"code":%q,"name":"Ana","password":"Passw0rd"}`, code)
}

// TestInvitation accepts one by many at once, of whom one becomes a person, and others late,
// revoked, unknown, with a role above the inviter's, or of an inviter who is gone. Contract 2.11.
func TestInvitation(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	admin := a.with(t, "admin")
	open := func(code, body string, want int, part string) {
		t.Helper()
		if body == "" {
			body = accepting(code)
		}
		s.call(t, "", http.MethodPost, acceptPath, body).has(t, want, part)
	}
	const gone = "Invitation is unknown, used, or has expired"
	stolen := codeOf(t, admin.invite(t, "ana@example.com", "operator"))
	mistaken := codeOf(t, a.invite(t, "Ana@Example.com", "owner"))
	open("", fmt.Sprintf(`{"code":%q}`, stolen), 200, `"email":"ana@example.com","role":"operator","invited_by":"admin of user000001","accepted":false`)
	open("", fmt.Sprintf(`{"code":%q,"name":"A","password":"Passw0rd"}`, stolen), 400, "name: ")
	open("", fmt.Sprintf(`{"code":%q,"name":"API key Ana","password":"Passw0rd"}`, stolen), 400, "must not begin like the name of an API key")
	var joined atomic.Int64
	var crowd sync.WaitGroup
	for range 7 {
		crowd.Go(func() {
			if got := s.call(t, "", http.MethodPost, acceptPath, accepting(stolen)); got.status == 200 {
				joined.Add(1)
			} else if got.status != 404 {
				t.Errorf("%d %s", got.status, got.body)
			}
		})
	}
	crowd.Wait()
	must.Equal(t, "joined", int64(1), joined.Load())
	open(mistaken, "", 404, gone)
	ana := &testCustomer{testAPI: s, id: a.id, email: "ANA@example.com", password: "Passw0rd"}
	ana.login(t)
	must.Equal(t, "persons whose token the version before takes for the account's", 0,
		s.count(t, `SELECT count(*) FROM persons p JOIN customers c ON c.id = p.customer_id WHERE p.email = 'ana@example.com' AND p.generation = c.generation`))
	s.call(t, ana.token, http.MethodGet, "/api/v1/persons", "").has(t, 200, `"name":"Ana","email":"ana@example.com","role":"operator","self":true`)
	s.call(t, ana.token, http.MethodPost, fmt.Sprintf("/api/v1/customers/info/%d", a.id), "").has(t, 200, `"email":"ana@example.com","username":"user000001"`)
	s.call(t, ana.token, http.MethodPatch, fmt.Sprintf("/api/v1/customers/%d", a.id), `{"username":"stolen"}`).says(t, 403, "username: This needs the role owner")

	admin.invite(t, "Ana@Example.com", "viewer").says(t, 400, "Email already registered")
	admin.invite(t, "b@example.com", "owner").says(t, 403, "This needs the role owner")
	admin.invite(t, "b@example.com", "root").is(t, 400)
	ofOwner := a.invite(t, "b@example.com", "owner")
	path := fmt.Sprintf("/api/v1/invitations/%d", idOf(t, ofOwner))
	s.call(t, admin.token, http.MethodDelete, path, "").says(t, 403, "This needs the role owner")
	s.call(t, a.token, http.MethodDelete, path, "").is(t, 204)
	open(codeOf(t, ofOwner), "", 404, gone)
	late := codeOf(t, admin.invite(t, "c@example.com", "viewer"))
	s.execute(t, `UPDATE invitations SET expires_at = now()`)
	open(late, "", 404, gone)
	taken := codeOf(t, admin.invite(t, "d@example.com", "viewer"))
	s.execute(t, `UPDATE persons SET email = 'd@example.com' WHERE id = $1`, ana.person)
	open(taken, "", 400, "Email already registered")
	demoted := codeOf(t, admin.invite(t, "e@example.com", "admin"))
	s.call(t, a.token, http.MethodPatch, personsPath+decimal(admin.person), `{"role":"admin"}`).is(t, 200) // as before
	open(demoted, fmt.Sprintf(`{"code":%q}`, demoted), 200, `"accepted":false`)
	s.call(t, a.token, http.MethodPatch, personsPath+decimal(admin.person), `{"role":"viewer"}`).is(t, 200)
	open(demoted, "", 404, gone)
}

// TestHolderIsRenamedWithTheAccount renames an account whose first owner, called by its user name,
// has an incident: who changes it is another owner. What the first has is given back all the same.
func TestHolderIsRenamedWithTheAccount(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	other := a.with(t, "owner")
	a.heldSensor(t, "hot-1")
	s.judge(t, "hot-1", s.now(), 60)
	a.act(t, a.incidents(t, "?state=open")[0].ID, `"action":"take"`)
	s.call(t, other.token, http.MethodPatch, "/api/v1/customers/"+decimal(a.id), `{"username":"renamed"}`).is(t, 200)
	must.Equal(t, "who has it", "renamed", other.incidents(t, "?state=taken")[0].TakenBy)
	s.call(t, other.token, http.MethodDelete, personsPath+decimal(a.person), "").is(t, 200)
	must.Equal(t, "what a removed person had", 1, len(other.incidents(t, "?state=open")))
}

// TestPersons changes roles and removes persons under requests of two instances; the account
// keeps an owner, and 200 persons. Contract 2.10.
func TestPersons(t *testing.T) {
	t.Parallel()
	s, a := newTestCustomer(t)
	second := newTestAPI(t, func(c *Config) { c.DB = s.store.DB })
	other := a.with(t, "owner")
	works := func(p *testCustomer) (all []int) {
		for _, instance := range []*testAPI{s, second} {
			all = append(all, instance.call(t, p.token, http.MethodGet, "/api/v1/persons", "").status)
		}
		return all
	}
	// Two owners demote each other at once: one stays.
	var crowd sync.WaitGroup
	for who, whom := range map[*testCustomer]*testCustomer{a: other, other: a} {
		crowd.Go(func() {
			s.call(t, who.token, http.MethodPatch, personsPath+decimal(whom.person), `{"role":"admin"}`)
		})
	}
	crowd.Wait()
	if works(a)[0] != 200 {
		a, other = other, a
	}
	must.Equal(t, "an owner", []int{200, 200}, works(a))
	must.Equal(t, "the token of a changed role", []int{401, 401}, works(other))
	for method, body := range map[string]string{http.MethodPatch: `{"role":"viewer"}`, http.MethodDelete: ""} {
		s.call(t, a.token, method, personsPath+decimal(a.person), body).says(t, 409, "The account needs an owner; make somebody else one first")
	}
	other.login(t)
	key := other.key(t, `"scope":"read"`)
	for role, left := range map[string]string{"operator": fmt.Sprintf(`{"id":%d,`, key.id), "admin": "]"} {
		s.call(t, a.token, http.MethodPatch, personsPath+decimal(other.person), fmt.Sprintf(`{"role":%q}`, role)).has(t, 200, `"api_keys":[`+left)
	}
	s.call(t, a.token, http.MethodPatch, personsPath+decimal(other.person), `{"role":"admin"}`).is(t, 200)
	other.login(t)
	waiting := other.gateway(t, "Demoted")
	for _, role := range []string{"owner", "operator", "admin"} {
		s.call(t, a.token, http.MethodPatch, personsPath+decimal(other.person), fmt.Sprintf(`{"role":%q}`, role)).is(t, 200)
		status := map[bool]int{true: 200, false: 404}[role == "owner"]
		s.call(t, "", http.MethodPost, "/api/v1/gateways/enrol", fmt.Sprintf(`{"code":%q}`, waiting.code)).is(t, status)
	}
	other.login(t)
	a.heldSensor(t, "hot-1")
	s.judge(t, "hot-1", s.now(), 60)
	hot := a.incidents(t, "?state=open")[0].ID
	last := func() string {
		i := a.incident(t, hot)
		return i.State + " " + fmt.Sprint(i.Timeline[len(i.Timeline)-1])
	}
	other.act(t, hot, `"action":"take"`)
	for _, c := range [][2]string{{"operator", "taken taken"}, {"viewer", "open given_back"}, {"admin", "open given_back"}} {
		s.call(t, a.token, http.MethodPatch, personsPath+decimal(other.person), fmt.Sprintf(`{"role":%q}`, c[0])).is(t, 200)
		must.Equal(t, "what somebody has who becomes "+c[0], c[1], last())
	}
	other.login(t)
	other.act(t, hot, `"action":"take"`)
	s.call(t, other.token, http.MethodPatch, "/api/v1/customers/"+decimal(a.id), `{"name":"Ana Renamed"}`).is(t, 200)
	must.Equal(t, "who has it", "Ana Renamed", a.incidents(t, "?state=taken")[0].TakenBy)
	waiting = other.gateway(t, "Waiting")
	code := codeOf(t, other.invite(t, "x@example.com", "viewer"))
	s.call(t, a.token, http.MethodDelete, personsPath+decimal(other.person), "").has(t, 200, fmt.Sprintf(`{"api_keys":[{"id":%d,`, key.id))
	must.Equal(t, "the token of a removed person", []int{401, 401}, works(other))
	must.Equal(t, "what a removed person had", "open given_back", last())
	watch := a.key(t, `"scope":"watch"`)
	s.call(t, watch.text, http.MethodPost, incidentsPath+decimal(hot)+"/actions", `{"action":"take"}`).is(t, 200)
	must.Equal(t, "what a key has", "taken taken", last())
	s.call(t, a.token, http.MethodDelete, "/api/v1/api-keys/"+decimal(watch.id), "").is(t, 204)
	must.Equal(t, "what a revoked key had", "open given_back", last())
	s.call(t, "", http.MethodPost, acceptPath, accepting(code)).is(t, 404)
	s.call(t, "", http.MethodPost, "/api/v1/gateways/enrol", fmt.Sprintf(`{"code":%q}`, waiting.code)).is(t, 404)
	s.call(t, "", http.MethodPost, "/api/v1/customers/login", fmt.Sprintf(`{"email":%q,"password":"Passw0rd"}`, other.email)).is(t, 401)
	s.call(t, key.text, http.MethodGet, "/api/v1/audit", "").has(t, 200, `"actor_name":"owner of user`)

	s.execute(t, `INSERT INTO persons (customer_id, name, email, password_hash, role)
		SELECT $1, 'Person ' || i, 'p' || i || '@example.com', 'x', 'viewer' FROM generate_series(2, 200) i`, a.id)
	a.invite(t, "one@toomany.com", "viewer").says(t, 400, "At most 200 persons, open invitations included")
	must.Equal(t, "persons", 200, strings.Count(string(s.call(t, a.token, http.MethodGet, "/api/v1/persons", "").body), `"email"`))
}
