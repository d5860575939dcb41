output "accounts" {
  description = "E-mail of the service account of each site."
  value       = { for site, account in google_service_account.site : site => account.email }
}

output "provider" {
  description = "Full name of the workload identity provider, or null without a trust anchor."
  value       = one(google_iam_workload_identity_pool_provider.certificates[*].name)
}

output "roles" {
  description = "What gateways may do, by resource."
  value = {
    for site, right in google_pubsub_topic_iam_member.publish : site => { topic = right.topic, role = right.role }
  }
}
