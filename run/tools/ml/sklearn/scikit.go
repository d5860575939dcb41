package sklearn

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"coldaisle.dev/shared/forest"
)

//go:embed compare.py
var script []byte

// python finds an interpreter that has scikit-learn: the first of the path, or
// the system's own behind it. Empty means that there is none.
func python(ctx context.Context) string {
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		if exec.CommandContext(ctx, name, "-c", "import sklearn").Run() == nil { //nolint:gosec // one of two constants
			return name
		}
	}
	return ""
}

// scikit hands the arrays to scikit-learn and returns what it measured, nil
// where it is not installed.
func scikit(ctx context.Context, folder string, d data, full bool) (map[string]any, error) {
	interpreter := python(ctx)
	if interpreter == "" {
		return nil, nil //nolint:nilnil // its absence is no fault
	}
	labels := make([]float64, len(d.labels))
	for i, odd := range d.labels {
		if odd {
			labels[i] = 1
		}
	}
	arrays := map[string][]float64{
		"few": d.few.Data, "many": d.many.Data, "site": d.site.Data, "labels": labels, "rows": d.rows.Data, "targets": d.targets,
	}
	program := filepath.Join(folder, "compare.py") // not sklearn.py, here or in the sources: it would be imported for the library
	arguments := []string{program, folder}
	if full {
		arrays["deep_rows"], arrays["deep_targets"] = d.deep.Data, d.deepTargets
		arguments = append(arguments, "full")
	}
	if err := os.WriteFile(program, script, 0o600); err != nil {
		return nil, fmt.Errorf("arrays: %w", err)
	}
	for name, values := range arrays {
		content := make([]byte, 0, 8*len(values))
		for _, v := range values {
			content = binary.LittleEndian.AppendUint64(content, math.Float64bits(v))
		}
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			return nil, fmt.Errorf("arrays: %w", err)
		}
	}
	command := exec.CommandContext(ctx, interpreter, arguments...) //nolint:gosec // our script
	var complaints bytes.Buffer
	command.Stderr = &complaints
	said, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("scikit-learn: %w: %s", err, complaints.Bytes())
	}
	var measured map[string]any
	if err := json.Unmarshal(said, &measured); err != nil {
		return nil, fmt.Errorf("scikit-learn: %w", err)
	}
	return measured, nil
}

// smooth is rows of 22 numbers and a target that some of them make.
func smooth(rows int) (m forest.Matrix, targets []float64) {
	random := rand.New(rand.NewPCG(1, 3)) //nolint:gosec // reproducible by design, no secret
	m.Columns = 22
	m.Data = make([]float64, 0, rows*m.Columns)
	for range rows {
		first := len(m.Data)
		for range m.Columns {
			m.Data = append(m.Data, random.NormFloat64())
		}
		x := m.Data[first:]
		targets = append(targets, x[0]+math.Sin(2*x[1])+x[2]*x[3]+0.5*random.NormFloat64())
	}
	return m, targets
}

// area is that under the ROC curve: how often an anomaly scores higher than an
// ordinary row, ties counted half.
func area(scores []float64, odd []bool) float64 {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(scores[a], scores[b]) })
	ranks, positives := 0.0, 0.0
	for first := 0; first < len(order); {
		last := first
		for last+1 < len(order) && scores[order[last+1]] == scores[order[first]] {
			last++
		}
		for _, i := range order[first : last+1] {
			if odd[i] {
				ranks += float64(first+last)/2 + 1
				positives++
			}
		}
		first = last + 1
	}
	negatives := float64(len(order)) - positives
	return (ranks - positives*(positives+1)/2) / (positives * negatives)
}
