output "accounts" {
  description = "E-mail of the service account of each site."
  value       = { for site, account in google_service_account.site : site => account.email }
}

output "roles" {
  description = "What gateways may do, by resource."
  value = {
    for site, right in google_pubsub_topic_iam_member.publish : site => { topic = right.topic, role = right.role }
  }
}

output "publishing_account" {
  description = "E-mail of the service account as which enrolled gateways publish."
  value       = google_service_account.enrolled.email
}

output "enrolled" {
  description = "What enrolled gateways may do, and who makes their tokens."
  value = {
    member = google_pubsub_topic_iam_member.enrolled.member
    topic  = google_pubsub_topic_iam_member.enrolled.topic
    role   = google_pubsub_topic_iam_member.enrolled.role
    tokens = {
      account = google_service_account_iam_member.enrolled.service_account_id
      role    = google_service_account_iam_member.enrolled.role
      member  = google_service_account_iam_member.enrolled.member
    }
  }
}
