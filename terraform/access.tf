# The rights of each component, but for those of a single module: the functions'
# callers (modules/function), the API's callers and its secret (modules/api), the
# build (modules/build) and the gateways (modules/gateways).
#
# Every right is on the one thing that it is needed for. The roles on the whole
# project are those that exist on nothing smaller: running BigQuery queries is
# billed to a project, and Cloud SQL's are narrowed to the instance by a condition.

# Pub/Sub calls the functions in this account's name, and nobody else can.
resource "google_service_account" "push" {
  project      = var.project_id
  account_id   = "coldaisle-push"
  display_name = "Push subscriptions"
  description  = "Pub/Sub calls the functions as this account."

  depends_on = [google_project_service.this]
}

resource "google_service_account_iam_member" "push" {
  service_account_id = google_service_account.push.name
  role               = "roles/iam.serviceAccountOpenIdTokenCreator"
  member             = local.pubsub_agent
}

# Whoever redelivers dead letters (run/tools/redeliver) does so as this account: a
# function takes identity tokens of service accounts alone.
resource "google_service_account" "redeliver" {
  project      = var.project_id
  account_id   = "coldaisle-redeliver"
  display_name = "Redelivery"
  description  = "Takes dead letters and posts them to the functions that refused them."

  depends_on = [google_project_service.this]
}

resource "google_service_account_iam_member" "redeliver" {
  for_each = var.redeliverers

  service_account_id = google_service_account.redeliver.name
  role               = "roles/iam.serviceAccountTokenCreator"
  member             = each.key
}

resource "google_cloud_run_v2_service_iam_member" "redeliver" {
  for_each = module.function

  project  = var.project_id
  location = var.region
  name     = each.value.name
  role     = "roles/run.invoker"
  member   = google_service_account.redeliver.member
}

resource "google_pubsub_subscription_iam_member" "redeliver" {
  for_each = merge(
    { for name, topic in module.topic : "${name}-dead-letter" => { name = topic.dead_letter.subscription, role = "roles/pubsub.subscriber" } },
    # These say where the function is.
    { for name, function in module.function : name => { name = function.subscription, role = "roles/pubsub.viewer" } },
  )

  project      = var.project_id
  subscription = each.value.name
  role         = each.value.role
  member       = google_service_account.redeliver.member
}

resource "google_pubsub_topic_iam_member" "publisher" {
  for_each = {
    detect = { topic = module.topic["alerts"].name, member = module.function["detect"].member }
    api    = { topic = module.topic["model-retraining"].name, member = module.api.member }
    drill  = { topic = module.topic["data"].name, member = module.api.member }
  }

  project = var.project_id
  topic   = each.value.topic
  role    = "roles/pubsub.publisher"
  member  = each.value.member
}

resource "google_bigquery_table_iam_member" "readings" {
  for_each = {
    ingest = { role = "roles/bigquery.dataEditor", member = module.function["ingest"].member }
    train  = { role = "roles/bigquery.dataViewer", member = module.function["train"].member }
    api    = { role = "roles/bigquery.dataViewer", member = module.api.member }
  }

  project    = var.project_id
  dataset_id = module.readings.dataset
  table_id   = module.readings.table
  role       = each.value.role
  member     = each.value.member
}

resource "google_project_iam_member" "queries" {
  for_each = {
    ingest = module.function["ingest"].member # hours with readings that came late
    train  = module.function["train"].member
    api    = module.api.member
  }

  project = var.project_id
  role    = "roles/bigquery.jobUser"
  member  = each.value
}

resource "google_storage_bucket_iam_member" "models" {
  for_each = {
    train  = { role = "roles/storage.objectUser", member = module.function["train"].member }
    detect = { role = "roles/storage.objectViewer", member = module.function["detect"].member }
    api    = { role = "roles/storage.objectViewer", member = module.api.member }
  }

  bucket = module.models.bucket
  role   = each.value.role
  member = each.value.member
}

# An archive is never written again, but the entry of its revision is once copies of readings
# came late: to replace an object needs the right to delete it.
resource "google_storage_bucket_iam_member" "records" {
  bucket = module.records.bucket
  role   = "roles/storage.objectUser"
  member = module.api.member
}

locals {
  # Components that use the database. The migration grants their rights in it.
  database_members = {
    ingest     = module.function["ingest"].member
    detect     = module.function["detect"].member
    storealert = module.function["storealert"].member
    train      = module.function["train"].member
    api        = module.api.member
    migrate    = module.api.migration_member
  }
}

# To find the instance and open an encrypted connection to it.
resource "google_project_iam_member" "database_client" {
  for_each = local.database_members

  project = var.project_id
  role    = "roles/cloudsql.client"
  member  = each.value

  condition {
    title       = "Metadata database only"
    description = "The instance ${module.database.name}."
    expression  = "resource.service == \"sqladmin.googleapis.com\" && resource.name == \"projects/${var.project_id}/instances/${module.database.name}\""
  }
}

# To log in there as a database user of the account's own name.
resource "google_project_iam_member" "database_login" {
  for_each = local.database_members

  project = var.project_id
  role    = "roles/cloudsql.instanceUser"
  member  = each.value

  condition {
    title       = "Metadata database only"
    description = "The instance ${module.database.name}."
    expression  = "resource.service == \"sqladmin.googleapis.com\" && resource.name == \"projects/${var.project_id}/instances/${module.database.name}\""
  }
}
