package release

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// cloud is what of Google Cloud a release meets: Cloud Storage with generations and preconditions, Cloud Run with
// revisions and traffic, jobs and their executions, and Cloud Build's list of builds. It answers in their REST forms,
// so that the real gcloud and terraform can be pointed at it as well as the stand-ins.
type cloud struct {
	URL string
	t   *testing.T

	mu sync.Mutex
	contents
	// deliver, if not nil, gets what is published instead.
	deliver func(data []byte, attributes map[string]string) error
	// submit plays a build of the version of a number, and reports whether it succeeded.
	submit func(number int) bool
	// refused, if not nil, is told of an object whose precondition did not hold.
	refused func(key string)
	// forbidden has all reading of objects refused.
	forbidden bool
}

// contents is what a cloud has.
type contents struct {
	generation int64
	objects    map[string]object   // live ones, by bucket/name
	noncurrent map[string][]object // the versions before them: all buckets are versioned, as that of the state is
	services   map[string]*service
	job        *job
	builds     map[string]buildState
	// components are those that the program in an image knows, by image.
	components map[string][]string
	// users are the components that have a database user, with whether they have
	// the rights that the program of the newest migration gives.
	users map[string]bool
	// executions of the migration: its image and arguments, and what came of it.
	executions []string
	// registered is the password of the release's customer, sensor his sensor's id, hot
	// the last reading above the limit and latest the last one, of it.
	registered, sensor, hot, latest string
	// smoked is how many smoke tests have asked the API that serves.
	smoked int
	// history is every change of traffic, as SERVICE REVISION.
	history []string
}

// clone copies all that changes in place.
func (c contents) clone() contents {
	c.objects, c.noncurrent, c.services, c.builds = maps.Clone(c.objects), maps.Clone(c.noncurrent), maps.Clone(c.services), maps.Clone(c.builds)
	c.components, c.users = maps.Clone(c.components), maps.Clone(c.users)
	if c.job != nil {
		c.job = new(*c.job)
	}
	c.executions, c.history = slices.Clone(c.executions), slices.Clone(c.history)
	for name, s := range c.services {
		s = new(*s)
		s.images, s.revisions = maps.Clone(s.images), slices.Clone(s.revisions)
		c.services[name] = s
	}
	return c
}

type object struct {
	generation int64
	content    []byte
}

// service is a Cloud Run service. A pinned one serves that revision, others serve the newest that started.
type service struct {
	image         string
	images        map[string]string // by revision
	revisions     []string
	ready, pinned string
	generation    int
	// annotations of the newest revision, which the next one keeps.
	annotations map[string]string
}

func (s *service) serving() string {
	if s.pinned != "" {
		return s.pinned
	}
	return s.ready
}

// job is the migration's.
type job struct {
	image string
	users []string
}

type buildState struct{ Status, CreateTime string }

func newCloud(t *testing.T) *cloud {
	t.Helper()
	c := &cloud{t: t, contents: contents{
		objects: map[string]object{}, noncurrent: map[string][]object{}, services: map[string]*service{}, builds: map[string]buildState{},
		components: map[string][]string{}, users: map[string]bool{},
	}}
	server := httptest.NewServer(c.routes())
	t.Cleanup(server.Close)
	c.URL = server.URL
	return c
}

