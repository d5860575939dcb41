output "account" {
  description = "E-mail of the service account that the API runs as."
  value       = google_service_account.api.email
}

output "member" {
  description = "The same as an IAM member."
  value       = google_service_account.api.member
}

output "migration_account" {
  description = "E-mail of the service account that the migration runs as."
  value       = google_service_account.migrate.email
}

output "migration_member" {
  description = "The same as an IAM member."
  value       = google_service_account.migrate.member
}

output "name" {
  description = "Name of the service."
  value       = "api"
}

output "uri" {
  description = "Address of the service, or null before there is an image."
  value       = one(google_cloud_run_v2_service.this[*].uri)
}

output "migration_job" {
  description = "Name of the migration job, or null before there is an image."
  value       = one(google_cloud_run_v2_job.migrate[*].name)
}

output "environment" {
  description = "Names of the variables that the service runs with, secrets included."
  value       = flatten([for service in google_cloud_run_v2_service.this : [for variable in service.template[0].containers[0].env : variable.name]])
}

output "open" {
  description = "Whether everybody may call the service without a token of Google's, or null before there is an image."
  value       = one(google_cloud_run_v2_service.this[*].invoker_iam_disabled)
}

output "next_uri" {
  description = "Address of the newest revision, or null without an image."
  value       = try(one([for target in google_cloud_run_v2_service.this[0].traffic_statuses : target.uri if target.tag == "next"]), one(google_cloud_run_v2_service.this[*].uri))
}

output "traffic" {
  description = "Share of the requests, by revision or tag, or nothing before there is an image."
  value       = { for target in flatten(google_cloud_run_v2_service.this[*].traffic) : coalesce(target.revision, target.tag) => target.percent }
}

output "ingress" {
  description = "Where requests may come from, or null before there is an image."
  value       = one(google_cloud_run_v2_service.this[*].ingress)
}
