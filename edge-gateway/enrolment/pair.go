package enrolment

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"coldaisle.dev/edge-gateway/statefile"
	"coldaisle.dev/shared/wire"
)

// minPairKey is the shortest pair key, in bytes, so that it cannot be guessed.
const minPairKey = 16

// pairKey is the content of the pair file.
type pairKey struct {
	GatewayID string `json:"gateway_id"` // the gateway that received the key
	Key       []byte `json:"pair_key"`
}

// loadPairKey returns the stored key of an identity, or a random one: a gateway without the
// customer's key must pair with no other. If the file cannot be read, the next reply has the
// key.
func (id *Identity) loadPairKey() []byte {
	var kept pairKey
	content, err := os.ReadFile(filepath.Join(id.folder, pairFile))
	if err != nil || json.Unmarshal(content, &kept) != nil || kept.GatewayID != id.GatewayID || len(kept.Key) < minPairKey {
		return []byte(rand.Text())
	}
	return kept.Key
}

// storePairKey stores the pair key of a reply, or removes it when the gateway is revoked.
// A reply without one changes nothing.
func (s *Session) storePairKey(ctx context.Context, reply wire.StatusReply) {
	key, path := reply.PairKey, filepath.Join(s.id.folder, pairFile)
	err := error(nil)
	switch {
	case reply.Revoked:
		key = []byte(rand.Text())
		if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	case len(key) < minPairKey || bytes.Equal(key, s.PairKey()):
		return
	default:
		var content []byte
		if content, err = json.Marshal(pairKey{s.id.GatewayID, key}); err == nil {
			err = statefile.Write(path, append(content, '\n'))
		}
	}
	if err != nil {
		s.log.WarnContext(ctx, "the pair key cannot be stored for a restart", "error", err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pairKey = key
}

// PairKey is the secret by which the customer's gateways identify each other on a link.
func (s *Session) PairKey() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pairKey
}
