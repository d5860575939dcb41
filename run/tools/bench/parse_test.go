package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const output = `goos: linux
pkg: coldaisle.dev/a
cpu: AMD EPYC
BenchmarkOne-2         	   85747	      2419 ns/op	    1960 B/op	      27 allocs/op
BenchmarkTwo/of_many/10-2 	       1	5012345678 ns/op	        12.50 answer-p50-ms	         0.99 ratio
some log line
BenchmarkThree
    three_test.go:12: 17 rows and more
BenchmarkThree-2       	     100	     10 ns/op
PASS
ok  	coldaisle.dev/a	1.162s
pkg: coldaisle.dev/b
BenchmarkFour-16 said something
       5	       2.000 messages/s
FAIL	coldaisle.dev/b
`

func TestParse(t *testing.T) {
	t.Parallel()
	got, err := parse(strings.NewReader(output))
	if err != nil {
		t.Fatal(err)
	}
	want := []result{
		{"coldaisle.dev/a", "One", []metric{{"ns/op", 2419}, {"B/op", 1960}, {"allocs/op", 27}}},
		{"coldaisle.dev/a", "Two/of many/10", []metric{{"ns/op", 5012345678}, {"answer-p50-ms", 12.5}, {"ratio", 0.99}}},
		{"coldaisle.dev/a", "Three", []metric{{"ns/op", 10}}},
		{"coldaisle.dev/b", "Four", []metric{{"messages/s", 2}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestPage(t *testing.T) {
	t.Parallel()
	results, err := parse(strings.NewReader(strings.ReplaceAll(output, "Two/of_many/10", "EndToEnd/1000/s")))
	if err != nil {
		t.Fatal(err)
	}
	page, err := render(machine{Date: "2026-03-01", CPU: "A | B", Cores: 2}, []program{{Name: "gateway", Bytes: 12_345_678, Opening: 41}}, results)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"| 1000 |  | 12.5 |", "A | B, 2 cores", "2026-03-01", "| gateway | 12.3 MB |", "### a\n", "| One | 2.42 µs | 1960 | 27 | |",
		"| Four | | | | 2 messages/s |", "| 41 |", "## Ratios", "0.99",
	} {
		if !strings.Contains(page, text) {
			t.Errorf("no %q in the page:\n%s", text, page)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(output)
	f.Add("BenchmarkX 1 NaN ns/op\n")
	f.Fuzz(func(t *testing.T, text string) {
		results, err := parse(strings.NewReader(text))
		if err == nil {
			_, err = render(machine{}, nil, results)
		}
		if err != nil && len(text) < 1<<20 {
			t.Error(err)
		}
	})
}
