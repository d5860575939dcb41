package main

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/fsouza/fake-gcs-server/fakestorage"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	bq "google.golang.org/api/bigquery/v2"

	"coldaisle.dev/functions/detect"
	"coldaisle.dev/functions/ingest"
	"coldaisle.dev/functions/train"
	"coldaisle.dev/run/tools/release/tfenv"
	"coldaisle.dev/shared/alert"
	"coldaisle.dev/shared/function"
	"coldaisle.dev/shared/function/functiontest"
	"coldaisle.dev/shared/incident"
	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/pgtest"
	"coldaisle.dev/shared/pubsubtest"
	"coldaisle.dev/shared/push"
	"coldaisle.dev/shared/reading"
	"coldaisle.dev/shared/readings/bqreadings/bqtest"
	"coldaisle.dev/shared/store"
	"coldaisle.dev/shared/store/incidents"
	"coldaisle.dev/shared/store/learning"
	"coldaisle.dev/shared/tooltest"
	"coldaisle.dev/shared/wire"
)

// TestConfigsMatchTerraform compares the variables that terraform sets with those that the functions read.
func TestConfigsMatchTerraform(t *testing.T) {
	t.Parallel()
	components := tfenv.Read(t, filepath.Join(root, "terraform"), "")
	for name, settings := range map[string]any{
		"ingest": &struct {
			function.CommonConfig
			ingest.Config
		}{},
		"detect": &struct {
			function.CommonConfig
			detect.Config
		}{},
		"storealert": &function.CommonConfig{},
		"train": &struct {
			function.CommonConfig
			train.Config
		}{},
	} {
		must.Equal(t, name, []string(nil), tfenv.Mismatches(t, components[name], settings))
	}
}

// TestFunctionsStartAsDeployed starts each function with the environment that terraform and
// Cloud Run functions give it and sees a message through. The program of detect is built of
// its archive as the buildpack does; at night and by .ci/buildpack those of all are.
func TestFunctionsStartAsDeployed(t *testing.T) {
	t.Parallel()
	names := must.Get(functionNames(root))(t)
	scenes := map[string]func(*testing.T, *fixture){"ingest": ingests, "detect": detects, "storealert": storesAlerts, "train": trains}
	for name := range maps.Keys(scenes) {
		must.Equal(t, name+" has an entrypoint", true, slices.Contains(names, name))
	}
	serve := functiontest.Build(t, "coldaisle.dev/functions/serve")
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scene, ok := scenes[name]
			if !ok {
				t.Fatal("no scene shows that it works")
			}
			program := serve
			if name == "detect" || tooltest.Nightly() || os.Getenv("BUILDPACKS") != "" {
				program = must.Get(buildpack(t.Context(), packed(t, root, name), t.TempDir(), name))(t)
			} else { // the archive has all that it imports
				source := t.TempDir()
				must.Do(t, unpack(packed(t, root, name), source))
				must.Get(toolchain(t.Context(), source, "build", "."))(t)
			}
			scene(t, newFixture(t, program, name))
		})
	}
}

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// fixture is a function as it is deployed, with a stand-in for each service of
// Google's that it uses. Its database user has the rights of production.
type fixture struct {
	*functiontest.Process

	t         *testing.T
	metadata  pgtest.Stores
	customer  int64
	appended  *bqtest.AppendServer
	queried   *bqtest.QueryServer
	published *pstest.Server
	objects   *fakestorage.Server
	series    []reading.Reading // what the table of readings holds
}

// node is a sensor of a customer.
const node = "n1"

