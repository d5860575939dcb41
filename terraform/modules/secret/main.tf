# The place of a secret. Its value is added by a person, with gcloud, and never
# passes through terraform: neither the configuration nor the state knows it.
resource "google_secret_manager_secret" "this" {
  project   = var.project_id
  secret_id = var.name
  labels    = var.labels

  # A version that was destroyed by mistake can be had back for a week.
  version_destroy_ttl = "604800s"

  replication {
    auto {}
  }
}
