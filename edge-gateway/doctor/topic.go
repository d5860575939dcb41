package doctor

import (
	"context"
	"fmt"
	"slices"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/iam/apiv1/iampb"
	pubsub "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// The permission that the gateway needs, and one that shows that its account has too many.
const (
	publish = "pubsub.topics.publish"
	remove  = "pubsub.topics.delete"
)

// topic queries the account's permissions on the topic, which itself needs no permission.
// account is nil with an emulator, or if there is none.
func (c Config) topic(ctx context.Context, r *Report, account *auth.Credentials) {
	const subject = "topic"
	name := fmt.Sprintf("projects/%s/topics/%s", c.ProjectID, c.Topic)
	if c.Emulator == "" && account == nil {
		r.warn(subject, "", "%s: not asked about, without credentials", name)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client, err := pubsub.NewTopicAdminClient(ctx, c.pubsubOptions(account)...)
	if err != nil {
		r.problem(subject, "", "no client of Pub/Sub: %v", err)
		return
	}
	defer func() { _ = client.Close() }()
	granted, err := client.TestIamPermissions(ctx, &iampb.TestIamPermissionsRequest{
		Resource: name, Permissions: []string{publish, remove},
	})
	reach := "check the uplink; TCP port 443 to pubsub.googleapis.com must be open"
	if c.Emulator != "" {
		reach = "start the emulator at " + c.Emulator
	}
	grant := fmt.Sprintf("gcloud pubsub topics add-iam-policy-binding %s --project=%s --role=roles/pubsub.publisher --member=serviceAccount:…", c.Topic, c.ProjectID)
	switch {
	case err == nil && slices.Contains(granted.GetPermissions(), remove):
		r.warn(subject, "give it nothing but roles/pubsub.publisher on this topic", "%s may be published to, and even deleted: the account has more rights than it needs", name)
		return
	case err == nil && slices.Contains(granted.GetPermissions(), publish):
		r.ok(subject, "%s may be published to", name)
		return
	case err != nil && status.Code(err) != codes.Unimplemented && status.Code(err) != codes.NotFound:
		r.problem(subject, reach, "%s: Pub/Sub does not answer: %v", name, err)
		return
	}
	// An emulator has no permissions, and Pub/Sub grants none on a topic that does not
	// exist.
	_, err = client.GetTopic(ctx, &pubsubpb.GetTopicRequest{Topic: name})
	switch status.Code(err) {
	case codes.OK:
		if c.Emulator != "" {
			r.ok(subject, "%s is there, in the emulator at %s", name, c.Emulator)
			return
		}
		r.problem(subject, grant, "%s is there, but the account may not publish to it", name)
	case codes.NotFound:
		r.problem(subject, fmt.Sprintf("check PROJECT_ID and DATA_TOPIC, or make it: gcloud pubsub topics create %s --project=%s", c.Topic, c.ProjectID), "%s does not exist", name)
	case codes.PermissionDenied:
		r.problem(subject, grant, "%s does not exist, or the account may not publish to it", name)
	default:
		r.problem(subject, reach, "%s: Pub/Sub does not answer: %v", name, err)
	}
}

func (c Config) pubsubOptions(account *auth.Credentials) []option.ClientOption {
	if c.Emulator != "" {
		return []option.ClientOption{
			option.WithEndpoint(c.Emulator), option.WithoutAuthentication(),
			option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())),
		}
	}
	return append([]option.ClientOption{option.WithAuthCredentials(account)}, c.PubSub...)
}
