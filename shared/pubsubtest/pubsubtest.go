// Package pubsubtest gives tests a Pub/Sub: the fake of the official client
// library, in the test's own process.
package pubsubtest

import (
	"context"
	"testing"

	pubsub "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// Start runs a Pub/Sub until the test ends.
func Start(tb testing.TB, options ...pstest.ServerReactorOption) *pstest.Server {
	tb.Helper()
	server := pstest.NewServer(options...)
	tb.Cleanup(func() { _ = server.Close() })
	return server
}

// Client returns a client of a project at a server, which closes when the test
// ends.
func Client(tb testing.TB, server *pstest.Server, project string, dial ...grpc.DialOption) *pubsub.Client {
	tb.Helper()
	connection, err := grpc.NewClient(server.Addr, append(dial, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		tb.Fatal(err)
	}
	// The client outlives the test's context: cleanups may still use it.
	client, err := pubsub.NewClient(context.WithoutCancel(tb.Context()), project, option.WithGRPCConn(connection))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// Topics makes topics of a project, by their short names.
func Topics(tb testing.TB, server *pstest.Server, project string, names ...string) {
	tb.Helper()
	for _, name := range names {
		topic := &pubsubpb.Topic{Name: "projects/" + project + "/topics/" + name}
		if _, err := server.GServer.CreateTopic(tb.Context(), topic); err != nil {
			tb.Fatal(err)
		}
	}
}
