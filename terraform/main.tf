# The system, along the flow of data:
#
#   gateways -> topic data -> ingest -> readings
#                          -> detect -> topic alerts -> storealert -> database
#   api -> database, readings; -> topic model-retraining -> train -> models
#
# environment.tf has the environment of each component, access.tf its rights.

# The APIs that the system uses. They stay enabled when the system is torn down: others
# in the project may use them too.
resource "google_project_service" "this" {
  for_each = toset([
    "artifactregistry.googleapis.com",
    "bigquery.googleapis.com",
    "bigquerystorage.googleapis.com",
    "billingbudgets.googleapis.com",
    "cloudbuild.googleapis.com",
    "cloudfunctions.googleapis.com",
    "cloudresourcemanager.googleapis.com",
    "cloudscheduler.googleapis.com",
    "compute.googleapis.com",
    "iam.googleapis.com",
    "iamcredentials.googleapis.com",
    "logging.googleapis.com",
    "monitoring.googleapis.com",
    "pubsub.googleapis.com",
    "run.googleapis.com",
    "secretmanager.googleapis.com",
    "servicenetworking.googleapis.com",
    "sqladmin.googleapis.com",
    "storage.googleapis.com",
  ])

  project            = var.project_id
  service            = each.key
  disable_on_destroy = false
}

# Systems of version 0.1.0 have these in modules.
moved {
  from = module.services.google_project_service.this
  to   = google_project_service.this
}

moved {
  from = module.secret_key.google_secret_manager_secret.this
  to   = google_secret_manager_secret.secret_key
}

locals {
  # The steps of the pipeline and the topic that feeds each.
  functions = {
    ingest     = { topic = "data", description = "Stores each reading." }
    detect     = { topic = "data", description = "Compares each reading with its limits and its past, and raises alerts." }
    storealert = { topic = "alerts", description = "Stores each alert." }
    train      = { topic = "model-retraining", description = "Trains both models and publishes what is better." }
  }

  # Behind a load balancer the API answers at its domain alone.
  closed = var.domain != null && !var.run_app_open

  # Pub/Sub's own account, which pushes and moves to the dead letter.
  pubsub_agent = "serviceAccount:service-${module.build.project_number}@gcp-sa-pubsub.iam.gserviceaccount.com"

  # Connections to the database when all components are at their largest, with those
  # of the migration. In a release, old and new instances stand side by side for
  # a moment; each opens connections only as it needs them.
  connections = sum(concat(
    [for size in values(local.size.functions) : size.max_instances * size.connections],
    [local.size.api.max_instances * local.size.api.connections, 4],
  ))
}

module "topic" {
  source   = "./modules/topic"
  for_each = toset(["data", "alerts", "model-retraining"])

  project_id   = var.project_id
  name         = each.key
  pubsub_agent = local.pubsub_agent
  labels       = var.labels

  depends_on = [google_project_service.this]
}

# The probe: a reading that the system publishes itself, by which it knows how late
# readings are. Without a timestamp its publish time counts. Before there is an image to
# migrate with, the database has no tables: functions would fail.
resource "google_cloud_scheduler_job" "probe" {
  project     = var.project_id
  region      = var.region
  name        = "coldaisle-probe"
  description = "Publishes a reading of coldaisle.probe each minute."
  schedule    = "* * * * *"
  paused      = var.api_image == ""

  pubsub_target {
    topic_name = module.topic["data"].id
    attributes = { node_id = "coldaisle.probe" }
    data       = base64encode(jsonencode({ node_id = "coldaisle.probe", message_id = "scheduler", temperature = 0, humidity = 0 }))
  }

  depends_on = [google_project_service.this]
}

# The hour is in UTC: calibrations are of whole days in UTC. It waits for tables as the probe does.
resource "google_cloud_scheduler_job" "refresh" {
  project     = var.project_id
  region      = var.region
  name        = "coldaisle-daily-refresh"
  description = "Asks for the calibrations of all customers. It is no training run."
  schedule    = "30 0 * * *"
  time_zone   = "Etc/UTC"
  paused      = var.api_image == ""

  pubsub_target {
    topic_name = module.topic["model-retraining"].id
    data       = base64encode(jsonencode({ triggered_by = "daily_refresh" }))
  }

  depends_on = [google_project_service.this]
}

module "readings" {
  source = "./modules/readings"

  project_id          = var.project_id
  location            = coalesce(var.readings_location, var.region)
  deletion_protection = var.deletion_protection
  labels              = var.labels

  depends_on = [google_project_service.this]
}

module "models" {
  source = "./modules/models"

  project_id = var.project_id
  region     = var.region
  labels     = var.labels

  depends_on = [google_project_service.this]
}

module "records" {
  source = "./modules/models"

  project_id = var.project_id
  name       = "records"
  region     = var.region
  labels     = var.labels

  depends_on = [google_project_service.this]
}

module "network" {
  source = "./modules/network"
  count  = local.size.database.private_address ? 1 : 0

  project_id   = var.project_id
  region       = var.region
  subnet_range = var.subnet_range

  depends_on = [google_project_service.this]
}

module "database" {
  source = "./modules/database"

  project_id          = var.project_id
  region              = var.region
  name                = local.size.database.instance
  size                = local.size.database
  network             = one(module.network[*].id)
  deletion_protection = var.deletion_protection
  labels              = var.labels

  owner = "migrate"
  users = {
    ingest     = module.function["ingest"].account
    detect     = module.function["detect"].account
    storealert = module.function["storealert"].account
    train      = module.function["train"].account
    api        = module.api.account
    migrate    = module.api.migration_account
  }

  depends_on = [google_project_service.this]
}