func newFixture(t *testing.T, program, name string) *fixture {
	t.Helper()
	suffix := "-" + strings.ToLower(rand.Text()[:8])
	components := tfenv.Read(t, filepath.Join(root, "terraform"), suffix)
	p := &fixture{t: t, appended: bqtest.NewAppendServer(t)}
	p.queried = bqtest.NewQueryServer(t, func(*bq.QueryRequest) bqtest.Answer { return p.table() })
	database := p.database(name, suffix)
	p.topics()
	p.bucket()
	p.Process = functiontest.Start(t, program, append(components[name],
		// Set by Cloud Run functions; the target is what terraform calls entry_point. See
		// https://cloud.google.com/functions/docs/configuring/env-var#runtime_environment_variables_set_automatically.
		"FUNCTION_TARGET="+name, "FUNCTION_SIGNATURE_TYPE=http", "K_SERVICE="+name, "K_REVISION="+name+"-00001-abc",
		"DATABASE_URL="+database,
		"PUBSUB_EMULATOR_HOST="+p.published.Addr,
		"STORAGE_EMULATOR_HOST="+strings.TrimPrefix(p.objects.URL(), "http://"),
		"BIGQUERY_EMULATOR_HOST="+p.queried.URL,
		"BIGQUERY_STORAGE_EMULATOR_HOST="+p.appended.Address())...)
	return p
}

// database makes the metadata with a customer's sensor and returns its URL for the function's own user.
func (p *fixture) database(name, suffix string) string {
	p.t.Helper()
	user := tfenv.DatabaseUser(name, suffix)
	address := pgtest.URL(p.t)
	pool := must.Get(pgxpool.New(p.t.Context(), address))(p.t)
	p.t.Cleanup(pool.Close)
	quoted := pgx.Identifier{user}.Sanitize()
	password := rand.Text()
	must.Get(pool.Exec(p.t.Context(), "CREATE ROLE "+quoted+" LOGIN PASSWORD '"+password+"'"))(p.t)
	p.t.Cleanup(func() {
		_, err := pool.Exec(context.WithoutCancel(p.t.Context()), "DROP OWNED BY "+quoted+"; DROP ROLE "+quoted)
		must.Fail(p.t, "dropped", err, nil)
	})
	must.Do(p.t, store.Grant(p.t.Context(), pool, map[string]string{name: user}))
	p.metadata = pgtest.NewStores(pool)
	p.customer, _ = p.metadata.Owner(p.t, "customer1", node)
	must.Get(pool.Exec(p.t.Context(), `UPDATE open_holds SET held_from = '-infinity'`))(p.t) // the history is older
	parsed := must.Get(url.Parse(address))(p.t)
	parsed.User = url.UserPassword(user, password)
	return parsed.String()
}

// topics makes those that a function publishes to, by the names of terraform.
func (p *fixture) topics() {
	p.t.Helper()
	p.published = pubsubtest.Start(p.t)
	pubsubtest.Topics(p.t, p.published, tfenv.Project, tfenv.AlertTopic)
}

// bucket makes that of the models.
func (p *fixture) bucket() {
	p.t.Helper()
	p.objects = must.Get(fakestorage.NewServerWithOptions(fakestorage.Options{Scheme: "http", Host: "127.0.0.1"}))(p.t)
	p.t.Cleanup(p.objects.Stop)
	p.objects.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: tfenv.Bucket})
}

// table answers a query for the history of readings.
func (p *fixture) table() bqtest.Answer {
	answer := bqtest.Answer{Schema: []*bq.TableFieldSchema{
		bqtest.Column("node_id", "STRING"), bqtest.Column("message_id", "STRING"), bqtest.Column("timestamp", "TIMESTAMP"),
		bqtest.Column("temperature", "FLOAT"), bqtest.Column("humidity", "FLOAT"),
	}}
	for _, r := range p.series {
		answer.Rows = append(answer.Rows, []string{
			r.NodeID, r.MessageID, strconv.FormatInt(r.Time.UnixMicro(), 10), fmt.Sprint(r.Temperature), fmt.Sprint(r.Humidity),
		})
	}
	return answer
}

// take pushes a message that the function must take.
func (p *fixture) take(data []byte, err error) {
	p.t.Helper()
	must.Do(p.t, err)
	if got := p.Push(push.Message{ID: "1", Data: data, PublishTime: time.Now()}); got != http.StatusNoContent {
		p.t.Fatalf("answered %d\n%s", got, p.Output())
	}
}

// hot is a reading over every limit.
func hot() reading.Reading {
	return reading.Reading{NodeID: node, MessageID: "m1", Time: reading.TruncateTime(time.Now()), Temperature: 99, Humidity: 40}
}

