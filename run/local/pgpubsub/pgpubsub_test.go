package pgpubsub_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"coldaisle.dev/run/local/pgpubsub"
	"coldaisle.dev/shared/logging"
	"coldaisle.dev/shared/pgtest"
)

const project = "test"

func topicName(name string) string        { return "projects/" + project + "/topics/" + name }
func subscriptionName(name string) string { return "projects/" + project + "/subscriptions/" + name }

func TestMain(m *testing.M) {
	if database, dir := os.Getenv(databaseOfChild), os.Getenv(folderOfChild); database != "" || dir != "" {
		fmt.Println(child(database, dir, os.Getenv(addressOfChild)))
		os.Exit(1)
	}
	os.Exit(pgtest.Main(m))
}

// open runs a server over a database until the test ends.
func open(tb testing.TB, database string, change ...func(*pgpubsub.Config)) *pgpubsub.Server {
	tb.Helper()
	config := pgpubsub.Config{DatabaseURL: database, Clock: time.Now, Log: logging.Discard()}
	for _, c := range change {
		c(&config)
	}
	server, err := pgpubsub.Open(tb.Context(), config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := server.Close(); err != nil {
			tb.Error(err)
		}
	})
	return server
}

// connect returns a client of the server at an address.
func connect(tb testing.TB, address string) *pubsub.Client {
	tb.Helper()
	const largest = 16 << 20 // as the library's own connections, which have no limit
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(largest)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 10 * time.Millisecond}}))
	if err != nil {
		tb.Fatal(err)
	}
	client, err := pubsub.NewClient(context.WithoutCancel(tb.Context()), project, option.WithGRPCConn(connection))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// resources makes a topic with subscriptions.
func resources(tb testing.TB, client *pubsub.Client, topic string, subscriptions ...string) {
	tb.Helper()
	if _, err := client.TopicAdminClient.CreateTopic(tb.Context(), &pubsubpb.Topic{Name: topicName(topic)}); err != nil {
		tb.Fatal(err)
	}
	for _, name := range subscriptions {
		if _, err := client.SubscriptionAdminClient.CreateSubscription(tb.Context(), &pubsubpb.Subscription{
			Name: subscriptionName(name), Topic: topicName(topic), AckDeadlineSeconds: 600,
		}); err != nil {
			tb.Fatal(err)
		}
	}
}
