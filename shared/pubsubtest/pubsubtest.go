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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"coldaisle.dev/shared/must"
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
	return Dial(tb, server.Addr, project, dial...)
}

// Dial is [Client] of a Pub/Sub at an address.
func Dial(tb testing.TB, address, project string, dial ...grpc.DialOption) *pubsub.Client {
	tb.Helper()
	connection := must.Get(grpc.NewClient(address, append(dial, grpc.WithTransportCredentials(insecure.NewCredentials()))...))(tb)
	// The client outlives the test's context: cleanups may still use it.
	client := must.Get(pubsub.NewClient(context.WithoutCancel(tb.Context()), project, option.WithGRPCConn(connection)))(tb)
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// Topics makes topics of a project, by their short names.
func Topics(tb testing.TB, server *pstest.Server, project string, names ...string) {
	tb.Helper()
	for _, name := range names {
		topic := &pubsubpb.Topic{Name: "projects/" + project + "/topics/" + name}
		must.Get(server.GServer.CreateTopic(tb.Context(), topic))(tb)
	}
}

// The limits of a message that Google documents, in bytes except for the first:
// "Attributes per message: 100. Attribute key size: 256 bytes. Attribute value
// size: 1024 bytes", https://cloud.google.com/pubsub/quotas#resource_limits.
const (
	maxAttributes     = 100
	maxAttributeKey   = 256
	maxAttributeValue = 1024
)

// Limits makes the fake refuse a request with a message beyond the documented limits,
// which neither it nor gcloud's emulator does by itself. The texts are the service's, for
// example in
// https://github.com/snowplow/enrich/issues/485: "INVALID_ARGUMENT: The attribute
// "app_id" in the request has a value that is too long. The length is 1043
// characters, but the maximum allowed is 1024." and so on.
func Limits() pstest.ServerReactorOption {
	return pstest.ServerReactorOption{FuncName: "Publish", Reactor: limits{}}
}

type limits struct{}

// React implements [pstest.Reactor].
func (limits) React(request any) (handled bool, answer any, err error) {
	publish, ok := request.(*pubsubpb.PublishRequest)
	if !ok {
		return false, nil, nil
	}
	for _, m := range publish.GetMessages() {
		if err := within(m); err != nil {
			return true, &pubsubpb.PublishResponse{}, err
		}
	}
	return false, nil, nil
}

func within(m *pubsubpb.PubsubMessage) error {
	const tooLong = "The attribute %q in the request has a %s that is too long. " +
		"The length is %d characters, but the maximum allowed is %d. Refer to https://cloud.google.com/pubsub/quotas for more information."
	if n := len(m.GetAttributes()); n > maxAttributes {
		return status.Errorf(codes.InvalidArgument, "%d attributes", n)
	}
	for key, value := range m.GetAttributes() {
		if len(key) > maxAttributeKey {
			return status.Errorf(codes.InvalidArgument, tooLong, "", "key", len(key), maxAttributeKey)
		}
		if len(value) > maxAttributeValue {
			return status.Errorf(codes.InvalidArgument, tooLong, key, "value", len(value), maxAttributeValue)
		}
	}
	return nil
}
