package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"
)

const (
	pubsubScope = "https://www.googleapis.com/auth/pubsub"
	getKey      = "enrol the gateway, or put a credential of its service account where GOOGLE_APPLICATION_CREDENTIALS says (docs/gateway.md); the gateway keeps readings meanwhile, and takes it up when it is there"
)

// credentials reports the gateway's account and whether Google gives it a token. It returns nil
// if not.
func (c Config) credentials(ctx context.Context, r *Report) *auth.Credentials {
	const subject = "credentials"
	who := "those that Google's libraries find on this machine"
	options := &credentials.DetectOptions{Scopes: []string{pubsubScope}}
	detect := func() (*auth.Credentials, error) { return credentials.DetectDefault(options) }
	if c.CredentialsFile != "" {
		key, ok := readKey(r, subject, c.CredentialsFile)
		if !ok {
			return nil
		}
		who = key.Type + " " + cmp.Or(key.Email, key.Audience)
		detect = func() (*auth.Credentials, error) {
			return credentials.NewCredentialsFromFile(credentials.CredType(key.Type), c.CredentialsFile, options)
		}
	}
	found, err := detect()
	if err != nil {
		r.problem(subject, getKey, "%s: %v", who, err)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := found.Token(ctx); err != nil {
		r.problem(subject, "when the clock and the uplink are right, the credential may have expired, the key been deleted, or the account disabled: make a new one", "%s; no token for it: %v", who, err)
		return nil
	}
	r.ok(subject, "%s; Google gives a token for it", who)
	return found
}

// keyFile is the part of a credentials file that is reported.
type keyFile struct {
	Type     string `json:"type"`
	Email    string `json:"client_email"`
	Audience string `json:"audience"`
}

func readKey(r *Report, subject, path string) (keyFile, bool) {
	content, err := os.ReadFile(path) //nolint:gosec // the person at the terminal named it
	if errors.Is(err, fs.ErrPermission) {
		r.problem(subject, "run the doctor with sudo", "cannot be read: %v", err)
		return keyFile{}, false
	}
	var key keyFile
	if err == nil {
		err = json.Unmarshal(content, &key)
	}
	if err == nil && key.Type == "" {
		err = errors.New("no type")
	}
	if err != nil {
		r.problem(subject, getKey, "%s holds no credentials of Google's: %v", path, err)
		return keyFile{}, false
	}
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o007 != 0 {
		r.problem(subject, "sudo chmod 600 "+path, "%s is open to every user of this machine (%s)", path, info.Mode().Perm())
	}
	return key, true
}