func (c *cloud) routes() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, handler func(w http.ResponseWriter, r *http.Request) (any, *fault)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			c.mu.Lock()
			defer c.mu.Unlock()
			answer, refused := handler(w, r)
			if refused != nil {
				answer = map[string]any{"error": refused}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(refused.Code)
			}
			if answer != nil {
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(answer)
			}
		})
	}
	handle("GET /storage/v1/b/{bucket}/o", c.listObjects)
	handle("GET /storage/v1/b/{bucket}/o/{object...}", c.getObject)
	handle("GET /download/storage/v1/b/{bucket}/o/{object...}", c.getObject)
	handle("GET /{bucket}/{object...}", c.getObject) // as Go's client reads
	handle("DELETE /storage/v1/b/{bucket}/o/{object...}", c.deleteObject)
	handle("POST /upload/storage/v1/b/{bucket}/o", c.putObject)

	const services = "/apis/serving.knative.dev/v1/namespaces/" + project + "/services"
	handle("GET "+services, func(http.ResponseWriter, *http.Request) (any, *fault) {
		items := []any{}
		for _, name := range slices.Sorted(maps.Keys(c.services)) {
			items = append(items, c.services[name].render(name))
		}
		return map[string]any{"apiVersion": "serving.knative.dev/v1", "kind": "ServiceList", "items": items}, nil
	})
	handle("GET "+services+"/{name}", func(_ http.ResponseWriter, r *http.Request) (any, *fault) {
		s, ok := c.services[r.PathValue("name")]
		if !ok {
			return nil, notFound()
		}
		return s.render(r.PathValue("name")), nil
	})
	handle("PUT "+services+"/{name}", c.replaceService)
	handle("GET "+strings.TrimSuffix(services, "services")+"revisions/{name}", func(_ http.ResponseWriter, r *http.Request) (any, *fault) {
		for _, s := range c.services {
			if image, ok := s.images[r.PathValue("name")]; ok {
				return map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"image": image}}}}, nil
			}
		}
		return nil, notFound()
	})

	const jobs = "/apis/run.googleapis.com/v1/namespaces/" + project + "/jobs"
	handle("GET "+jobs, func(http.ResponseWriter, *http.Request) (any, *fault) {
		items := []any{}
		if c.job != nil {
			items = append(items, c.job.render())
		}
		return map[string]any{"apiVersion": "run.googleapis.com/v1", "kind": "JobList", "items": items}, nil
	})
	handle("GET "+jobs+"/migrate", func(http.ResponseWriter, *http.Request) (any, *fault) {
		if c.job == nil {
			return nil, notFound()
		}
		return c.job.render(), nil
	})
	handle("PUT "+jobs+"/migrate", c.replaceJob)
	handle("POST "+jobs+"/migrate:run", c.runJob)
	handle("GET /apis/run.googleapis.com/v1/namespaces/"+project+"/executions/{name}", func(_ http.ResponseWriter, r *http.Request) (any, *fault) {
		number, err := strconv.Atoi(strings.TrimPrefix(r.PathValue("name"), "migrate-"))
		if err != nil || number >= len(c.executions) {
			return nil, notFound()
		}
		return renderExecution(number, c.executions[number]), nil
	})
	handle("GET /v1/projects/"+project+"/locations/{location}/builds/{id}", func(_ http.ResponseWriter, r *http.Request) (any, *fault) {
		b, ok := c.builds[r.PathValue("id")]
		if !ok {
			return nil, notFound()
		}
		return map[string]any{"id": r.PathValue("id"), "status": b.Status, "createTime": b.CreateTime}, nil
	})

	// What terraform's provider does, in one call: see deploy.
	mux.HandleFunc("POST /terraform/{component}", func(w http.ResponseWriter, r *http.Request) {
		if err := c.deploy(r.PathValue("component"), r.FormValue("image"), r.FormValue("components"), r.FormValue("traffic")); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	})

	mux.HandleFunc("POST /builds/{number}", func(w http.ResponseWriter, r *http.Request) {
		if number, err := strconv.Atoi(r.PathValue("number")); err != nil || !c.submit(number) {
			http.Error(w, "the build failed", http.StatusBadGateway)
		}
	})

	// The API that serves, and below /next its newest revision, as the smoke test sees them.
	for path, answer := range map[string]string{
		"GET %s/health": "200 healthy", "GET %s/openapi.json": `200 "openapi"`, "GET %s/{$}": `200 <script type="module"`,
		"GET %s/api/v1/alerts/active": "401 detail", "POST %s/api/v1/customers/login": "401 detail",
	} {
		for prefix, revision := range map[string]func(*service) string{"": (*service).serving, "/next": func(s *service) string { return s.ready }} {
			mux.HandleFunc(fmt.Sprintf(path, prefix), func(w http.ResponseWriter, r *http.Request) {
				status, text, _ := strings.Cut(answer, " ")
				code, _ := strconv.Atoi(status)
				if c.answers(revision, "ill") {
					code = http.StatusInternalServerError
				} else if prefix == "" && c.customer(w, r) {
					return
				}
				if prefix == "" && r.URL.Path == "/health" {
					c.mu.Lock()
					c.smoked++
					c.mu.Unlock()
				}
				w.WriteHeader(code)
				_, _ = io.WriteString(w, text)
			})
		}
	}
	for _, path := range []string{
		"POST /api/v1/customers/register", "GET /api/v1/server_rooms/list_rooms/{id}", "POST /api/v1/server_rooms/new_room",
		"GET /api/v1/sensors/sensor/{id}", "POST /api/v1/sensors/new_sensor", "GET /api/v1/data/latest/{id}", "POST /api/v1/alerts/{id}/acknowledge",
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { c.customer(w, r) })
	}
	handle("POST /v1/projects/"+project+"/topics/data:publish", c.publish)
	return mux
}