func ingests(t *testing.T, p *fixture) {
	t.Helper()
	want := hot()
	p.take(wire.EncodeData(wire.Data{Reading: want}))
	must.Equal(t, "stored\n"+p.Output(), []reading.Reading{want}, p.appended.Rows())
}

func detects(t *testing.T, p *fixture) {
	t.Helper()
	p.take(wire.EncodeData(wire.Data{Reading: hot()}))
	raised := p.published.Messages()
	if len(raised) != 1 {
		t.Fatalf("%d alerts\n%s", len(raised), p.Output())
	}
	must.Equal(t, "raised of", node, must.Get(wire.DecodeAlert(raised[0].Data))(t).NodeID)
	found, err := p.metadata.Excursions(t.Context(), p.customer, incidents.ExcursionQuery{PageRequest: store.PageRequest{Limit: 10}}, time.Now())
	// What learning makes of it is another excursion.
	if err != nil || !slices.ContainsFunc(found.Items, func(e incidents.Excursion) bool { return e.Kind == incident.KindThreshold && e.Lasting }) {
		t.Errorf("excursions %+v, %v", found, err)
	}
}

func storesAlerts(t *testing.T, p *fixture) {
	t.Helper()
	p.take(wire.EncodeAlert(alert.Exceeded(hot(), alert.Defaults())[0]))
	query := incidents.AlertQuery{PageRequest: store.PageRequest{Limit: 10}}
	stored := must.Get(p.metadata.AlertHistory(t.Context(), p.customer, query))(t)
	must.Equal(t, "stored\n"+p.Output(), 1, len(stored.Items))
}

func trains(t *testing.T, p *fixture) {
	t.Helper()
	for i := range 1500 {
		p.series = append(p.series, reading.Reading{
			NodeID: node, MessageID: strconv.Itoa(i), Time: reading.TruncateTime(time.Now().Add(time.Duration(i-1501) * 30 * time.Second)),
			Temperature: 20 + math.Sin(float64(i)/9), Humidity: 40 + math.Cos(float64(i)/7),
		})
	}
	run := must.Get(p.metadata.BeginManual(t.Context(), p.customer))(t)
	p.take(wire.EncodeRetraining(wire.Retraining{TrainingRunID: run.ID, TriggeredBy: learning.TriggeredManually, RequestedAt: time.Now()}))
	ended := must.Get(p.metadata.TrainingRun(t.Context(), p.customer, run.ID))(t)
	must.Equal(t, "the run ended\n"+p.Output(), learning.RunCompleted, ended.Status)
	must.Get(p.objects.GetObject(tfenv.Bucket, "models/index.json"))(t)
	asked := p.queried.Requests()
	if len(asked) == 0 || !strings.Contains(asked[0].Query, tfenv.Dataset) || !strings.Contains(asked[0].Query, tfenv.Table) {
		t.Errorf("%d queries, of other tables than terraform's", len(asked))
	}
}

const root = "../../../.."

func TestFunctions(t *testing.T) {
	t.Parallel()
	names, err := functionNames(root)
	must.Do(t, err)
	must.Equal(t, "functions", []string{"detect", "ingest", "storealert", "train"}, names)
	for _, name := range names { // the buildpack sees the imports of this file alone
		entry := must.Get(os.ReadFile(filepath.Join(root, "functions", name, entrypoint, "function.go")))(t)
		must.Contain(t, name, string(entry), `"github.com/GoogleCloudPlatform/functions-framework-go/functions"`)
	}
	_, err = functionNames(t.TempDir())
	must.Equal(t, "there are functions in an empty folder", false, err == nil)
}

// packed is a function's archive.
func packed(t *testing.T, root, name string) []byte {
	t.Helper()
	files := must.Get(assemble(t.Context(), root, name))(t)
	return must.Get(pack(files))(t)
}

// unpack writes an archive's files below a folder.
func unpack(archive []byte, folder string) error {
	reader, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	if err := os.CopyFS(folder, reader); err != nil {
		return fmt.Errorf("unpack: %w", err)
	}
	return nil
}

