# What must exist before the system can be deployed: the bucket that keeps terraform's
# state, the account that deploys, and the one that builds and tests before. An owner of the
# project applies it by run/tools/release/bootstrap, as often as something of it changes.
resource "google_project_service" "this" {
  for_each = toset([
    "cloudbuild.googleapis.com",
    "cloudresourcemanager.googleapis.com",
    "iam.googleapis.com",
    "iamcredentials.googleapis.com", # operators act as the deployer before anything else is enabled
    "serviceusage.googleapis.com",
    "storage.googleapis.com",
  ])

  project            = var.project_id
  service            = each.key
  disable_on_destroy = false
}

# The state says what was made. Older versions of it are the way back from a
# damaged one. There is no secret in it.
resource "google_storage_bucket" "state" {
  project                     = var.project_id
  name                        = "${var.project_id}-terraform-state"
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = false # so that it cannot go while a state is in it

  versioning {
    enabled = true
  }

  lifecycle_rule {
    action {
      type = "Delete"
    }
    condition {
      num_newer_versions = 50
      with_state         = "ARCHIVED"
    }
  }

  depends_on = [google_project_service.this]
}

# Pages that passed the checks, by the fingerprint of their sources: what .ci/checks.yaml
# hands over to a release.
resource "google_storage_bucket" "checked" {
  project                     = var.project_id
  name                        = "${var.project_id}-checked"
  location                    = var.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = true # the checks make them again

  lifecycle_rule {
    action {
      type = "Delete"
    }
    condition {
      age = 90
    }
  }

  depends_on = [google_project_service.this]
}

# Runs what the repository and its dependencies bring along, and sees nothing of the system.
resource "google_service_account" "checks" {
  project      = var.project_id
  account_id   = "coldaisle-checks"
  display_name = "Checks"
  description  = "Builds the pages and runs tests, before each release and each night."

  depends_on = [google_project_service.this]
}

resource "google_storage_bucket_iam_member" "checked" {
  bucket = google_storage_bucket.checked.name
  role   = "roles/storage.objectUser"
  member = google_service_account.checks.member
}

resource "google_project_iam_member" "checks" {
  for_each = {
    "roles/logging.logWriter" = null
    # The sources of a build that somebody submits.
    "roles/storage.objectViewer" = "resource.name.startsWith(\"projects/_/buckets/${var.project_id}_cloudbuild\")"
  }

  project = var.project_id
  role    = each.key
  member  = google_service_account.checks.member

  dynamic "condition" {
    for_each = each.value[*]
    content {
      title      = "Sources of builds only"
      expression = condition.value
    }
  }
}

resource "google_service_account" "deployer" {
  project      = var.project_id
  account_id   = "coldaisle-deployer"
  display_name = "Deployer"
  description  = "Applies the terraform configuration, by hand or from Cloud Build."

  depends_on = [google_project_service.this]
}

locals {
  # Roles on the project with which everything in .. can be made, and why.
  roles = {
    "roles/artifactregistry.admin"          = "repositories, their rights, and pushing the API's image"
    "roles/bigquery.admin"                  = "dataset and table, and their rights"
    "roles/cloudbuild.builds.editor"        = "whether the release that holds the lock is over, and the trigger of the nightly checks"
    "roles/cloudfunctions.admin"            = "functions"
    "roles/cloudscheduler.admin"            = "the probe and the nightly checks"
    "roles/cloudsql.admin"                  = "the database and its users"
    "roles/compute.loadBalancerAdmin"       = "the load balancer of an own domain"
    "roles/compute.networkAdmin"            = "the private network"
    "roles/iam.serviceAccountAdmin"         = "the accounts of the components and who may use them"
    "roles/iam.serviceAccountUser"          = "running the components as their accounts"
    "roles/logging.configWriter"            = "metrics of logs, and which request logs are kept"
    "roles/logging.logWriter"               = "the log of a release"
    "roles/monitoring.editor"               = "alert policies, channels, uptime check, dashboard"
    "roles/pubsub.admin"                    = "topics, subscriptions and their rights"
    "roles/run.admin"                       = "the API, the migration, and who may call them"
    "roles/secretmanager.admin"             = "the place of the secret and who may read it"
    "roles/servicenetworking.networksAdmin" = "the database's private address"
    "roles/serviceusage.serviceUsageAdmin"  = "the APIs that are used"
    "roles/storage.admin"                   = "buckets of archives and models, and the state"
  }

  # Roles on the project that the configuration gives to components. The deployer may
  # give and take these and no others, so that it cannot make itself an owner.
  given = [
    "roles/bigquery.jobUser",
    "roles/cloudsql.client",
    "roles/cloudsql.instanceUser",
    "roles/logging.logWriter",
    "roles/storage.objectViewer",
  ]
}

resource "google_project_iam_member" "deployer" {
  for_each = local.roles

  project = var.project_id
  role    = each.key
  member  = google_service_account.deployer.member
}

resource "google_project_iam_member" "giver" {
  project = var.project_id
  role    = "roles/resourcemanager.projectIamAdmin"
  member  = google_service_account.deployer.member

  condition {
    title       = "Roles of the parts only"
    description = "May give and take the roles that parts have on the project."
    expression  = "api.getAttribute(\"iam.googleapis.com/modifiedGrantsByRole\", []).hasOnly([${join(", ", formatlist("\"%s\"", local.given))}])"
  }
}

resource "google_service_account_iam_member" "operator" {
  for_each = var.operators

  service_account_id = google_service_account.deployer.name
  role               = "roles/iam.serviceAccountTokenCreator"
  member             = each.key
}
