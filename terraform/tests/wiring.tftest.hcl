# Who is connected with whom, in the whole.
mock_provider "google" {
  source = "./tests/mocks"
}

variables {
  project_id        = "coldaisle-test"
  api_image         = "europe-west1-docker.pkg.dev/coldaisle-test/coldaisle/api@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
  function_archives = "tests/archives"
}

override_resource {
  target = module.function["ingest"].google_service_account.this
  values = {
    email  = "coldaisle-ingest@coldaisle-test.iam.gserviceaccount.com"
    member = "serviceAccount:coldaisle-ingest@coldaisle-test.iam.gserviceaccount.com"
  }
}

override_resource {
  target = module.function["detect"].google_service_account.this
  values = {
    email  = "coldaisle-detect@coldaisle-test.iam.gserviceaccount.com"
    member = "serviceAccount:coldaisle-detect@coldaisle-test.iam.gserviceaccount.com"
  }
}

override_resource {
  target = module.function["storealert"].google_service_account.this
  values = {
    email  = "coldaisle-storealert@coldaisle-test.iam.gserviceaccount.com"
    member = "serviceAccount:coldaisle-storealert@coldaisle-test.iam.gserviceaccount.com"
  }
}

override_resource {
  target = module.function["train"].google_service_account.this
  values = {
    email  = "coldaisle-train@coldaisle-test.iam.gserviceaccount.com"
    member = "serviceAccount:coldaisle-train@coldaisle-test.iam.gserviceaccount.com"
  }
}

override_resource {
  target = module.api.google_service_account.api
  values = {
    email  = "coldaisle-api@coldaisle-test.iam.gserviceaccount.com"
    member = "serviceAccount:coldaisle-api@coldaisle-test.iam.gserviceaccount.com"
  }
}

override_resource {
  target = module.api.google_service_account.migrate
  values = {
    email  = "coldaisle-migrate@coldaisle-test.iam.gserviceaccount.com"
    member = "serviceAccount:coldaisle-migrate@coldaisle-test.iam.gserviceaccount.com"
  }
}

run "whole" {
  assert {
    condition = { for name, function in module.function : name => function.topic } == {
      ingest     = module.topic["data"].id
      detect     = module.topic["data"].id
      storealert = module.topic["alerts"].id
      train      = module.topic["model-retraining"].id
    }
    error_message = "A function is not fed by the topic of the specification."
  }

  assert {
    condition = (
      google_cloud_scheduler_job.probe.schedule == "* * * * *"
      && google_cloud_scheduler_job.probe.pubsub_target[0].topic_name == module.topic["data"].id
      && google_cloud_scheduler_job.probe.pubsub_target[0].attributes == tomap({ node_id = "coldaisle.probe" })
      # As functions/ingest tests it: without a timestamp the publish time counts.
      && base64decode(google_cloud_scheduler_job.probe.pubsub_target[0].data) == "{\"humidity\":0,\"message_id\":\"scheduler\",\"node_id\":\"coldaisle.probe\",\"temperature\":0}"
    )
    error_message = "No reading of the probe is published each minute."
  }

  assert {
    condition = (
      google_cloud_scheduler_job.refresh.schedule == "30 0 * * *" && google_cloud_scheduler_job.refresh.time_zone == "Etc/UTC"
      && google_cloud_scheduler_job.refresh.pubsub_target[0].topic_name == module.topic["model-retraining"].id
      && base64decode(google_cloud_scheduler_job.refresh.pubsub_target[0].data) == "{\"triggered_by\":\"daily_refresh\"}"
    )
    error_message = "Nobody asks for the calibrations of the day that is over in UTC."
  }

  assert {
    condition     = !google_cloud_scheduler_job.probe.paused && !google_cloud_scheduler_job.refresh.paused
    error_message = "A schedule is paused while the system runs."
  }

  assert {
    condition     = output.api_uri == "https://api-abc123-ew.a.run.app" && output.api_next_uri == "https://next---api-abc123-ew.a.run.app" && module.api.traffic == { next = 100 }
    error_message = "A release does not look at the newest revision, or the API's requests do not go there."
  }

  assert {
    condition     = alltrue([for name, function in module.function : function.dead_letter_topic == module.topic[local.functions[name].topic].dead_letter.topic])
    error_message = "A push subscription's dead letter is not that of its topic."
  }

  assert {
    condition     = alltrue([for name, function in module.function : local.environment[name].DEAD_LETTER_TOPIC == function.dead_letter_topic])
    error_message = "A function publishes what it refuses to another dead letter than that of its subscription."
  }

  assert {
    condition     = toset([for topic in module.topic : topic.dead_letter.subscription]) == toset(["data-dead-letter", "alerts-dead-letter", "model-retraining-dead-letter"])
    error_message = "A dead letter has no subscription that keeps it."
  }

  assert {
    condition     = alltrue([for name, function in module.function : function.archive == "${name}/${filesha256("${var.function_archives}/${name}.zip")}.zip"])
    error_message = "An archive is not named by its content: a change elsewhere would deploy it again, or its own change would not."
  }

  assert {
    condition     = module.topic["data"].name == "data" && module.topic["alerts"].name == "alerts" && module.topic["model-retraining"].name == "model-retraining"
    error_message = "A topic is not named as the specification names it."
  }

  assert {
    condition     = module.readings.dataset == "sensor_data" && module.readings.table == "readings"
    error_message = "The table of readings is not named as the specification names it."
  }

  assert {
    condition     = local.pubsub_agent == "serviceAccount:service-123456789012@gcp-sa-pubsub.iam.gserviceaccount.com"
    error_message = "The name of Pub/Sub's service agent is not made of the project's number."
  }
}