# The place of the key that signs tokens. A person adds its value with gcloud: neither the
# configuration nor the state knows it.
resource "google_secret_manager_secret" "secret_key" {
  project             = var.project_id
  secret_id           = "SECRET_KEY"
  labels              = var.labels
  version_destroy_ttl = "604800s" # a version destroyed by mistake can be had back for a week

  replication {
    auto {}
  }

  depends_on = [google_project_service.this]
}

# The place of the keys that sign monthly records (docs/records.md), likewise.
resource "google_secret_manager_secret" "record_keys" {
  project             = var.project_id
  secret_id           = "RECORD_KEYS"
  labels              = var.labels
  version_destroy_ttl = "604800s"

  replication {
    auto {}
  }

  depends_on = [google_project_service.this]
}

module "images" {
  source = "./modules/images"

  project_id  = var.project_id
  region      = var.region
  name        = "coldaisle"
  description = "Images of the API."
  labels      = var.labels

  depends_on = [google_project_service.this]
}

module "build" {
  source = "./modules/build"

  project_id = var.project_id
  region     = var.region
  labels     = var.labels

  depends_on = [google_project_service.this]
}

module "function" {
  source   = "./modules/function"
  for_each = local.functions

  project_id    = var.project_id
  region        = var.region
  name          = each.key
  description   = each.value.description
  archive       = "${var.function_archives}/${each.key}.zip"
  source_bucket = module.build.bucket
  repository    = module.build.repository
  build_account = module.build.account
  environment   = local.environment[each.key]
  size          = local.size.functions[each.key]
  network       = one(module.network[*].egress)
  internal      = length(var.redeliverers) == 0
  labels        = var.labels

  topic             = module.topic[each.value.topic].id
  dead_letter_topic = module.topic[each.value.topic].dead_letter.topic
  push_account      = google_service_account.push.email
  pubsub_agent      = local.pubsub_agent

  depends_on = [google_project_service.this]
}

module "api" {
  source = "./modules/api"

  project_id            = var.project_id
  region                = var.region
  image                 = var.api_image
  environment           = local.environment.api
  migration_environment = local.environment.migrate
  secrets               = local.secrets.api
  size                  = local.size.api
  network               = one(module.network[*].egress)
  traffic               = var.api_traffic
  deletion_protection   = var.deletion_protection
  labels                = var.labels

  only_behind_load_balancer = local.closed

  depends_on = [google_project_service.this]
}

module "domain" {
  source = "./modules/domain"
  count  = var.domain == null ? 0 : 1

  project_id = var.project_id
  region     = var.region
  domain     = var.domain
  service    = module.api.name

  depends_on = [google_project_service.this]
}

module "gateways" {
  source = "./modules/gateways"

  project_id  = var.project_id
  topic       = module.topic["data"].name
  sites       = var.gateway_sites
  token_maker = module.api.member

  depends_on = [google_project_service.this]
}

# Cloud Run logs each request, and so each reading twice. What was answered well is not
# kept: alerts count requests by a metric, and the functions log what they did once a minute.
resource "google_logging_project_sink" "default" {
  project     = var.project_id
  name        = "_Default" # which every project has: the provider takes it over
  destination = "logging.googleapis.com/projects/${var.project_id}/locations/global/buckets/_Default"

  # As Google makes it: audit logs go to the bucket _Required.
  filter = join(" AND ", [for log in ["cloudaudit.googleapis.com/activity", "externalaudit.googleapis.com/activity", "cloudaudit.googleapis.com/system_event", "externalaudit.googleapis.com/system_event", "cloudaudit.googleapis.com/access_transparency", "externalaudit.googleapis.com/access_transparency"] : "NOT LOG_ID(\"${log}\")"])

  exclusions {
    name        = "coldaisle-pushes"
    description = "Request logs of messages that a function took."
    filter      = "LOG_ID(\"run.googleapis.com/requests\") AND resource.type=\"cloud_run_revision\" AND resource.labels.service_name=(${join(" OR ", formatlist("\"%s\"", keys(local.functions)))}) AND httpRequest.status>=200 AND httpRequest.status<300"
  }

  depends_on = [google_project_service.this]
}

module "monitoring" {
  source = "./modules/monitoring"

  project_id           = var.project_id
  emails               = var.alert_emails
  functions            = [for function in module.function : function.name]
  ingest               = module.function["ingest"].name
  dead_letters         = [for topic in module.topic : topic.dead_letter.subscription]
  data_topic           = module.topic["data"].name
  api                  = module.api.name
  uptime_check_enabled = var.api_image != ""
  host                 = var.domain != null ? var.domain : try(trimprefix(module.api.uri, "https://"), null)
  database             = module.database.name
  max_connections      = local.size.database.max_connections
  readings_expected    = length(var.gateway_sites) > 0
  thresholds           = var.alert_limits

  depends_on = [google_project_service.this]
}

module "budget" {
  source = "./modules/budget"
  count  = var.billing_account == null ? 0 : 1

  project_id      = var.project_id
  project_number  = module.build.project_number
  billing_account = var.billing_account
  monthly         = coalesce(var.monthly_budget, local.size.monthly_budget)
  channels        = slice(module.monitoring.channels, 0, min(5, length(module.monitoring.channels)))

  depends_on = [google_project_service.this]
}

module "nightly" {
  source = "./modules/nightly"
  count  = var.nightly == null ? 0 : 1

  project_id = var.project_id
  region     = var.region
  repository = var.nightly.repository
  branch     = var.nightly.branch
  channels   = module.monitoring.channels
  labels     = var.labels

  depends_on = [google_project_service.this]
}
