# The environment of each component, by the names that its config reads. Nothing
# is set anywhere else, but for SECRET_KEY, which comes from Secret Manager, and
# for PORT and the other variables that Cloud Run sets.
#
#   functions/NAME/config.go     ingest, detect, storealert, train
#   run/server/settings.go       api, migrate
locals {
  environment = {
    ingest = {
      PROJECT_ID               = var.project_id
      INSTANCE_CONNECTION_NAME = module.database.connection_name
      DB_USER                  = module.database.users.ingest
      DB_NAME                  = module.database.database
      DB_PRIVATE_IP            = tostring(var.database.private_address)
      DB_MAX_CONNS             = tostring(var.functions.ingest.connections)
      READINGS                 = "bigquery"
      DATASET_ID               = module.readings.dataset
      TABLE_ID                 = module.readings.table
    }

    detect = {
      PROJECT_ID               = var.project_id
      INSTANCE_CONNECTION_NAME = module.database.connection_name
      DB_USER                  = module.database.users.detect
      DB_NAME                  = module.database.database
      DB_PRIVATE_IP            = tostring(var.database.private_address)
      DB_MAX_CONNS             = tostring(var.functions.detect.connections)
      ALERT_TOPIC              = module.topic["alerts"].name
      MAX_ALLOWED_TEMP         = tostring(var.max_allowed.temperature)
      MAX_ALLOWED_HUMIDITY     = tostring(var.max_allowed.humidity)
      MODEL_BUCKET             = module.models.bucket
      PREDICTION_SAMPLE        = format("%d", var.learning.prediction_sample)
    }

    storealert = {
      PROJECT_ID               = var.project_id
      INSTANCE_CONNECTION_NAME = module.database.connection_name
      DB_USER                  = module.database.users.storealert
      DB_NAME                  = module.database.database
      DB_PRIVATE_IP            = tostring(var.database.private_address)
      DB_MAX_CONNS             = tostring(var.functions.storealert.connections)
    }

    train = {
      PROJECT_ID               = var.project_id
      INSTANCE_CONNECTION_NAME = module.database.connection_name
      DB_USER                  = module.database.users.train
      DB_NAME                  = module.database.database
      DB_PRIVATE_IP            = tostring(var.database.private_address)
      DB_MAX_CONNS             = tostring(var.functions.train.connections)
      READINGS                 = "bigquery"
      DATASET_ID               = module.readings.dataset
      TABLE_ID                 = module.readings.table
      MODEL_BUCKET             = module.models.bucket
      TRAINING_ROWS            = format("%d", var.learning.training_rows)
    }

    api = {
      PROJECT_ID               = var.project_id
      INSTANCE_CONNECTION_NAME = module.database.connection_name
      DB_USER                  = module.database.users.api
      DB_NAME                  = module.database.database
      DB_PRIVATE_IP            = tostring(var.database.private_address)
      DB_MAX_CONNS             = tostring(var.api.connections)
      READINGS                 = "bigquery"
      DATASET_ID               = module.readings.dataset
      TABLE_ID                 = module.readings.table
      MODEL_BUCKET             = module.models.bucket
      RETRAINING_TOPIC         = module.topic["model-retraining"].name
      ALLOWED_ORIGINS          = join(",", var.allowed_origins)
      # Only Google's front end connects to an instance; the load balancer of the
      # domain adds its own address to the client's.
      TRUSTED_PROXIES = join(",", concat(["peer"], module.domain[*].address))
    }

    migrate = {
      INSTANCE_CONNECTION_NAME = module.database.connection_name
      DB_USER                  = module.database.users.migrate
      DB_NAME                  = module.database.database
      DB_PRIVATE_IP            = tostring(var.database.private_address)
      DB_USERS                 = join(",", [for part, user in module.database.users : "${part}=${user}" if part != "migrate"])
    }
  }

  # Secrets of each component, by environment variable.
  secrets = {
    api = {
      SECRET_KEY = { secret = module.secret_key.name, version = var.secret_key_version }
    }
  }
}