run "environment" {
  assert {
    condition = { for component, environment in local.environment : component => keys(environment) } == {
      ingest = [
        "DATASET_ID", "DB_MAX_CONNS", "DB_NAME", "DB_PRIVATE_IP", "DB_USER", "DEAD_LETTER_TOPIC", "INSTANCE_CONNECTION_NAME", "PROJECT_ID",
        "READINGS", "REQUIRE_ENROLLED_GATEWAYS", "TABLE_ID",
      ]
      detect = [
        "ALERT_TOPIC", "DB_MAX_CONNS", "DB_NAME", "DB_PRIVATE_IP", "DB_USER", "DEAD_LETTER_TOPIC", "INSTANCE_CONNECTION_NAME",
        "MAX_ALLOWED_HUMIDITY", "MAX_ALLOWED_TEMP", "MODEL_BUCKET", "PROJECT_ID",
        "REQUIRE_ENROLLED_GATEWAYS",
      ]
      storealert = [
        "DB_MAX_CONNS", "DB_NAME", "DB_PRIVATE_IP", "DB_USER", "DEAD_LETTER_TOPIC", "INSTANCE_CONNECTION_NAME", "PROJECT_ID",
      ]
      train = [
        "DATASET_ID", "DB_MAX_CONNS", "DB_NAME", "DB_PRIVATE_IP", "DB_USER", "DEAD_LETTER_TOPIC", "INSTANCE_CONNECTION_NAME",
        "MODEL_BUCKET", "PROJECT_ID", "READINGS", "TABLE_ID", "TRAINING_ROWS",
      ]
      api = [
        "ALLOWED_ORIGINS", "DATASET_ID", "DATA_TOPIC", "DB_MAX_CONNS", "DB_NAME", "DB_PRIVATE_IP", "DB_USER", "INSTANCE_CONNECTION_NAME",
        "MAX_UNREPORTED_SENSORS", "MODEL_BUCKET", "PROJECT_ID", "PUBLISHING_ACCOUNT", "READINGS", "RECORD_BUCKET", "RETRAINING_TOPIC", "TABLE_ID", "TRUSTED_PROXIES",
      ]
      migrate = [
        "DB_NAME", "DB_PRIVATE_IP", "DB_USER", "DB_USERS", "INSTANCE_CONNECTION_NAME",
      ]
    }
    error_message = "A component does not get the variables that its settings struct reads."
  }

  assert {
    condition     = alltrue([for name, function in module.function : function.environment == tomap(local.environment[name])])
    error_message = "A function runs with something else than environment.tf says."
  }

  assert {
    condition     = toset(module.api.environment) == toset(concat(keys(local.environment.api), ["SECRET_KEY"]))
    error_message = "The API runs with something else than environment.tf says."
  }

  assert {
    condition = { for component, environment in local.environment : component => environment.DB_USER } == {
      for component in ["ingest", "detect", "storealert", "train", "api", "migrate"] : component => "coldaisle-${component}@coldaisle-test.iam"
    }
    error_message = "A component does not log in to the database as its own service account."
  }

  assert {
    condition     = local.environment.migrate.DB_USERS == "api=coldaisle-api@coldaisle-test.iam,detect=coldaisle-detect@coldaisle-test.iam,ingest=coldaisle-ingest@coldaisle-test.iam,storealert=coldaisle-storealert@coldaisle-test.iam,train=coldaisle-train@coldaisle-test.iam"
    error_message = "The migration does not know every other component's database user."
  }

  assert {
    condition     = alltrue([for environment in values(local.environment) : environment.DB_PRIVATE_IP == "true" && environment.DB_NAME == "coldaisle"])
    error_message = "A component does not find the database at its private address."
  }

  assert {
    condition     = local.environment.detect.MAX_ALLOWED_TEMP == "50" && local.environment.detect.MAX_ALLOWED_HUMIDITY == "50"
    error_message = "The limits are not those of the specification."
  }

  assert {
    condition     = local.environment.ingest.REQUIRE_ENROLLED_GATEWAYS == "false" && local.environment.detect.REQUIRE_ENROLLED_GATEWAYS == "false" && local.environment.api.MAX_UNREPORTED_SENSORS == "1000"
    error_message = "Gateways need not be enrolled as specified, or the API does not begin with its default."
  }

  assert {
    condition     = local.environment.train.TRAINING_ROWS == "5000"
    error_message = "Learning does not begin with what the functions take by default."
  }

  assert {
    condition     = local.environment.detect.ALERT_TOPIC == "alerts" && local.environment.api.RETRAINING_TOPIC == "model-retraining" && local.environment.api.DATA_TOPIC == "data"
    error_message = "A component publishes to the wrong topic."
  }

  assert {
    condition     = local.environment.detect.MODEL_BUCKET == local.environment.train.MODEL_BUCKET && local.environment.api.MODEL_BUCKET == local.environment.train.MODEL_BUCKET
    error_message = "What is trained is not where it is looked for."
  }

  assert {
    condition     = alltrue([for component in values(local.environment) : !can(component.SECRET_KEY) && !can(component.DATABASE_URL)])
    error_message = "A secret is among the plain variables."
  }
}

