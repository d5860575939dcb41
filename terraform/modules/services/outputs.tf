output "names" {
  description = "APIs that are enabled."
  value       = keys(google_project_service.this)
}
