# The environment of each component, by the names that its config reads. Nothing
# is set anywhere else, but for SECRET_KEY, which comes from Secret Manager, and
# for PORT and the other variables that Cloud Run sets.
#
#   functions/NAME/config.go     ingest, detect, storealert, train
#   run/server/config.go         api, migrate
locals {
  # Cloud SQL, to which each component logs in as its own user.
  database_environment = {
    for component, user in module.database.users : component => {
      INSTANCE_CONNECTION_NAME = module.database.connection_name
      DB_USER                  = user
      DB_NAME                  = module.database.database
      DB_PRIVATE_IP            = tostring(local.size.database.private_address)
    }
  }

  # The table of readings.
  readings_environment = {
    READINGS   = "bigquery"
    DATASET_ID = module.readings.dataset
    TABLE_ID   = module.readings.table
  }

  environment = {
    ingest = merge(local.database_environment.ingest, local.readings_environment, {
      PROJECT_ID        = var.project_id
      DEAD_LETTER_TOPIC = module.topic["data"].dead_letter.topic
      DB_MAX_CONNS      = tostring(local.size.functions.ingest.connections)

      REQUIRE_ENROLLED_GATEWAYS = tostring(var.require_enrolled_gateways)
    })

    detect = merge(local.database_environment.detect, {
      PROJECT_ID           = var.project_id
      DEAD_LETTER_TOPIC    = module.topic["data"].dead_letter.topic
      DB_MAX_CONNS         = tostring(local.size.functions.detect.connections)
      ALERT_TOPIC          = module.topic["alerts"].name
      MAX_ALLOWED_TEMP     = tostring(var.max_allowed.temperature)
      MAX_ALLOWED_HUMIDITY = tostring(var.max_allowed.humidity)
      MODEL_BUCKET         = module.models.bucket

      REQUIRE_ENROLLED_GATEWAYS = tostring(var.require_enrolled_gateways)
    })

    storealert = merge(local.database_environment.storealert, {
      PROJECT_ID        = var.project_id
      DEAD_LETTER_TOPIC = module.topic["alerts"].dead_letter.topic
      DB_MAX_CONNS      = tostring(local.size.functions.storealert.connections)
    })

    train = merge(local.database_environment.train, local.readings_environment, {
      PROJECT_ID        = var.project_id
      DEAD_LETTER_TOPIC = module.topic["model-retraining"].dead_letter.topic
      DB_MAX_CONNS      = tostring(local.size.functions.train.connections)
      MODEL_BUCKET      = module.models.bucket
      TRAINING_ROWS     = format("%d", var.learning.training_rows)
    })

    api = merge(local.database_environment.api, local.readings_environment, {
      PROJECT_ID         = var.project_id
      DB_MAX_CONNS       = tostring(local.size.api.connections)
      MODEL_BUCKET       = module.models.bucket
      RECORD_BUCKET      = module.records.bucket
      RETRAINING_TOPIC   = module.topic["model-retraining"].name
      DATA_TOPIC         = module.topic["data"].name
      PUBLISHING_ACCOUNT = module.gateways.publishing_account
      ALLOWED_ORIGINS    = join(",", var.allowed_origins)

      MAX_UNREPORTED_SENSORS = format("%d", var.max_unreported_sensors)

      # Only Google's front end connects to an instance; the load balancer of the
      # domain adds its own address to the client's.
      TRUSTED_PROXIES = join(",", concat(["peer"], module.domain[*].address))
    })

    migrate = merge(local.database_environment.migrate, {
      DB_USERS = join(",", [for component, user in module.database.users : "${component}=${user}" if component != "migrate"])
    })
  }

  # Secrets of each component, by environment variable.
  secrets = {
    api = merge(
      { SECRET_KEY = { secret = google_secret_manager_secret.secret_key.secret_id, version = var.secret_key_version } },
      var.record_keys_version == null ? {} : { RECORD_KEYS = { secret = google_secret_manager_secret.record_keys.secret_id, version = var.record_keys_version } },
    )
  }
}
