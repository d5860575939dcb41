output "id" {
  description = "Full name of the topic."
  value       = "projects/${var.project_id}/topics/${google_pubsub_topic.this.name}"
}

output "name" {
  description = "Name of the topic within its project."
  value       = google_pubsub_topic.this.name
}

output "dead_letter" {
  description = "The dead letter: topic and subscription."
  value = {
    topic        = "projects/${var.project_id}/topics/${google_pubsub_topic.dead_letter.name}"
    subscription = google_pubsub_subscription.dead_letter.name
  }

  # Without the right to forward, Pub/Sub would keep on trying for ever.
  depends_on = [google_pubsub_topic_iam_member.forward]
}
