package portable_test

import (
	"os"
	"os/exec"
	"regexp"
	"testing"
)

// Where a product is added to, the compiler for arm64 rounds once instead of twice, unless
// the product is converted to float64 first. In these packages it never may.
func TestNothingIsFused(t *testing.T) {
	t.Parallel()
	command := exec.CommandContext(t.Context(), "go", "build", "-gcflags=-S",
		"coldaisle.dev/shared/anomaly", "coldaisle.dev/shared/features", "coldaisle.dev/shared/forest",
		"coldaisle.dev/shared/learn", "coldaisle.dev/shared/portable", "coldaisle.dev/shared/reading")
	command.Env = append(os.Environ(), "GOARCH=arm64", "CGO_ENABLED=0")
	assembly, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %.2000s", err, assembly)
	}
	if !regexp.MustCompile(`FMULD`).Match(assembly) {
		t.Fatal("the assembly multiplies nothing")
	}
	fused := regexp.MustCompile(`shared/(\S+\.go:\d+)\)\s+FN?M(ADD|SUB)`)
	for _, line := range fused.FindAllSubmatch(assembly, -1) {
		t.Errorf("%s multiplies and adds at once", line[1])
	}
}
