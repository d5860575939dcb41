// Package enrolment gives a gateway to a customer: Enrol exchanges a one-time code for an
// identity, and a Session reports to the API each minute, which replies with the time and
// an access token for publishing.
//
// The key is made on site and never leaves it. No credential of Google's is stored on
// site: the access token is in memory only.
package enrolment

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"coldaisle.dev/edge-gateway/statefile"
	"coldaisle.dev/shared/wire"
)

// Identity is the stored enrolment of a gateway.
type Identity struct {
	GatewayID string `json:"gateway_id"`
	Name      string `json:"name"`
	Account   string `json:"account"`
	ProjectID string `json:"project_id"`
	Topic     string `json:"topic"`
	API       string `json:"api"` // base address
	// Seed is the seed of the Ed25519 key.
	Seed []byte `json:"seed"`
	// CodeHash is the SHA-256 of the code, to recognise it.
	CodeHash []byte `json:"code_hash"`

	folder string // where it is stored
}

// Names of files in the state folder.
const (
	identityFile = "enrolment.json"
	// pendingFile has the key of an enrolment that the API has not confirmed yet.
	pendingFile = "enrolment.pending.json"
	// pairFile has the last pair key, or that the gateway is revoked, for a start while the API is unavailable.
	pairFile = "pair.json"
)

// Load reads the identity in a folder; nil for a gateway that is not enrolled.
func Load(folder string) (*Identity, error) {
	id, err := read(filepath.Join(folder, identityFile))
	if err != nil || id == nil {
		return nil, err
	}
	if err := wire.ValidateGatewayID(id.GatewayID); err != nil {
		return nil, damaged(filepath.Join(folder, identityFile), err)
	}
	id.folder = folder
	return id, nil
}

func read(path string) (*Identity, error) {
	content, err := os.ReadFile(path) //nolint:gosec // in the folder that the settings name
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there is none, which is no error
	}
	if err != nil {
		return nil, fmt.Errorf("read enrolment: %w", err)
	}
	var id Identity
	err = json.Unmarshal(content, &id)
	if err == nil && len(id.Seed) != ed25519.SeedSize {
		err = errors.New("there is no key in it")
	}
	if err != nil {
		return nil, damaged(path, err)
	}
	return &id, nil
}

func damaged(path string, err error) error {
	return fmt.Errorf("read enrolment %s: %w: remove the file, and enrol this gateway with a new code", path, err)
}

func (id *Identity) write(path string) error {
	content, _ := json.MarshalIndent(id, "", "  ") // of texts and bytes, which never fails
	return statefile.Write(path, append(content, '\n'))
}

func (id *Identity) key() ed25519.PrivateKey { return ed25519.NewKeyFromSeed(id.Seed) }
