output "deployer" {
  description = "E-mail of the account that deploys."
  value       = google_service_account.deployer.email
}

output "state_bucket" {
  description = "Bucket that keeps terraform's state."
  value       = google_storage_bucket.state.name
}

output "backend" {
  description = "Content of the file backend.tf beside the configuration."
  value       = <<-EOT
    terraform {
      backend "gcs" {
        bucket = "${google_storage_bucket.state.name}"
        prefix = "coldaisle"
      }
    }
  EOT
}
