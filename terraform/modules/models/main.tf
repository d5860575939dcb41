# The trained models, or the records of rooms. Artifacts have names of their own and are never written
# twice; the manifest that names the live pair is, and its versions are the way
# back.
resource "google_storage_bucket" "this" {
  project                     = var.project_id
  name                        = "${var.project_id}-${var.name}"
  location                    = var.region
  labels                      = var.labels
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = false

  versioning {
    enabled = true
  }

  # Live objects stay, however old: a pair may serve for years.
  lifecycle_rule {
    action {
      type = "Delete"
    }
    condition {
      days_since_noncurrent_time = 90
      with_state                 = "ARCHIVED"
    }
  }

  lifecycle_rule {
    action {
      type = "AbortIncompleteMultipartUpload"
    }
    condition {
      age = 1
    }
  }
}
