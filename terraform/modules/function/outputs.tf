output "name" {
  description = "Name of the function and of the Cloud Run service that it is."
  value       = google_cloudfunctions2_function.this.name
}

output "subscription" {
  description = "Name of the push subscription."
  value       = google_pubsub_subscription.push.name
}

output "topic" {
  description = "Topic that the push subscription reads, by its full name."
  value       = google_pubsub_subscription.push.topic
}

output "dead_letter_topic" {
  description = "Dead-letter topic of the push subscription, by its full name."
  value       = google_pubsub_subscription.push.dead_letter_policy[0].dead_letter_topic
}

output "environment" {
  description = "Environment that the function runs with."
  value       = google_cloudfunctions2_function.this.service_config[0].environment_variables
}

output "ingress" {
  description = "From where the function can be reached."
  value       = google_cloudfunctions2_function.this.service_config[0].ingress_settings
}

output "archive" {
  description = "Object that holds the function's source, named by its content."
  value       = google_storage_bucket_object.archive.name
}

output "account" {
  description = "E-mail of the service account that the function runs as."
  value       = google_service_account.this.email
}

output "member" {
  description = "The same as an IAM member."
  value       = google_service_account.this.member
}
