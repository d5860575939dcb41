output "bucket" {
  description = "Bucket of the archives."
  value       = google_storage_bucket.archives.name
}

output "project_number" {
  description = "Number of the bucket's project, which is part of the names of Google's service agents."
  value       = google_storage_bucket.archives.project_number
}

output "repository" {
  description = "Repository of the functions' images, as projects/P/locations/L/repositories/R."
  value       = module.images.id
}

output "account" {
  description = "Account that builds, as projects/P/serviceAccounts/E, once it may."
  value       = "projects/${var.project_id}/serviceAccounts/${google_service_account.this.email}"

  depends_on = [
    google_artifact_registry_repository_iam_member.images,
    google_storage_bucket_iam_member.archives,
    google_project_iam_member.copies,
    google_project_iam_member.logs,
  ]
}

output "project_roles" {
  description = "Roles on the whole project, with the condition that narrows each, or an empty text."
  value = {
    for right in [google_project_iam_member.copies, google_project_iam_member.logs] :
    right.role => try(right.condition[0].expression, "")
  }
}
