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