// answers reports whether the image of the API's revision has a word in its name, or there is none.
func (c *cloud) answers(revision func(*service) string, word string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.services["api"]
	return s == nil || strings.Contains(s.images[revision(s)], word)
}

// customer answers the release's customer as the API does, for as much as
// [TestSyntheticReading] sees of the real one. A pipeline that is deaf stores no alert.
func (c *cloud) customer(w http.ResponseWriter, r *http.Request) bool {
	deaf := c.answers((*service).serving, "deaf")
	c.mu.Lock()
	defer c.mu.Unlock()
	var body struct{ Password, ID string }
	_ = json.NewDecoder(r.Body).Decode(&body)
	status, text := http.StatusOK, ""
	switch known := r.Header.Get("Authorization") == "Bearer t"; {
	case strings.HasSuffix(r.URL.Path, "/login"):
		if c.registered == "" || c.registered != body.Password {
			return false
		}
		text = `{"access_token":"t","token_type":"bearer","customer_id":7}`
	case strings.HasSuffix(r.URL.Path, "/register"):
		c.registered, status = body.Password, http.StatusCreated
	case !known:
		return false
	case strings.HasSuffix(r.URL.Path, "/new_sensor"):
		c.sensor, status = body.ID, http.StatusCreated
	case strings.HasSuffix(r.URL.Path, "/new_room"):
		status, text = http.StatusCreated, `{"id":3,"name":"Release","customer_id":7}`
	case strings.Contains(r.URL.Path, "/list_rooms/"):
		text = `[]`
	case strings.Contains(r.URL.Path, "/sensor/") && c.sensor == "":
		status = http.StatusNotFound
	case strings.Contains(r.URL.Path, "/latest/"):
		text = `{"node_id":"` + c.sensor + `","temperature":` + c.latest + `,"humidity":30}`
	case strings.HasSuffix(r.URL.Path, "/active") && c.hot != "" && !deaf:
		text = `[{"id":1,"sensor_id":"other"},{"id":5,"sensor_id":"` + c.sensor + `","message":"High temperature detected: ` + c.hot + `°C"}]`
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
	return true
}

func (c *cloud) publish(_ http.ResponseWriter, r *http.Request) (any, *fault) {
	var sent struct {
		Messages []struct {
			Data       []byte
			Attributes map[string]string
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&sent); err != nil || len(sent.Messages) != 1 {
		return nil, &fault{http.StatusBadRequest, "no message"}
	}
	m := sent.Messages[0]
	if c.deliver != nil {
		if err := c.deliver(m.Data, m.Attributes); err != nil {
			return nil, &fault{http.StatusInternalServerError, err.Error()}
		}
		return map[string]any{"messageIds": []string{"1"}}, nil
	}
	var reading struct {
		NodeID      string `json:"node_id"`
		Temperature json.Number
	}
	if err := json.Unmarshal(m.Data, &reading); err != nil || reading.NodeID != c.sensor || m.Attributes["node_id"] != c.sensor {
		return nil, &fault{http.StatusBadRequest, "another's reading"}
	}
	c.latest = reading.Temperature.String()
	if value, _ := reading.Temperature.Float64(); value > 50 {
		c.hot = c.latest
	}
	return map[string]any{"messageIds": []string{"1"}}, nil
}

type fault struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func notFound() *fault { return &fault{http.StatusNotFound, "not found"} }

// Cloud Run.

func metadata(name string, generation int) map[string]any {
	return map[string]any{
		"name": name, "namespace": project, "generation": generation, "labels": map[string]any{"cloud.googleapis.com/location": region},
		"annotations": map[string]any{}, "resourceVersion": strconv.Itoa(generation),
	}
}

func (s *service) render(name string) map[string]any {
	target := map[string]any{"percent": 100, "latestRevision": true}
	if s.pinned != "" {
		target = map[string]any{"percent": 100, "revisionName": s.pinned}
	}
	served := maps.Clone(target)
	served["revisionName"] = s.serving()
	old := map[string]any{"revisionName": s.revisions[0], "tag": "first"} // a tag gets no share of the requests
	ready := []any{map[string]any{"type": "Ready", "status": "True"}, map[string]any{"type": "RoutesReady", "status": "True"}, map[string]any{"type": "ConfigurationsReady", "status": "True"}}
	return map[string]any{
		"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": metadata(name, s.generation),
		"spec": map[string]any{
			"template": map[string]any{"metadata": map[string]any{"annotations": s.annotations}, "spec": map[string]any{"containers": []any{map[string]any{"image": s.image}}}},
			"traffic":  []any{target, old},
		},
		"status": map[string]any{
			"observedGeneration": s.generation, "conditions": ready, "traffic": []any{served, old}, "url": "https://" + name + ".example.com",
			"latestReadyRevisionName": s.ready, "latestCreatedRevisionName": s.revisions[len(s.revisions)-1],
		},
	}
}

func (c *cloud) replaceService(_ http.ResponseWriter, r *http.Request) (any, *fault) {
	name := r.PathValue("name")
	s, ok := c.services[name]
	if !ok {
		return nil, notFound()
	}
	var wanted struct {
		Spec struct {
			Traffic []struct {
				RevisionName   string
				Percent        int
				LatestRevision bool
			}
			Template struct {
				Metadata struct{ Annotations map[string]string }
			}
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil {
		return nil, &fault{http.StatusBadRequest, err.Error()}
	}
	before := s.serving()
	if annotations := wanted.Spec.Template.Metadata.Annotations; annotations != nil && len(wanted.Spec.Traffic) == 0 {
		s.annotations = annotations
		s.revise(name)
	}
	for _, target := range wanted.Spec.Traffic {
		if target.Percent == 0 {
			continue
		}
		if target.LatestRevision && target.Percent == 100 {
			s.pinned = ""
			continue
		}
		if target.Percent != 100 || !slices.Contains(s.revisions, target.RevisionName) {
			return nil, &fault{http.StatusBadRequest, fmt.Sprintf("traffic %+v", target)}
		}
		s.pinned = target.RevisionName
	}
	s.generation++
	if s.serving() != before {
		c.history = append(c.history, name+" "+s.serving())
	}
	return s.render(name), nil
}

func (j *job) render() map[string]any {
	variable := []any{map[string]any{"name": "DB_USERS", "value": strings.Join(j.users, ",")}}
	container := map[string]any{"image": j.image, "args": []any{"migrate"}, "env": variable}
	return map[string]any{
		"apiVersion": "run.googleapis.com/v1", "kind": "Job", "metadata": metadata("migrate", 1),
		"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": map[string]any{}}, "spec": map[string]any{"template": map[string]any{
			"spec": map[string]any{"containers": []any{container}},
		}}}},
		"status": map[string]any{"observedGeneration": 1, "conditions": []any{map[string]any{"type": "Ready", "status": "True"}}},
	}
}

func (c *cloud) replaceJob(_ http.ResponseWriter, r *http.Request) (any, *fault) {
	if c.job == nil {
		return nil, notFound()
	}
	var wanted any
	if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil {
		return nil, &fault{http.StatusBadRequest, err.Error()}
	}
	c.job.image = field(wanted, "spec.template.spec.template.spec.containers[0].image")
	return c.job.render(), nil
}

func (c *cloud) runJob(_ http.ResponseWriter, r *http.Request) (any, *fault) {
	if c.job == nil {
		return nil, notFound()
	}
	var wanted struct {
		Overrides struct{ ContainerOverrides []struct{ Args []string } }
	}
	if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil {
		return nil, &fault{http.StatusBadRequest, err.Error()}
	}
	arguments := []string{"migrate"}
	if overrides := wanted.Overrides.ContainerOverrides; len(overrides) > 0 {
		arguments = overrides[0].Args
	}
	c.executions = append(c.executions, c.migrate(strings.Join(arguments, " ")))
	return renderExecution(len(c.executions)-1, "running"), nil
}

// migrate is what the program in the job's image does, which run/server tests.
func (c *cloud) migrate(arguments string) string {
	did := arguments + " of " + c.job.image + " with " + strings.Join(c.job.users, ",")
	for _, component := range c.job.users {
		_, exists := c.users[component]
		switch known := slices.Contains(c.components[c.job.image], component); {
		case !exists:
			return did + ": failed: no user " + component
		case known:
			c.users[component] = true
		case arguments == "migrate":
			return did + ": failed: no component is called " + component
		}
	}
	return did
}

func renderExecution(number int, did string) map[string]any {
	status := map[string]any{"type": "Completed", "status": "True"}
	counts := map[string]any{"succeededCount": 1}
	if did == "running" {
		status, counts = map[string]any{"type": "Completed", "status": "Unknown"}, map[string]any{}
	} else if strings.Contains(did, "failed: ") {
		status = map[string]any{"type": "Completed", "status": "False", "message": did}
		counts = map[string]any{"failedCount": 1}
	}
	all := map[string]any{"observedGeneration": 1, "conditions": []any{status}}
	maps.Copy(all, counts)
	return map[string]any{
		"apiVersion": "run.googleapis.com/v1", "kind": "Execution", "metadata": metadata(fmt.Sprintf("migrate-%d", number), 1),
		"spec": map[string]any{"taskCount": 1, "template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"image": "x"}}}}}, "status": all,
	}
}

// deploy does what terraform's provider does for a component: a new revision of a service, all requests to the newest,
// for the API the migration's job too; or, without an image, the end of the component. An image that does not start
// leaves the requests where they are.
func (c *cloud) deploy(component, image, components, traffic string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if image == "" {
		delete(c.services, component)
		return nil
	}
	if component == "api" {
		c.job = &job{image: image, users: strings.Split(components, ",")}
	}
	if _, ok := c.users[component]; !ok {
		c.users[component] = false
	}
	s := c.services[component]
	if s == nil {
		s = &service{images: map[string]string{}, annotations: map[string]string{}}
		c.services[component] = s
	}
	s.generation++
	s.pinned, _, _ = strings.Cut(traffic, "=")
	if s.image == image && len(s.revisions) > 0 { // the same template is no new revision
		return nil
	}
	s.image = image
	if component != "api" {
		c.store(project+"-function-archives/"+component+"/"+image+".zip", []byte(image))
	}
	if revision := s.revise(component); s.ready != revision {
		return fmt.Errorf("revision %s is not ready", revision)
	}
	if s.pinned == "" {
		c.history = append(c.history, component+" "+s.ready)
	}
	return nil
}

// revise makes a revision of the service as it is, which is ready unless its image is broken.
func (s *service) revise(name string) string {
	revision := fmt.Sprintf("%s-%05d", name, len(s.revisions)+1)
	s.revisions = append(s.revisions, revision)
	s.images[revision] = s.image
	if !strings.Contains(s.image, "broken") {
		s.ready = revision
	}
	return revision
}

// live is the image of each service whose revision gets the requests.
func (c *cloud) live() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	live := map[string]string{}
	for name, s := range c.services {
		live[name] = s.images[s.serving()]
	}
	return live
}

// object is what is stored under a name of the state's bucket.
func (c *cloud) object(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.objects[bucket+"/"+name].content)
}

// put stores an object there, as somebody else would.
func (c *cloud) put(name, content string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store(bucket+"/"+name, []byte(content))
}

func (c *cloud) remove(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retire(bucket + "/" + name)
}

// setBuild gives a build a status. One of the tests' own, b12, began at second 12.
func (c *cloud) setBuild(id, status string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	second, _ := strconv.Atoi(strings.TrimPrefix(id, "b"))
	c.builds[id] = buildState{status, fmt.Sprintf("2026-11-20T12:00:%02d.123456Z", second)}
}

// did are the executions of the migration and the changes of traffic, see cloud.
func (c *cloud) did() (executions, history []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.executions), slices.Clone(c.history)
}
