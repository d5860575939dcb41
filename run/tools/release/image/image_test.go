package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"coldaisle.dev/shared/must"
	"coldaisle.dev/shared/tooltest"
)

const root = "../../../.."

// published is an image in a registry of the test's own.
type published struct {
	reference  string // by digest
	repository name.Repository
	base       string // digest
	sbom       string
}

// publish builds the image on a base as distroless's is: certificates, users and no shell.
func publish(t *testing.T) published {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	base := host + "/base:nonroot"
	reference := must.Get(name.ParseReference(base))(t)
	below := standIn(t)
	digest, err := below.Digest()
	must.Do(t, errors.Join(err, remote.Write(reference, below)))
	p := published{base: digest.String(), sbom: filepath.Join(t.TempDir(), "sbom.json")}
	options := buildOptions{base: base, repository: host + "/images", root: root, sbom: p.sbom}
	p.reference = must.Get(run(t.Context(), options))(t)
	p.repository = must.Get(name.NewRepository(host + "/images/api"))(t)
	return p
}

func standIn(t *testing.T) v1.Image {
	t.Helper()
	var packed bytes.Buffer
	archive := tar.NewWriter(&packed)
	for _, file := range []struct{ name, content string }{
		{"etc/passwd", "nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n"},
		{"etc/ssl/certs/ca-certificates.crt", "\n"},
	} {
		must.Do(t, archive.WriteHeader(&tar.Header{Name: file.name, Mode: 0o644, Size: int64(len(file.content))}))
		must.Get(archive.Write([]byte(file.content)))(t)
	}
	must.Do(t, archive.Close())
	layer := must.Get(tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil }))(t)
	return must.Get(mutate.AppendLayers(empty.Image, layer))(t)
}

// image reads what was published back.
func (p published) image(t *testing.T) v1.Image {
	t.Helper()
	digest := must.Get(name.NewDigest(p.reference))(t)
	return must.Get(remote.Image(digest))(t)
}

// unpacked writes the image's files below a folder.
func (p published) unpacked(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	files := mutate.Extract(p.image(t))
	defer func() { _ = files.Close() }()
	for archive := tar.NewReader(files); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return folder
		}
		must.Do(t, err)
		content := must.Get(io.ReadAll(archive))(t)
		path := filepath.Join(folder, header.Name)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Do(t, os.WriteFile(path, content, header.FileInfo().Mode()))
	}
}

// TestImage publishes one image, since linking the program takes most of the time, and looks at it from all sides.
func TestImage(t *testing.T) {
	t.Parallel()
	p := publish(t)
	for name, test := range map[string]func(*testing.T, published){
		"is reproducible": isReproducible, "has a bill of materials": hasBill, "starts in its own files": startsContained,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, p)
		})
	}
}

// isReproducible wants an image that is named by its digest, with nothing of the machine in
// its settings. At night it is built again, with one digest.
func isReproducible(t *testing.T, first published) {
	t.Helper()
	_, one, _ := strings.Cut(first.reference, "@")
	must.Contain(t, "the image's name", one, "sha256:")
	if tooltest.Nightly() {
		_, two, _ := strings.Cut(publish(t).reference, "@")
		must.Equal(t, "built again", one, two)
	}
	file := must.Get(first.image(t).ConfigFile())(t)
	c := file.Config
	if c.User != nonroot || !slices.Equal(c.Entrypoint, []string{"/server"}) || len(c.Cmd) != 0 || len(c.Env) != 0 || file.Created.Unix() != 0 {
		t.Errorf("runs %q %q as %q with %q, made at %s", c.Entrypoint, c.Cmd, c.User, c.Env, file.Created)
	}
	must.Hold(t, len(file.RootFS.DiffIDs) == 2 && file.OS == "linux" && file.Architecture == "amd64",
		"%d layers for %s/%s", len(file.RootFS.DiffIDs), file.OS, file.Architecture)
}

// startsContained starts the program as Cloud Run does, as nobody and with nothing but the image's files, and without
// its settings: it names them. With those of terraform it is started by run/server's TestStartsAsDeployed. Where the
// test is not root it cannot change the root folder or the user, and starts the program alone.
func startsContained(t *testing.T, p published) {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("the image is for linux/amd64")
	}
	folder := p.unpacked(t)
	c := exec.CommandContext(t.Context(), filepath.Join(folder, "server"))
	if os.Getuid() == 0 {
		c.Path, c.Dir = "/server", "/"
		c.SysProcAttr = &syscall.SysProcAttr{Chroot: folder, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
	}
	c.Env = []string{}
	output, err := c.CombinedOutput()
	must.Hold(t, err != nil && strings.Contains(string(output), "SECRET_KEY is required"), "%v\n%s", err, output)
}

