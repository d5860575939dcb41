package forest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrDamaged is the fault of bytes that are no encoded forest.
var ErrDamaged = errors.New("damaged forest")

// Trees are written root first, left before right, so that a child's place
// needs no bytes and no place can lead astray. A leaf begins with the byte 0, a
// split with its feature's number plus one.
const leafTag = 0

// deepest is how many splits may lie above a leaf: more than any tree of rows
// that fit a machine, few enough for the stack.
const deepest = 1 << 16

// AppendBinary implements [encoding.BinaryAppender]: the form that
// [DecodeIsolation] reads.
func (f *Isolation) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, uint8(f.columns))                               //nolint:gosec // at most MaxColumns
	b = binary.LittleEndian.AppendUint32(b, uint32(f.sample))     //nolint:gosec // at most maxSample
	b = binary.LittleEndian.AppendUint32(b, uint32(len(f.roots))) //nolint:gosec // at most maxTrees
	for _, root := range f.roots {
		b = f.appendNode(b, root)
	}
	return b, nil
}

func (f *Isolation) appendNode(b []byte, at uint32) []byte {
	n := f.nodes[at]
	if n.left == at {
		return binary.LittleEndian.AppendUint32(append(b, leafTag), math.Float32bits(f.paths[at]))
	}
	b = append(b, uint8(n.feature+1)) //nolint:gosec // at most MaxColumns
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(n.threshold))
	return f.appendNode(f.appendNode(b, n.left), n.left+1)
}

// DecodeIsolation reads what [Isolation.AppendBinary] wrote and returns the
// bytes behind it. Whatever the bytes are, the forest it returns is safe to
// score with; else the error is an [ErrDamaged].
func DecodeIsolation(b []byte) (*Isolation, []byte, error) {
	d := decoder{rest: b}
	f := &Isolation{columns: int(d.byte())}
	sample, trees := d.uint32(), d.uint32()
	if d.err != nil || f.columns < 1 || sample < 1 || sample > maxSample || trees < 1 || trees > maxTrees {
		return nil, nil, fmt.Errorf("%w: %d trees of %d rows of %d columns", ErrDamaged, trees, sample, f.columns)
	}
	f.sample, f.levels = int(sample), levelsOf(int(sample))
	for range trees {
		f.roots = append(f.roots, uint32(len(f.nodes))) //nolint:gosec // checked below
		f.nodes, f.paths = append(f.nodes, isolationNode{}), append(f.paths, 0)
		d.isolationNode(f, len(f.nodes)-1, 0)
		if d.err != nil {
			return nil, nil, d.err
		}
	}
	return f, d.rest, nil
}

func (d *decoder) isolationNode(f *Isolation, at, level int) {
	tag := int(d.byte())
	if tag == leafTag {
		path := math.Float32frombits(d.uint32())
		if !(path >= 0 && path <= maxSample) {
			d.fail("a path of length %g", path)
		}
		f.nodes[at] = isolationNode{threshold: math.Inf(1), left: uint32(at)} //nolint:gosec // levels bound the nodes
		f.paths[at] = path
		return
	}
	threshold := math.Float64frombits(d.uint64())
	if tag > f.columns || level >= f.levels || math.IsNaN(threshold) || math.IsInf(threshold, 0) {
		d.fail("a split of feature %d at %g on level %d", tag-1, threshold, level)
	}
	if d.err != nil {
		return
	}
	child := len(f.nodes)
	f.nodes[at] = isolationNode{threshold: threshold, left: uint32(child), feature: uint32(tag - 1)} //nolint:gosec // levels bound the nodes
	f.nodes, f.paths = append(f.nodes, isolationNode{}, isolationNode{}), append(f.paths, 0, 0)
	d.isolationNode(f, child, level+1)
	d.isolationNode(f, child+1, level+1)
}

// AppendBinary implements [encoding.BinaryAppender]: the form that
// [DecodeRegression] reads.
func (f *Regression) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, uint8(f.Columns())) //nolint:gosec // at most MaxColumns
	for _, edges := range f.quantiser.edges {
		b = append(b, uint8(len(edges))) //nolint:gosec // at most maxBins-1
		for _, edge := range edges {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(edge))
		}
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(f.trees))) //nolint:gosec // at most maxTrees
	for _, tree := range f.trees {
		for _, n := range tree { // which lie in the order of writing
			if n.leaf {
				b = binary.LittleEndian.AppendUint32(append(b, leafTag), n.content)
			} else {
				b = append(b, n.feature+1, n.bin)
			}
		}
	}
	return b, nil
}

// DecodeRegression reads what [Regression.AppendBinary] wrote and returns the
// bytes behind it. Whatever the bytes are, the forest it returns is safe to
// predict with; else the error is an [ErrDamaged].
func DecodeRegression(b []byte) (*Regression, []byte, error) {
	d := decoder{rest: b}
	columns := int(d.byte())
	f := &Regression{quantiser: quantiser{edges: make([][]float64, columns)}}
	for column := range columns {
		edges := make([]float64, int(d.byte()))
		for i := range edges {
			edges[i] = math.Float64frombits(d.uint64())
			if math.IsNaN(edges[i]) || math.IsInf(edges[i], 0) || i > 0 && edges[i] <= edges[i-1] {
				d.fail("limits of column %d do not ascend", column)
			}
		}
		f.quantiser.edges[column] = edges
	}
	trees := d.uint32()
	if d.err == nil && (columns < 1 || trees < 1 || trees > maxTrees) {
		d.fail("%d trees of %d columns", trees, columns)
	}
	if d.err != nil {
		return nil, nil, d.err
	}
	for range trees {
		tree := d.regressionNode(nil, columns, 0)
		if d.err != nil {
			return nil, nil, d.err
		}
		f.trees = append(f.trees, tree)
	}
	return f, d.rest, nil
}

func (d *decoder) regressionNode(tree []regressionNode, columns, level int) []regressionNode {
	at := len(tree)
	tag := int(d.byte())
	if tag == leafTag {
		n := regressionNode{content: d.uint32(), leaf: true}
		if v := n.value(); math.IsNaN(v) || math.IsInf(v, 0) {
			d.fail("a leaf of %g", v)
		}
		return append(tree, n)
	}
	bin := d.byte()
	if tag > columns || level >= deepest {
		d.fail("a split of feature %d on level %d", tag-1, level)
	}
	if d.err != nil {
		return tree
	}
	tree = append(tree, regressionNode{feature: uint8(tag - 1), bin: bin}) //nolint:gosec // at most MaxColumns
	tree = d.regressionNode(tree, columns, level+1)
	tree[at].content = uint32(len(tree)) //nolint:gosec // bounded by the bytes read
	return d.regressionNode(tree, columns, level+1)
}

// decoder reads numbers until one is missing or refused; then it reads zeros.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) fail(format string, arguments ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, arguments...))
	}
}

func (d *decoder) take(n int) []byte {
	if d.err != nil || len(d.rest) < n {
		d.fail("cut short")
		d.rest = nil
		return make([]byte, 8)
	}
	taken := d.rest[:n]
	d.rest = d.rest[n:]
	return taken
}

func (d *decoder) byte() byte     { return d.take(1)[0] }
func (d *decoder) uint32() uint32 { return binary.LittleEndian.Uint32(d.take(4)) }
func (d *decoder) uint64() uint64 { return binary.LittleEndian.Uint64(d.take(8)) }
