output "id" {
  description = "Full name of the topic."
  value       = google_pubsub_topic.this.id
}

output "name" {
  description = "Name of the topic within its project."
  value       = google_pubsub_topic.this.name
}

output "dead_letter" {
  description = "Topic that takes what could not be processed, and the subscription that keeps it."
  value = {
    topic        = google_pubsub_topic.dead_letter.id
    subscription = google_pubsub_subscription.dead_letter.name
  }

  # Without the right to forward, Pub/Sub would keep on trying for ever.
  depends_on = [google_pubsub_topic_iam_member.forward]
}