// hasBill finds the bill by the image. It names exactly what is in it.
func hasBill(t *testing.T, p published) {
	t.Helper()
	written := must.Get(os.ReadFile(p.sbom))(t)
	var d document
	must.Do(t, json.Unmarshal(written, &d))
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", `{{with .Module}}{{if not .Main}}pkg:golang/{{.Path}}@{{.Version}}{{end}}{{end}}`, "./run/server")
	list.Dir, list.Env = root, append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=")
	want := append(strings.Fields(string(must.Get(list.Output())(t))), "pkg:golang/stdlib@"+runtime.Version())
	for _, c := range must.Get(pagePackages(root))(t) { // where they are built
		want = append(want, c.PURL)
	}
	var got []string
	for _, c := range d.Components {
		if got = append(got, c.PURL); c.Type == "container" {
			want = append(want, "pkg:oci/base@"+p.base+"?repository_url="+c.Name)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(slices.Compact(want), got); diff != "" || !slices.ContainsFunc(got, func(url string) bool { return strings.HasPrefix(url, "pkg:oci/") }) {
		t.Errorf("what is in the image, and its bill (-want +got):\n%s", diff)
	}
	digest := must.Get(name.NewDigest(p.reference))(t)
	manifest, err := must.Get(remote.Referrers(digest))(t).IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("what refers to the image: %+v, %v", manifest, err)
	}
	attached := must.Get(remote.Image(p.repository.Digest(manifest.Manifests[0].Digest.String())))(t)
	layers, err := attached.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	reader := must.Get(layers[0].Uncompressed())(t)
	defer func() { _ = reader.Close() }()
	must.Equal(t, "attached", string(written), string(must.Get(io.ReadAll(reader))(t)))
}

// TestBillNamesThePages has both pages built, one and none.
func TestBillNamesThePages(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	names := func(built string) []string {
		t.Helper()
		page, lock := filepath.Dir(filepath.Dir(filepath.Dir(built))), "package-lock.json"
		text, err := os.ReadFile(filepath.Join(root, page, lock))
		must.Do(t, errors.Join(err, os.MkdirAll(filepath.Join(folder, filepath.Dir(built)), 0o700), os.WriteFile(filepath.Join(folder, built), nil, 0o600), os.WriteFile(filepath.Join(folder, page, lock), text, 0o600)))
		all := must.Get(pagePackages(folder))(t)
		var names []string
		for _, c := range all {
			names = append(names, strings.TrimSuffix(c.PURL, "@"+c.Version))
		}
		return names
	}
	must.Equal(t, "packages of no page", 0, len(must.Get(pagePackages(folder))(t)))
	if got := names("run/dashboard/site/built/index.html"); !slices.Contains(got, "pkg:npm/preact") || !slices.Contains(got, "pkg:npm/%40tanstack/preact-query") || slices.Contains(got, "pkg:npm/vite") || slices.Contains(got, "pkg:npm/redoc") {
		t.Errorf("the dashboard: %q", got)
	}
	got := names("run/api/pages/site/built/redoc.standalone.js")
	must.Hold(t, slices.Contains(got, "pkg:npm/redoc") && slices.Contains(got, "pkg:npm/preact"), "both: %q", got)
}

// TestErrors says what is missing.
func TestErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		settings buildOptions
		want     string
	}{
		{buildOptions{}, "-repository"},
		{buildOptions{repository: "host.example/UPPER"}, "repository"},
		{buildOptions{repository: "host.example/images", base: "://"}, "base image"},
	} {
		_, err := run(t.Context(), test.settings)
		must.Contain(t, fmt.Sprintf("the error of %+v", test.settings), fmt.Sprint(err), test.want)
	}
	_, err := sbom(filepath.Join(root, "go.mod"))
	must.Equal(t, "what is no program has a bill", false, err == nil)
	err = compile(t.Context(), t.TempDir(), filepath.Join(t.TempDir(), "server"))
	must.Equal(t, "an empty folder is compiled", false, err == nil)
}
