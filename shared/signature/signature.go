// Package signature verifies the Ed25519 signatures of keys that sign often, in half of
// the time that crypto/ed25519 takes. It accepts exactly what crypto/ed25519 accepts:
// it computes the same point of the curve and compares the same bytes.
//
// A signature (R, S) of a message is right when S·B - k·A encodes as R, where B is the
// base point, A the key, and k a hash of R, A and the message. Most of the time goes
// into the two products. For a key that has been seen some times the multiples of A are
// computed once, as they are for B, so that each product is a sum of some forty of them
// without any doubling. The points are those of filippo.io/edwards25519, from which the
// standard library's are made. Nothing here is secret, so nothing takes care of timing:
// never sign by this.
package signature

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha512"
	"errors"
	"sync"
	"sync/atomic"

	"filippo.io/edwards25519"
	lru "github.com/hashicorp/golang-lru/v2"
)

const (
	// prepareAt is the verification at which a key's multiples are computed: that takes
	// as long as some ten verifications do.
	prepareAt = 16
	// maxKeys is of how many keys multiples are kept, 230 kB each. When more than these
	// take turns, none is prepared.
	maxKeys = 128
	// keyWidth and baseWidth are how many bits of a scalar choose one multiple of A and
	// of B: one more bit doubles the memory and saves a seventh of the additions.
	keyWidth, baseWidth = 6, 8
	// scalarBits is more than the bits of a scalar below the group's order.
	scalarBits = 253
)

// Verifier verifies signatures and remembers the keys that it meets often. Its methods
// may be called from many goroutines.
type Verifier struct {
	keys *lru.Cache[string, *key]
	base func() *multiples // of B
}

type key struct {
	uses      atomic.Int64
	multiples atomic.Pointer[multiples] // of -A; nil until it is prepared
}

// New returns a verifier that knows no key yet.
func New() *Verifier {
	keys, err := lru.New[string, *key](maxKeys)
	if err != nil {
		panic(err) // only of a size below one
	}
	return &Verifier{keys, sync.OnceValue(func() *multiples { return multiplesOf(edwards25519.NewGeneratorPoint(), baseWidth) })}
}

// ErrKey is the error of a public key that is no gateway's.
var ErrKey = errors.New("the public key is no point of the curve, not in its one form, or of small order")

// CheckKey refuses a key for which somebody could sign without knowing the private one,
// and one that has two forms. Keys that crypto/ed25519 generates are all right.
func CheckKey(public ed25519.PublicKey) error {
	point, err := new(edwards25519.Point).SetBytes(public)
	if err != nil || !bytes.Equal(point.Bytes(), public) {
		return ErrKey
	}
	if point.MultByCofactor(point).Equal(edwards25519.NewIdentityPoint()) == 1 {
		return ErrKey
	}
	return nil
}

// Verify reports whether the public key's owner has signed the message, which is given
// in two parts.
func (v *Verifier) Verify(public ed25519.PublicKey, head, tail, signature []byte) bool {
	if len(public) != ed25519.PublicKeySize || len(signature) != ed25519.SignatureSize {
		return false
	}
	known, ok := v.keys.Get(string(public))
	if !ok {
		known = &key{}
		v.keys.Add(string(public), known)
	}
	prepared := known.multiples.Load()
	if prepared == nil && known.uses.Add(1) == prepareAt {
		if point, err := new(edwards25519.Point).SetBytes(public); err == nil {
			prepared = multiplesOf(point.Negate(point), keyWidth)
			known.multiples.Store(prepared)
		}
	}
	if prepared == nil {
		return ed25519.Verify(public, append(bytes.Clone(head), tail...), signature)
	}
	return v.verify(public, prepared, head, tail, signature)
}

func (v *Verifier) verify(public ed25519.PublicKey, minusA *multiples, head, tail, signature []byte) bool {
	r, s := signature[:32], signature[32:]
	if _, err := new(edwards25519.Scalar).SetCanonicalBytes(s); err != nil {
		return false // S is not below the group's order
	}
	hash := sha512.New()
	for _, part := range [][]byte{r, public, head, tail} {
		_, _ = hash.Write(part)
	}
	var digest [sha512.Size]byte
	k, err := new(edwards25519.Scalar).SetUniformBytes(hash.Sum(digest[:0]))
	if err != nil {
		return false
	}
	sum := edwards25519.NewIdentityPoint()
	v.base().add(sum, s)
	minusA.add(sum, k.Bytes())
	return bytes.Equal(sum.Bytes(), r)
}

// multiples are those of a point P: with digits of w bits, row i has 1·P to 2^(w-1)·P,
// times 2^(w·i).
type multiples struct {
	width int
	rows  [][]edwards25519.Point
}

func multiplesOf(p *edwards25519.Point, width int) *multiples {
	m := &multiples{width: width}
	unit := new(edwards25519.Point).Set(p)
	for bit := 0; bit <= scalarBits; bit += width { // one more for the last carry
		row := make([]edwards25519.Point, 1<<(width-1))
		row[0].Set(unit)
		for j := 1; j < len(row); j++ {
			row[j].Add(&row[j-1], unit)
		}
		m.rows = append(m.rows, row)
		last := &row[len(row)-1]
		unit.Add(last, last)
	}
	return m
}

// add adds the point times a scalar to a sum. A digit is more than -2^(w-1), and at
// most 2^(w-1), so that half of the multiples suffice.
func (m *multiples) add(sum *edwards25519.Point, scalar []byte) {
	carry := 0
	for i, row := range m.rows {
		at := i * m.width
		bits := int(scalar[at/8])
		if at/8+1 < len(scalar) {
			bits |= int(scalar[at/8+1]) << 8
		}
		digit := bits>>(at%8)&(2*len(row)-1) + carry
		carry = 0
		if digit > len(row) {
			digit -= 2 * len(row)
			carry = 1
		}
		switch {
		case digit > 0:
			sum.Add(sum, &row[digit-1])
		case digit < 0:
			sum.Subtract(sum, &row[-digit-1])
		}
	}
}
