package records

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Keys sign records. Retired ones only verify.
type Keys struct {
	key   ed25519.PrivateKey
	known []key // the first one signs
}

type key struct {
	id     string
	public []byte // SubjectPublicKeyInfo, DER
	from   time.Time
	until  time.Time // zero: it signs
}

// ParseKeys reads RECORD_KEYS, whose entries are separated by commas: the key that signs as
// FROM=SEED, and retired ones as FROM/UNTIL=PUBLIC. Times are dates; a seed is 32 bytes in base64, a
// public key is in the form that the API shows.
func ParseKeys(text string) (*Keys, error) {
	k := &Keys{}
	for entry := range strings.SplitSeq(text, ",") {
		validity, encoded, _ := strings.Cut(strings.TrimSpace(entry), "=")
		from, until, retired := strings.Cut(validity, "/")
		content, err := base64.StdEncoding.DecodeString(encoded)
		known := key{public: content}
		var timeErr, untilErr error
		known.from, timeErr = time.Parse(time.DateOnly, from)
		switch {
		case retired:
			known.until, untilErr = time.Parse(time.DateOnly, until)
			if parsed, keyErr := x509.ParsePKIXPublicKey(content); keyErr != nil {
				err = errors.Join(err, errors.New("is no public key"))
			} else if _, ok := parsed.(ed25519.PublicKey); !ok {
				err = errors.Join(err, errors.New("is no Ed25519 key"))
			}
		case k.key != nil:
			err = errors.New("is a second key that signs")
		case len(content) != ed25519.SeedSize:
			err = errors.Join(err, fmt.Errorf("has %d bytes, want %d", len(content), ed25519.SeedSize))
		default:
			k.key = ed25519.NewKeyFromSeed(content)
			public, ok := k.key.Public().(ed25519.PublicKey)
			if !ok {
				panic("an Ed25519 key without its public one")
			}
			known.public, err = x509.MarshalPKIXPublicKey(public)
		}
		if err := errors.Join(timeErr, untilErr, err); err != nil {
			return nil, fmt.Errorf("RECORD_KEYS: the entry of %q %w", validity, err) // without the key
		}
		sum := sha256.Sum256(known.public)
		known.id = hex.EncodeToString(sum[:8])
		if retired {
			k.known = append(k.known, known)
		} else {
			k.known = append([]key{known}, k.known...)
		}
	}
	if k.key == nil {
		return nil, errors.New("RECORD_KEYS: has no key that signs")
	}
	return k, nil
}
