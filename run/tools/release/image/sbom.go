package main

import (
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// cycloneDX is the media type of the bill of materials.
const cycloneDX types.MediaType = "application/vnd.cyclonedx+json"

type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	PURL    string `json:"purl,omitempty"`
}

type document struct {
	Format      string `json:"bomFormat"`
	SpecVersion string `json:"specVersion"`
	Version     int    `json:"version"`
	Metadata    struct {
		Component component `json:"component"`
	} `json:"metadata"`
	Components []component `json:"components"`
}

// sbom lists a program's modules, its Go version and what else is said to be with it as a
// CycloneDX document. It holds no time and no random number: equal programs have equal
// documents.
func sbom(program string, others ...component) ([]byte, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("build information: %w", err)
	}
	if len(info.Deps) == 0 {
		return nil, errors.New("the program has no build information")
	}
	d := document{Format: "CycloneDX", SpecVersion: "1.5", Version: 1}
	d.Metadata.Component = component{Type: "application", Ref: info.Path, Name: info.Path}
	add := func(path, version string) {
		url := "pkg:golang/" + path + "@" + version
		d.Components = append(d.Components, component{Type: "library", Ref: url, Name: path, Version: version, PURL: url})
	}
	add("stdlib", info.GoVersion)
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		add(module.Path, module.Version)
	}
	d.Components = append(d.Components, others...)
	written, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("bill of materials: %w", err)
	}
	return append(written, '\n'), nil
}

// pagePackages lists the packages of npm in the pages that are built into the program: those
// that are not for development alone.
func pagePackages(root string) ([]component, error) {
	var all []component
	for folder, built := range map[string]string{"run/dashboard": "index.html", "run/api/pages": "redoc.standalone.js"} {
		if _, err := os.Stat(filepath.Join(root, folder, "site/built", built)); err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, folder, "package-lock.json")) //nolint:gosec // a path of our own
		if err != nil {
			return nil, fmt.Errorf("packages of a page: %w", err)
		}
		var lock struct {
			Packages map[string]struct {
				Version string
				Dev     bool
			}
		}
		if err := json.Unmarshal(text, &lock); err != nil {
			return nil, fmt.Errorf("packages of %s: %w", folder, err)
		}
		for path, p := range lock.Packages {
			if at := strings.LastIndex(path, "node_modules/"); at >= 0 && !p.Dev {
				name := path[at+len("node_modules/"):]
				url := "pkg:npm/" + strings.Replace(name, "@", "%40", 1) + "@" + p.Version
				all = append(all, component{Type: "library", Ref: url, Name: name, Version: p.Version, PURL: url})
			}
		}
	}
	slices.SortFunc(all, func(a, b component) int { return cmp.Compare(a.Ref, b.Ref) })
	return slices.Compact(all), nil
}

// sbomReferrer returns an artifact that holds the bill of materials and refers to the
// image.
func sbomReferrer(image v1.Image, materials []byte) (v1.Image, error) {
	described, err := partial.Descriptor(image)
	if err != nil {
		return nil, fmt.Errorf("describe the image: %w", err)
	}
	attached, err := mutate.AppendLayers(empty.Image, static.NewLayer(materials, cycloneDX))
	if err != nil {
		return nil, fmt.Errorf("attach the bill of materials: %w", err)
	}
	attached = mutate.ConfigMediaType(mutate.MediaType(attached, types.OCIManifestSchema1), cycloneDX)
	referring, ok := mutate.Subject(attached, *described).(v1.Image)
	if !ok {
		return nil, errors.New("the bill of materials cannot refer to the image")
	}
	return referring, nil
}
