package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"runtime"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"
)

const (
	pubsubScope = "https://www.googleapis.com/auth/pubsub"
	getKey      = "make a configuration of workload identity federation with a certificate, or a key of the service account, and put it where GOOGLE_APPLICATION_CREDENTIALS says (docs/gateway.md); the gateway keeps readings meanwhile, and takes it up when it is there"
)

// keyFile is what concerns us of a file of credentials.
type keyFile struct {
	Type     string `json:"type"`
	Email    string `json:"client_email"`
	Audience string `json:"audience"`
}

func (k keyFile) String() string {
	switch k.Type {
	case "service_account":
		return "key of the service account " + k.Email
	case "external_account":
		return "workload identity federation, " + k.Audience
	default:
		return "credentials of the kind " + k.Type
	}
}

// credentials says who the gateway is to Google, and whether Google agrees. It
// returns nil where that has no sense.
func (c Config) credentials(ctx context.Context, r *Report) *auth.Credentials {
	const subject = "credentials"
	if c.Emulator != "" {
		r.ok(subject, "not needed: PUBSUB_EMULATOR_HOST is %s", c.Emulator)
		return nil
	}
	who := "those that Google's libraries find on this machine"
	options := &credentials.DetectOptions{Scopes: []string{pubsubScope}}
	detect := func() (*auth.Credentials, error) { return credentials.DetectDefault(options) }
	if c.CredentialsFile != "" {
		key, ok := readKey(r, subject, c.CredentialsFile)
		if !ok {
			return nil
		}
		who = key.String()
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
		r.problem(subject, "when the clock and the uplink are right, the certificate may have expired, the key been deleted, or the account disabled: make a new one", "%s; no token for it: %v", who, err)
		return nil
	}
	r.ok(subject, "%s; Google gives a token for it", who)
	return found
}

// readKey judges the file itself.
func readKey(r *Report, subject, path string) (keyFile, bool) {
	content, err := os.ReadFile(path) //nolint:gosec // the person at the terminal named it
	if errors.Is(err, fs.ErrPermission) {
		r.problem(subject, "run the doctor with sudo", "cannot be read: %v", err)
		return keyFile{}, false
	}
	if err != nil {
		r.problem(subject, getKey, "cannot be read: %v", err)
		return keyFile{}, false
	}
	var key keyFile
	if err := json.Unmarshal(content, &key); err != nil || key.Type == "" {
		r.problem(subject, getKey, "%s holds no credentials of Google's", path)
		return keyFile{}, false
	}
	if info, err := os.Stat(path); err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o007 != 0 {
		r.problem(subject, "sudo chmod 600 "+path, "%s is open to every user of this machine (%s)", path, info.Mode().Perm())
	}
	return key, true
}
