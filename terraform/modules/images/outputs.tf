output "id" {
  description = "Repository as projects/P/locations/L/repositories/R."
  value       = "projects/${var.project_id}/locations/${var.region}/repositories/${google_artifact_registry_repository.this.repository_id}"
}

output "name" {
  description = "Name of the repository."
  value       = google_artifact_registry_repository.this.repository_id
}

output "address" {
  description = "Prefix of the images' names in the repository."
  value       = "${var.region}-docker.pkg.dev/${var.project_id}/${google_artifact_registry_repository.this.repository_id}"
}