run "in_a_release" {
  variables {
    api_traffic = { api-00001-abc = 100 }
  }

  assert {
    condition     = module.api.traffic == { api-00001-abc = 100, next = 0 }
    error_message = "The newest revision gets requests before a release has looked at it."
  }
}

run "before_there_is_an_image" {
  variables {
    api_image = ""
  }

  assert {
    condition     = output.api_uri == null && module.api.migration_job == null && module.api.open == null
    error_message = "There is a service without an image."
  }

  assert {
    condition     = length(module.function) == 4 && !contains(keys(module.monitoring.policies), "uptime")
    error_message = "The first apply must make everything but the API and what watches it."
  }

  assert {
    condition     = google_cloud_scheduler_job.probe.paused && google_cloud_scheduler_job.refresh.paused
    error_message = "A schedule publishes before the database has tables."
  }
}

run "public_address" {
  variables {
    database = { private_address = false }
  }

  assert {
    condition     = length(module.network) == 0 && alltrue([for environment in values(local.environment) : environment.DB_PRIVATE_IP == "false"])
    error_message = "Without a private address there must be no network, and the components must know."
  }
}

run "extras" {
  variables {
    domain          = "climate.example.com"
    billing_account = "012345-6789AB-CDEF01"
    alert_emails    = ["one@example.com", "two@example.com"]
    gateway_sites   = ["hall-1", "hall-2"]
    learning        = { training_rows = 500000 }
    allowed_origins = ["https://a.example.com", "https://b.example.com"]
  }

  assert {
    condition     = length(module.domain) == 1 && length(module.budget) == 1 && length(module.monitoring.channels) == 2
    error_message = "Domain, budget or notification channels are missing."
  }

  assert {
    condition     = local.environment.api.TRUSTED_PROXIES == "peer,${module.domain[0].address}"
    error_message = "The API does not know the load balancer before it."
  }

  assert {
    condition     = module.api.ingress == "INGRESS_TRAFFIC_INTERNAL_LOAD_BALANCER" && output.api_uri == "https://climate.example.com" && output.api_next_uri == output.api_uri
    error_message = "Behind a load balancer the API answers at Cloud Run's address too, or a release asks there."
  }

  assert {
    condition     = length(module.gateways.accounts) == 2 && contains(keys(module.monitoring.policies), "no_readings")
    error_message = "Each site needs an account, and with gateways silence is trouble."
  }

  assert {
    condition     = local.environment.api.ALLOWED_ORIGINS == "https://a.example.com,https://b.example.com"
    error_message = "The origins are not separated by commas."
  }

  assert {
    condition     = local.environment.train.TRAINING_ROWS == "500000"
    error_message = "A large number is not written in digits."
  }
}

