# A topic with its dead letter: the topic to which a function publishes messages that
# it refuses, and Pub/Sub moves those that failed too often, and the subscription that
# keeps them.
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

# Pub/Sub itself moves messages to the dead letter after the last attempt. The rights
# of the functions are in modules/function.
resource "google_pubsub_topic_iam_member" "forward" {
  project = var.project_id
  topic   = google_pubsub_topic.dead_letter.name
  role    = "roles/pubsub.publisher"
  member  = var.pubsub_agent
}
