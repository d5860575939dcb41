// Command image builds the API's container image and pushes it, without Docker:
// a base image, by default distroless, with one program on top that runs as nonroot.
//
//	go run ./run/tools/release/image -repository REGION-docker.pkg.dev/PROJECT/images -sbom dist/sbom.json
//
// It prints the image by digest, which is what terraform's api_image takes. Equal
// sources on an equal base give an equal digest. The bill of materials, of the program's
// build information, the pages in it and the base image, is written as a CycloneDX document
// and attached to the image. With -bill it prints that of any program, as the gateway's
// packages need it.
package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/google"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"coldaisle.dev/shared/config"
)

// buildOptions are the command's flags.
type buildOptions struct {
	base       string // image below the program
	repository string // without the image's own name
	root       string // folder of the module's go.mod
	sbom       string // file for the bill of materials; empty for none
	bill       string // program whose bill of materials alone is wanted
}

func main() {
	s := buildOptions{root: "."}
	flag.StringVar(&s.base, "base", "gcr.io/distroless/static-debian12:nonroot", "image to build on; by digest where the result must not change with it")
	flag.StringVar(&s.repository, "repository", "", "where to push to: REGION-docker.pkg.dev/PROJECT/coldaisle")
	flag.StringVar(&s.sbom, "sbom", "", "file to write the bill of materials to as well")
	flag.StringVar(&s.bill, "bill", "", "build nothing, and print the bill of materials of this program")
	flag.Parse()
	config.Main("image", func(ctx context.Context) error {
		if s.bill != "" {
			materials, err := sbom(s.bill)
			fmt.Print(string(materials))
			return err
		}
		reference, err := run(ctx, s)
		if err == nil {
			fmt.Println(reference)
		}
		return err
	})
}

// run builds the image, pushes it with its bill of materials and returns its
// name by digest.
func run(ctx context.Context, s buildOptions) (string, error) {
	if s.repository == "" {
		return "", errors.New("say where to push to with -repository")
	}
	repository, err := name.NewRepository(s.repository + "/api")
	if err != nil {
		return "", fmt.Errorf("repository: %w", err)
	}
	options := []remote.Option{
		remote.WithContext(ctx), remote.WithPlatform(v1.Platform{OS: "linux", Architecture: "amd64"}),
		remote.WithAuthFromKeychain(authn.NewMultiKeychain(google.Keychain, authn.DefaultKeychain)),
	}
	below, err := name.ParseReference(s.base)
	if err != nil {
		return "", fmt.Errorf("base image: %w", err)
	}
	base, err := remote.Image(below, options...)
	if err != nil {
		return "", fmt.Errorf("base image: %w", err)
	}
	folder, err := os.MkdirTemp("", "image")
	if err != nil {
		return "", fmt.Errorf("folder to build in: %w", err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	program := filepath.Join(folder, "server")
	if err := compile(ctx, s.root, program); err != nil {
		return "", err
	}
	image, err := addProgram(base, program)
	if err != nil {
		return "", err
	}
	others, err := pagePackages(s.root)
	if err != nil {
		return "", err
	}
	digest, err := base.Digest()
	if err != nil {
		return "", fmt.Errorf("base image: %w", err)
	}
	url := "pkg:oci/" + path.Base(below.Context().RepositoryStr()) + "@" + digest.String() + "?repository_url=" + below.Context().Name()
	materials, err := sbom(program, append(others, component{Type: "container", Ref: url, Name: below.Context().Name(), Version: digest.String(), PURL: url})...)
	if err != nil {
		return "", err
	}
	if s.sbom != "" {
		if err := os.WriteFile(s.sbom, materials, 0o600); err != nil {
			return "", fmt.Errorf("bill of materials: %w", err)
		}
	}
	attached, err := sbomReferrer(image, materials)
	if err != nil {
		return "", err
	}
	var references [2]name.Digest
	for i, pushed := range []v1.Image{image, attached} {
		digest, err := pushed.Digest()
		if err != nil {
			return "", fmt.Errorf("digest: %w", err)
		}
		references[i] = repository.Digest(digest.String())
		if err := remote.Write(references[i], pushed, options...); err != nil {
			return "", fmt.Errorf("push %s: %w", references[i], err)
		}
	}
	return references[0].String(), nil
}

// nonroot is distroless's user and group nonroot.
const nonroot = "65532:65532"

// compile builds the API's program reproducibly: machine, folder and time do not
// change it.
func compile(ctx context.Context, root, program string) error {
	c := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid=", "-o", program, "./run/server") //nolint:gosec // a path of our own
	c.Dir = root
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOAMD64=v1", "GOFLAGS=", "GOWORK=off")
	if output, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("build the program: %w\n%s", err, bytes.TrimSpace(output))
	}
	return nil
}

// addProgram adds the program to a base image as its entrypoint, run as nonroot. Every
// time in the image is the epoch.
func addProgram(base v1.Image, program string) (v1.Image, error) {
	content, err := os.ReadFile(program) //nolint:gosec // a path of our own
	if err != nil {
		return nil, fmt.Errorf("program: %w", err)
	}
	var packed bytes.Buffer
	archive := tar.NewWriter(&packed)
	header := &tar.Header{Name: "server", Mode: 0o555, Size: int64(len(content)), ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
	if err = archive.WriteHeader(header); err == nil {
		_, err = archive.Write(content)
	}
	if err = errors.Join(err, archive.Close()); err != nil {
		return nil, fmt.Errorf("layer: %w", err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil })
	if err != nil {
		return nil, fmt.Errorf("layer: %w", err)
	}
	image, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created = "linux", "amd64", v1.Time{Time: time.Unix(0, 0).UTC()}
	file.Config.Entrypoint, file.Config.Cmd = []string{"/server"}, nil
	file.Config.User, file.Config.WorkingDir = nonroot, "/"
	if image, err = mutate.ConfigFile(image, file); err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	return image, nil
}