run "domain_beside_cloud_run" {
  variables {
    domain       = "climate.example.com"
    run_app_open = true
  }

  assert {
    condition     = module.api.ingress == "INGRESS_TRAFFIC_ALL" && output.api_uri == module.api.uri
    error_message = "The address of Cloud Run is closed before the domain's certificate is issued."
  }
}

run "nothing_extra_by_default" {
  assert {
    condition     = keys(module.gateways.accounts) == ["main"]
    error_message = "By default there is one site."
  }

  assert {
    condition     = local.environment.api.TRUSTED_PROXIES == "peer"
    error_message = "Without a domain nothing but Google's front end is before the API."
  }

  assert {
    condition     = length(module.domain) == 0 && length(module.budget) == 0 && length(module.monitoring.channels) == 0
    error_message = "Something optional is made without being asked for."
  }
}

run "without_gateways" {
  variables {
    gateway_sites = []
  }

  assert {
    condition     = !contains(keys(module.monitoring.policies), "no_readings")
    error_message = "Without gateways, silence is no trouble."
  }
}

run "small" {
  variables {
    size              = "small"
    functions_billing = "instance"
    database          = { retained_backups = 9 }
    billing_account   = "012345-6789AB-CDEF01"
  }

  assert {
    condition     = local.size.api.min_instances == 0 && local.size.database.tier == "db-f1-micro" && local.size.database.retained_backups == 9 && local.size.database.max_disk_gb == 20
    error_message = "A small system is not small, or does not take what was set."
  }

  assert {
    condition     = local.connections <= local.size.database.max_connections - 10 && local.environment.ingest.DB_MAX_CONNS == "2"
    error_message = "A small database is asked for more connections than it has."
  }

  assert {
    condition     = output.billing == "ingest=instance detect=instance"
    error_message = "The functions that take every reading are not billed by instance."
  }
}

run "request_logs" {
  assert {
    condition = (
      google_logging_project_sink.default.exclusions[0].filter == "LOG_ID(\"run.googleapis.com/requests\") AND resource.type=\"cloud_run_revision\" AND resource.labels.service_name=(\"detect\" OR \"ingest\" OR \"storealert\" OR \"train\") AND httpRequest.status>=200 AND httpRequest.status<300"
      && google_logging_project_sink.default.name == "_Default" && length(google_logging_project_sink.default.exclusions) == 1
      && toset([for function in module.function : function.name]) == toset(["detect", "ingest", "storealert", "train"])
      && output.billing == "ingest=request detect=request"
    )
    error_message = "Request logs of messages that were taken are kept, or of others are not."
  }
}
