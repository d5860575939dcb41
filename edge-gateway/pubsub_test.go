package main

import (
	"testing"

	"cloud.google.com/go/pubsub/v2/pstest"

	"coldaisle.dev/shared/pubsubtest"
)

const (
	testProject = "site"
	testTopic   = "data"
)

func startPubSub(tb testing.TB) *pstest.Server {
	tb.Helper()
	server := pubsubtest.Start(tb)
	pubsubtest.Topics(tb, server, testProject, testTopic)
	return server
}
