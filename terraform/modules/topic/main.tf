# A topic with its dead letter: the topic to which Pub/Sub moves messages that a
# subscriber refused five times, and the subscription that keeps them.
locals {
  dead_letter = "${var.name}-dead-letter"
}

resource "google_pubsub_topic" "this" {
  project = var.project_id
  name    = var.name
  labels  = var.labels
}

resource "google_pubsub_topic" "dead_letter" {
  project = var.project_id
  name    = local.dead_letter
  labels  = var.labels
}

resource "google_pubsub_subscription" "dead_letter" {
  project = var.project_id
  name    = local.dead_letter
  topic   = "projects/${var.project_id}/topics/${google_pubsub_topic.dead_letter.name}"
  labels  = var.labels

  # 31 days, the longest that there is, also for what was acknowledged: a seek
  # brings back what somebody dropped too early.
  message_retention_duration = "2678400s"
  retain_acked_messages      = true
  ack_deadline_seconds       = 60

  expiration_policy {
    ttl = "" # never
  }
}

# It is Pub/Sub itself that moves messages to the dead letter.
resource "google_pubsub_topic_iam_member" "forward" {
  project = var.project_id
  topic   = google_pubsub_topic.dead_letter.name
  role    = "roles/pubsub.publisher"
  member  = var.pubsub_agent
}