// TestArchiveHoldsImports looks for what must be in an archive and what must not.
func TestArchiveHoldsImports(t *testing.T) {
	t.Parallel()
	files := must.Get(assemble(t.Context(), root, "storealert"))(t)
	for _, want := range []string{"function.go", "go.mod", "go.sum", "functions/storealert/storealert.go", "shared/function/function.go", "shared/store/migrations/00001_schema.sql"} {
		must.Equal(t, want+" is in the archive", true, files[want] != nil)
	}
	for name := range files {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "functions/") && !strings.HasPrefix(name, "functions/storealert/") ||
			strings.HasPrefix(name, "run/") || strings.HasPrefix(name, "edge-gateway/") || strings.HasPrefix(name, stubFolder+"/") || strings.Contains(name, "bqreadings") {
			t.Errorf("%s is in the archive", name)
		}
	}
	if strings.Contains(string(files["go.mod"]), "danielgtaylor/huma") || !strings.Contains(string(files["go.mod"]), "functions-framework-go") {
		t.Errorf("go.mod is not what the function needs:\n%s", files["go.mod"])
	}
}

// module copies what archives are made of, to be changed by a test.
func module(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for _, component := range []string{"functions", "shared"} {
		must.Do(t, os.CopyFS(filepath.Join(folder, component), os.DirFS(filepath.Join(root, component))))
	}
	for _, file := range []string{"go.mod", "go.sum"} {
		must.Do(t, writeFiles(folder, map[string][]byte{file: must.Get(os.ReadFile(filepath.Join(root, file)))(t)}))
	}
	return folder
}

// TestArchiveChangesWithItsFunctionOnly changes one thing after another and
// looks at whose archive differs: those functions would be deployed again.
func TestArchiveChangesWithItsFunctionOnly(t *testing.T) {
	t.Parallel()
	copied := module(t)
	all := func() map[string]string {
		archives := map[string]string{}
		for _, name := range []string{"detect", "ingest", "storealert"} {
			archives[name] = string(packed(t, copied, name))
		}
		return archives
	}
	before := all()
	for _, edit := range []struct {
		files map[string]string // what is added to each
		want  []string
	}{
		{map[string]string{"functions/detect/detect_test.go": "\n// Changed.\n", "shared/pgtest/pgtest.go": "\n// Changed.\n", "go.mod": "\nrequire rsc.io/quote v1.5.2\n"}, nil},
		{map[string]string{"functions/detect/detect.go": "\n// Changed.\n"}, []string{"detect"}},
		{map[string]string{"functions/storealert/entrypoint/function.go": "\n// Changed.\n", "shared/readings/bqreadings/sql/ranges.sql": "-- Changed.\n"}, []string{"ingest", "storealert"}},
		{map[string]string{"shared/push/message.go": "\n// Changed.\n"}, []string{"detect", "ingest", "storealert"}},
	} {
		for file, text := range edit.files {
			path := filepath.Join(copied, filepath.FromSlash(file))
			content, err := os.ReadFile(path)
			must.Do(t, errors.Join(err, os.WriteFile(path, append(content, text...), 0o600)))
		}
		after := all()
		var changed []string
		for name, archive := range after {
			if archive != before[name] {
				changed = append(changed, name)
			}
		}
		slices.Sort(changed)
		must.Equal(t, fmt.Sprint("after ", edit.files), edit.want, changed)
		before = after
	}
}

// TestRun writes the archives that terraform looks for.
func TestRun(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "dist")
	must.Do(t, run(t.Context(), root, out))
	for _, name := range []string{"detect", "ingest", "storealert", "train"} {
		written, err := os.Stat(filepath.Join(out, name+".zip"))
		must.Hold(t, err == nil && written.Size() >= 10_000, "%s: %v, %v", name, written, err)
	}
}

// TestErrors names the function and what go says of it.
func TestErrors(t *testing.T) {
	t.Parallel()
	copied := module(t)
	must.Do(t, os.RemoveAll(filepath.Join(copied, "shared", "push")))
	must.Contain(t, "the error", fmt.Sprint(run(t.Context(), copied, t.TempDir())), "detect: go list", "shared/push")
}
