# The system, along the flow of data:
#
#   gateways -> topic data -> ingest -> readings
#                          -> detect -> topic alerts -> storealert -> database
#   api -> database, readings; -> topic model-retraining -> train -> models
#
# environment.tf has the environment of each component, access.tf its rights.

module "services" {
  source = "./modules/services"

  project_id = var.project_id
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
    [for size in values(var.functions) : size.max_instances * size.connections],
    [var.api.max_instances * var.api.connections, 4],
  ))
}

module "topic" {
  source   = "./modules/topic"
  for_each = toset(["data", "alerts", "model-retraining"])

  project_id   = var.project_id
  name         = each.key
  pubsub_agent = local.pubsub_agent
  labels       = var.labels

  depends_on = [module.services]
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

  depends_on = [module.services]
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

  depends_on = [module.services]
}

module "readings" {
  source = "./modules/readings"

  project_id          = var.project_id
  location            = coalesce(var.readings_location, var.region)
  deletion_protection = var.deletion_protection
  labels              = var.labels

  depends_on = [module.services]
}

module "models" {
  source = "./modules/models"

  project_id = var.project_id
  region     = var.region
  labels     = var.labels

  depends_on = [module.services]
}

module "network" {
  source = "./modules/network"
  count  = var.database.private_address ? 1 : 0

  project_id   = var.project_id
  region       = var.region
  subnet_range = var.subnet_range

  depends_on = [module.services]
}

module "database" {
  source = "./modules/database"

  project_id          = var.project_id
  region              = var.region
  name                = var.database.instance
  size                = var.database
  network             = one(module.network[*].id)
  connections         = local.connections
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

  depends_on = [module.services]
}

module "secret_key" {
  source = "./modules/secret"

  project_id = var.project_id
  name       = "SECRET_KEY"
  labels     = var.labels

  depends_on = [module.services]
}

module "images" {
  source = "./modules/images"

  project_id  = var.project_id
  region      = var.region
  name        = "coldaisle"
  description = "Images of the API."
  labels      = var.labels

  depends_on = [module.services]
}

module "build" {
  source = "./modules/build"

  project_id = var.project_id
  region     = var.region
  labels     = var.labels

  depends_on = [module.services]
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
  size          = var.functions[each.key]
  network       = one(module.network[*].egress)
  internal      = length(var.redeliverers) == 0
  labels        = var.labels

  topic             = module.topic[each.value.topic].id
  dead_letter_topic = module.topic[each.value.topic].dead_letter.topic
  push_account      = google_service_account.push.email
  pubsub_agent      = local.pubsub_agent

  depends_on = [module.services]
}

module "api" {
  source = "./modules/api"

  project_id            = var.project_id
  region                = var.region
  image                 = var.api_image
  environment           = local.environment.api
  migration_environment = local.environment.migrate
  secrets               = local.secrets.api
  size                  = var.api
  network               = one(module.network[*].egress)
  traffic               = var.api_traffic
  deletion_protection   = var.deletion_protection
  labels                = var.labels

  only_behind_load_balancer = local.closed

  depends_on = [module.services]
}

module "domain" {
  source = "./modules/domain"
  count  = var.domain == null ? 0 : 1

  project_id = var.project_id
  region     = var.region
  domain     = var.domain
  service    = module.api.name

  depends_on = [module.services]
}

module "gateways" {
  source = "./modules/gateways"

  project_id  = var.project_id
  topic       = module.topic["data"].name
  sites       = var.gateway_sites
  token_maker = module.api.member

  depends_on = [module.services]
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
  max_connections      = var.database.max_connections
  readings_expected    = length(var.gateway_sites) > 0
  thresholds           = var.alert_limits

  depends_on = [module.services]
}

module "budget" {
  source = "./modules/budget"
  count  = var.billing_account == null ? 0 : 1

  project_id      = var.project_id
  project_number  = module.build.project_number
  billing_account = var.billing_account
  monthly         = var.monthly_budget
  channels        = slice(module.monitoring.channels, 0, min(5, length(module.monitoring.channels)))

  depends_on = [module.services]
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

  depends_on = [module.services]
}
