package forest

import (
	"encoding/binary"
	"math"

	"coldaisle.dev/shared/artifact"
)

// Trees are written root first, left before right: a child's place needs no bytes, and no
// place can be wrong. A leaf begins with the byte 0, a split with its feature's number plus one.
const leafTag = 0

// deepest bounds the splits above a leaf: more than any tree of rows that fit a machine,
// few enough for the stack.
const deepest = 1 << 16

// AppendBinary implements [encoding.BinaryAppender]: the form that [ReadIsolation] reads.
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
		return artifact.AppendFloat32(append(b, leafTag), f.paths[at])
	}
	b = artifact.AppendFloat64(append(b, uint8(n.feature+1)), n.threshold) //nolint:gosec // at most MaxColumns
	return f.appendNode(f.appendNode(b, n.left), n.left+1)
}

// ReadIsolation reads what [Isolation.AppendBinary] wrote. Whatever the bytes are, the
// forest is safe to score with unless the reader has failed.
func ReadIsolation(r *artifact.Reader) *Isolation {
	f := &Isolation{columns: int(r.Byte())}
	sample, trees := r.Uint32(), r.Uint32()
	if f.columns < 1 || sample < 1 || sample > maxSample || trees < 1 || trees > maxTrees {
		r.Fail("%d trees of %d rows of %d columns", trees, sample, f.columns)
	}
	f.sample, f.levels = int(sample), levelsOf(int(sample))
	for range trees {
		if r.Err() != nil {
			break
		}
		f.roots = append(f.roots, uint32(len(f.nodes))) //nolint:gosec // levels bound the nodes
		f.nodes, f.paths = append(f.nodes, isolationNode{}), append(f.paths, 0)
		f.readNode(r, len(f.nodes)-1, 0)
	}
	return f
}

func (f *Isolation) readNode(r *artifact.Reader, at, level int) {
	tag := int(r.Byte())
	if tag == leafTag {
		path := r.Float32()
		if !(path >= 0 && path <= maxSample) {
			r.Fail("a path of length %g", path)
		}
		f.nodes[at] = isolationNode{threshold: math.Inf(1), left: uint32(at)} //nolint:gosec // levels bound the nodes
		f.paths[at] = path
		return
	}
	threshold := r.Finite()
	if tag > f.columns || level >= f.levels {
		r.Fail("a split of feature %d on level %d", tag-1, level)
	}
	if r.Err() != nil {
		return
	}
	child := len(f.nodes)
	f.nodes[at] = isolationNode{threshold: threshold, left: uint32(child), feature: uint32(tag - 1)} //nolint:gosec // levels bound the nodes
	f.nodes, f.paths = append(f.nodes, isolationNode{}, isolationNode{}), append(f.paths, 0, 0)
	f.readNode(r, child, level+1)
	f.readNode(r, child+1, level+1)
}

// AppendBinary implements [encoding.BinaryAppender]: the form that [ReadRegression] reads.
func (f *Regression) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, uint8(f.Columns())) //nolint:gosec // at most MaxColumns
	for _, edges := range f.quantiser.edges {
		b = artifact.AppendFloat64(append(b, uint8(len(edges))), edges...) //nolint:gosec // at most maxBins-1
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(f.roots))) //nolint:gosec // at most maxTrees
	for _, n := range f.nodes {                                   // which lie in the order of writing
		if n.isLeaf() {
			b = binary.LittleEndian.AppendUint32(append(b, leafTag), n.content())
		} else {
			b = append(b, n.feature()+1, n.bin())
		}
	}
	return b, nil
}

// ReadRegression reads what [Regression.AppendBinary] wrote. Whatever the bytes are, the
// forest is safe to predict with unless the reader has failed.
func ReadRegression(r *artifact.Reader) *Regression {
	columns := int(r.Byte())
	f := &Regression{quantiser: quantiser{edges: make([][]float64, columns)}}
	for column := range columns {
		edges := make([]float64, int(r.Byte()))
		for i := range edges {
			if edges[i] = r.Finite(); i > 0 && edges[i] <= edges[i-1] {
				r.Fail("limits of column %d do not ascend", column)
			}
		}
		f.quantiser.edges[column] = edges
	}
	trees := r.Uint32()
	if columns < 1 || trees < 1 || trees > maxTrees {
		r.Fail("%d trees of %d columns", trees, columns)
	}
	for range trees {
		if r.Err() != nil {
			break
		}
		f.roots = append(f.roots, uint32(len(f.nodes))) //nolint:gosec // bounded by the bytes read
		f.readNode(r, 0)
	}
	return f
}

func (f *Regression) readNode(r *artifact.Reader, level int) {
	at := len(f.nodes)
	tag := int(r.Byte())
	if tag == leafTag {
		n := newLeaf(r.Uint32())
		if v := n.value(); math.IsNaN(v) || math.IsInf(v, 0) {
			r.Fail("a leaf of %g", v)
		}
		f.nodes = append(f.nodes, n)
		return
	}
	bin := r.Byte()
	if tag > f.Columns() || level >= deepest {
		r.Fail("a split of feature %d on level %d", tag-1, level)
	}
	if r.Err() != nil {
		return
	}
	f.nodes = append(f.nodes, 0)
	f.readNode(r, level+1)
	f.nodes[at] = newSplit(uint32(len(f.nodes)), uint8(tag-1), bin) //nolint:gosec // bounded by the bytes read; at most MaxColumns
	f.readNode(r, level+1)
}
