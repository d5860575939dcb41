package enrolment

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"coldaisle.dev/edge-gateway/statefile"
	"coldaisle.dev/shared/wire"
)

// ErrDeclined is returned when the person who was asked declined. Nothing has changed.
var ErrDeclined = errors.New("not enrolled")

// Offer describes the enrolment that a code stands for.
type Offer struct {
	Name, Account string
	// Former is the enrolment that would end; nil if there is none or it is the same.
	Former *Identity
}

// Enrol exchanges a code for an identity, which it stores in a folder, after confirm has
// accepted the offer. The key is on disk before the code is used: if the reply is lost,
// the same code gives the same identity again.
func Enrol(ctx context.Context, folder, code, api string, confirm func(Offer) bool) (*Identity, error) {
	if err := CheckAPI(api); err != nil {
		return nil, err
	}
	current, err := Load(folder)
	if err != nil {
		return nil, err
	}
	if err := statefile.Mkdir(folder); err != nil {
		return nil, err
	}
	id, err := identityFor(folder, code, current)
	if err != nil {
		return nil, err
	}
	id.folder = folder
	id.API = strings.TrimRight(api, "/")
	client := newClient()
	public, _ := id.key().Public().(ed25519.PublicKey) // it is nothing else
	request := wire.EnrolRequest{Code: code, PublicKey: public}
	var reply wire.EnrolReply
	if err := post(ctx, client, api, enrolPath, request, &reply); err != nil {
		return nil, err
	}
	offer := Offer{Name: reply.Name, Account: reply.Account}
	if current != nil && current.GatewayID != reply.GatewayID {
		offer.Former = current
	}
	if !confirm(offer) {
		return nil, ErrDeclined
	}
	if err := id.write(filepath.Join(folder, pendingFile)); err != nil {
		return nil, err
	}
	request.Confirm = true
	if err := post(ctx, client, api, enrolPath, request, &reply); err != nil {
		return nil, err
	}
	if err := wire.ValidateGatewayID(reply.GatewayID); err != nil || !reply.Confirmed {
		return nil, fmt.Errorf("the API did not confirm the enrolment of %q", reply.GatewayID)
	}
	id.GatewayID, id.Name, id.Account = reply.GatewayID, reply.Name, reply.Account
	id.ProjectID, id.Topic = reply.ProjectID, reply.Topic
	if err := id.write(filepath.Join(folder, identityFile)); err != nil {
		return nil, err
	}
	_ = os.Remove(filepath.Join(folder, pendingFile)) // if it stays, it is used only with its own code
	return id, nil
}

// identityFor returns the identity of an earlier attempt with the code, or one with a new key.
func identityFor(folder, code string, current *Identity) (*Identity, error) {
	hash := hashOf(code)
	pending, err := read(filepath.Join(folder, pendingFile))
	if err != nil {
		return nil, err
	}
	for _, known := range []*Identity{current, pending} {
		if known != nil && bytes.Equal(known.CodeHash, hash) {
			again := *known
			return &again, nil
		}
	}
	seed := make([]byte, ed25519.SeedSize)
	_, _ = rand.Read(seed) // never fails
	return &Identity{Seed: seed, CodeHash: hash}, nil
}

// hashOf returns the hash of a code without regard to case, spaces and dashes.
func hashOf(code string) []byte {
	plain := strings.NewReplacer(" ", "", "-", "").Replace(strings.ToUpper(code))
	hash := sha256.Sum256([]byte(plain))
	return hash[:]
}
