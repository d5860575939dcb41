package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

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
