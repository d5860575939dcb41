package pubsubtest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"coldaisle.dev/shared/must"
)

// ServeTLS serves gRPC services behind TLS, as Google does, until the test ends.
// register adds the services. The options make a client of Google's library connect there.
func ServeTLS(tb testing.TB, register func(*grpc.Server), options ...grpc.ServerOption) []option.ClientOption {
	tb.Helper()
	web := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate
	tb.Cleanup(web.Close)
	own := credentials.NewTLS(&tls.Config{Certificates: web.TLS.Certificates, MinVersion: tls.VersionTLS12})
	server := grpc.NewServer(append(options, grpc.Creds(own))...)
	register(server)
	listener := must.Get((&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0"))(tb)
	go func() { _ = server.Serve(listener) }()
	tb.Cleanup(server.Stop)
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	trust := credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS12})
	return []option.ClientOption{
		option.WithEndpoint(listener.Addr().String()), option.WithGRPCDialOption(grpc.WithTransportCredentials(trust)),
	}
}

// AccountKey returns a new key of a service account, in the form of the files that Google
// gives. tokenURI is where a client gets a token for it.
func AccountKey(tb testing.TB, project, account, tokenURI string) []byte {
	tb.Helper()
	private := must.Get(rsa.GenerateKey(rand.Reader, 2048))(tb)
	encoded := must.Get(x509.MarshalPKCS8PrivateKey(private))(tb)
	return must.Get(json.Marshal(map[string]string{
		"type": "service_account", "project_id": project, "private_key_id": "1", "token_uri": tokenURI, "client_email": account,
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})),
	}))(tb)
}
