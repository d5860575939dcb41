output "name" {
  description = "Name of the secret."
  value       = google_secret_manager_secret.this.secret_id
}
