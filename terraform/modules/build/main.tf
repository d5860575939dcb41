# For building the functions: the bucket of their archives, the account
# that Cloud Build builds them as, and the repository of the results.
resource "google_storage_bucket" "archives" {
  project                     = var.project_id
  name                        = "${var.project_id}-function-archives"
  location                    = var.region
  labels                      = var.labels
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = true # an archive is made again from the repository

  # An archive goes when the next one takes its place. Its version is the way back
  # to it without a build.
  versioning {
    enabled = true
  }

  lifecycle_rule {
    action {
      type = "Delete"
    }
    condition {
      days_since_noncurrent_time = 90
      with_state                 = "ARCHIVED"
    }
  }
}

module "images" {
  source = "../images"

  project_id  = var.project_id
  region      = var.region
  name        = "functions"
  description = "Images that the buildpack makes of the functions."
  labels      = var.labels
}

resource "google_service_account" "this" {
  project      = var.project_id
  account_id   = "coldaisle-build"
  display_name = "Build of the functions"
  description  = "Cloud Build turns the archives into images as this account."
}

resource "google_artifact_registry_repository_iam_member" "images" {
  project    = var.project_id
  location   = var.region
  repository = module.images.name
  role       = "roles/artifactregistry.writer"
  member     = google_service_account.this.member
}

resource "google_storage_bucket_iam_member" "archives" {
  bucket = google_storage_bucket.archives.name
  role   = "roles/storage.objectViewer"
  member = google_service_account.this.member
}

# Cloud Functions copies an archive into a bucket of its own before the build.
# The bucket is made by the first deployment, so that only a condition on its
# name can say which one is meant.
resource "google_project_iam_member" "copies" {
  project = var.project_id
  role    = "roles/storage.objectViewer"
  member  = google_service_account.this.member

  condition {
    title       = "Copies of archives only"
    description = "Buckets that Cloud Functions makes for its builds."
    expression  = "resource.name.startsWith(\"projects/_/buckets/gcf-v2-sources-\")"
  }
}

# Logs belong to the project: there is no smaller thing to give this role on.
resource "google_project_iam_member" "logs" {
  project = var.project_id
  role    = "roles/logging.logWriter"
  member  = google_service_account.this.member
}
