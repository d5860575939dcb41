package doctor

import (
	"context"
	"fmt"
	"slices"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/iam/apiv1/iampb"
	pubsub "cloud.google.com/go/pubsub/v2/apiv1"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// topic asks whether the account may publish to the topic, which itself needs no permission.
func (c Config) topic(ctx context.Context, r *Report, account *auth.Credentials) {
	const subject, publish = "topic", "pubsub.topics.publish"
	name := fmt.Sprintf("projects/%s/topics/%s", c.ProjectID, c.Topic)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client, err := pubsub.NewTopicAdminClient(ctx, append([]option.ClientOption{option.WithAuthCredentials(account)}, c.PubSub...)...)
	if err != nil {
		r.problem(subject, "", "no client of Pub/Sub: %v", err)
		return
	}
	defer func() { _ = client.Close() }()
	granted, err := client.TestIamPermissions(ctx, &iampb.TestIamPermissionsRequest{Resource: name, Permissions: []string{publish}})
	switch {
	case err != nil && status.Code(err) != codes.NotFound:
		r.problem(subject, "check the uplink; TCP port 443 to pubsub.googleapis.com must be open", "%s: Pub/Sub does not answer: %v", name, err)
	case slices.Contains(granted.GetPermissions(), publish):
		r.ok(subject, "%s may be published to", name)
	default: // Pub/Sub grants none on a topic that does not exist
		remedy := fmt.Sprintf("check PROJECT_ID and DATA_TOPIC; if they are right: gcloud pubsub topics add-iam-policy-binding %s --project=%s --role=roles/pubsub.publisher --member=serviceAccount:…", c.Topic, c.ProjectID)
		r.problem(subject, remedy, "%s does not exist, or the account may not publish to it", name)
	}
}
