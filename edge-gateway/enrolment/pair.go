package enrolment

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
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
	Key       []byte `json:"pair_key,omitempty"`
	Revoked   bool   `json:"revoked,omitzero"` // so that it has none
}

// loadPairKey returns the stored key of an identity, or a random one: a gateway without the
// customer's key must pair with no other. If the file cannot be read, the next reply has the
// key. A revoked gateway remains so while the API is unavailable.
func (id *Identity) loadPairKey() (key []byte, revoked bool) {
	var kept pairKey
	content, err := os.ReadFile(filepath.Join(id.folder, pairFile))
	if err != nil || json.Unmarshal(content, &kept) != nil || kept.GatewayID != id.GatewayID || len(kept.Key) < minPairKey {
		return []byte(rand.Text()), kept.Revoked && kept.GatewayID == id.GatewayID
	}
	return kept.Key, false
}

// Revoked reports whether the API has said that the enrolment is revoked.
func (id *Identity) Revoked() bool {
	_, revoked := id.loadPairKey()
	return revoked
}

// storePairKey stores the pair key of a reply, or instead of it that the gateway is revoked.
// A reply without one changes nothing.
func (s *Session) storePairKey(ctx context.Context, reply wire.StatusReply) {
	key, kept := reply.PairKey, pairKey{GatewayID: s.id.GatewayID, Key: reply.PairKey, Revoked: reply.Revoked}
	switch {
	case reply.Revoked && s.Revoked():
		return
	case reply.Revoked:
		key, kept.Key = []byte(rand.Text()), nil
	case len(key) < minPairKey || bytes.Equal(key, s.PairKey()):
		return
	}
	path := filepath.Join(s.id.folder, pairFile)
	content, _ := json.Marshal(kept) // of texts and bytes, which never fails
	if err := statefile.Write(path, append(content, '\n')); err != nil {
		if reply.Revoked { // it has none, at least
			_ = os.Remove(path)
		}
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
