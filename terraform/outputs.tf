output "api_uri" {
  description = "Address of the API and the dashboard; null before there is an image."
  value       = local.closed ? "https://${var.domain}" : module.api.uri
}

output "api_next_uri" {
  description = "Address at which the header X-Coldaisle-Release: next leads to the API's newest revision, whether or not it gets other requests."
  value       = local.closed ? "https://${var.domain}" : module.api.next_uri
}

output "takes_open_readings" {
  description = "Whether readings of gateways that are not enrolled are taken."
  value       = !var.require_enrolled_gateways
}

output "domain_address" {
  description = "IPv4 address that the domain's A record must name; null without a domain."
  value       = one(module.domain[*].address)
}

output "image_repository" {
  description = "Prefix of the names of the API's images."
  value       = module.images.address
}

output "secret_key" {
  description = "Secret that takes the API's signing keys: gcloud secrets versions add."
  value       = module.secret_key.name
}

output "migration_job" {
  description = "Cloud Run job that migrates the database; null before there is an image."
  value       = module.api.migration_job
}

output "database_instance" {
  description = "Cloud SQL instance as connectors want it: project:region:name."
  value       = module.database.connection_name
}

output "functions" {
  description = "Functions of the pipeline, by name: account, subscription, and archive that is deployed."
  value = {
    for name, function in module.function : name => {
      account      = function.account
      subscription = function.subscription
      archive      = function.archive
    }
  }
}

output "dead_letters" {
  description = "Subscriptions of the dead letters, by topic."
  value       = { for name, topic in module.topic : name => topic.dead_letter.subscription }
}

output "model_bucket" {
  description = "Bucket of the trained models."
  value       = module.models.bucket
}

output "readings_table" {
  description = "BigQuery table of the readings."
  value       = "${var.project_id}.${module.readings.dataset}.${module.readings.table}"
}

output "gateway_accounts" {
  description = "Service account of each site's gateway."
  value       = module.gateways.accounts
}

output "alert_policies" {
  description = "Titles of the alert policies, by key."
  value       = module.monitoring.policies
}

output "dashboard" {
  description = "Dashboard in Cloud Monitoring."
  value       = module.monitoring.dashboard
}
