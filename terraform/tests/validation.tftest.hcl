# What a person may get wrong, one at a time, is refused before anything is made.
mock_provider "google" {
  source = "./tests/mocks"
}

variables {
  project_id        = "coldaisle-test"
  api_image         = ""
  function_archives = "tests/archives"
}

run "project_id" {
  command = plan

  variables {
    project_id = "Not A Project"
  }

  expect_failures = [var.project_id]
}

run "project_id_ends_with_a_hyphen" {
  command = plan

  variables {
    project_id = "coldaisle-"
  }

  expect_failures = [var.project_id]
}

run "redeliverers" {
  command = plan

  variables {
    redeliverers = ["allUsers"]
  }

  expect_failures = [var.redeliverers]
}

run "region" {
  command = plan

  variables {
    region = "Belgium"
  }

  expect_failures = [var.region]
}

run "readings_location" {
  command = plan

  variables {
    readings_location = "Europe"
  }

  expect_failures = [var.readings_location]
}

run "image_by_tag" {
  command = plan

  variables {
    api_image = "europe-west1-docker.pkg.dev/coldaisle-test/coldaisle/api:latest"
  }

  expect_failures = [var.api_image]
}

run "image_by_half_a_digest" {
  command = plan

  variables {
    api_image = "europe-west1-docker.pkg.dev/coldaisle-test/coldaisle/api@sha256:0123"
  }

  expect_failures = [var.api_image]
}

run "archives_missing" {
  command = plan

  variables {
    function_archives = "tests"
  }

  expect_failures = [var.function_archives]
}

run "function_minimum" {
  command = plan

  variables {
    functions = { ingest = { min_instances = 3, max_instances = 2 } }
  }

  expect_failures = [var.functions]
}

run "function_concurrency" {
  command = plan

  variables {
    functions = { detect = { concurrency = 0 } }
  }

  expect_failures = [var.functions]
}

run "function_processor" {
  command = plan

  variables {
    functions = { train = { cpu = "0.5" } }
  }

  expect_failures = [var.functions]
}

run "function_memory" {
  command = plan

  variables {
    functions = { storealert = { memory = "512" } }
  }

  expect_failures = [var.functions]
}

run "api_minimum" {
  command = plan

  variables {
    api = { min_instances = 11 }
  }

  expect_failures = [var.api]
}

run "api_concurrency" {
  command = plan

  variables {
    api = { concurrency = 1001 }
  }

  expect_failures = [var.api]
}

run "api_memory" {
  command = plan

  variables {
    api = { memory = "half" }
  }

  expect_failures = [var.api]
}

run "database_name" {
  command = plan

  variables {
    database = { instance = "Coldaisle" }
  }

  expect_failures = [var.database]
}

run "database_edition" {
  command = plan

  variables {
    database = { edition = "ENTERPRISE_PLUS" }
  }

  expect_failures = [var.database]
}

run "database_backups" {
  command = plan

  variables {
    database = { retained_backups = 1 }
  }

  expect_failures = [var.database]
}

run "subnet_range" {
  command = plan

  variables {
    subnet_range = "10.8.0.0"
  }

  expect_failures = [var.subnet_range]
}

run "subnet_too_small" {
  command = plan

  variables {
    subnet_range = "10.8.0.0/28"
  }

  expect_failures = [var.subnet_range]
}

run "secret_key_latest" {
  command = plan

  variables {
    secret_key_version = "latest"
  }

  expect_failures = [var.secret_key_version]
}

run "origin_with_a_path" {
  command = plan

  variables {
    allowed_origins = ["https://console.example.com/path"]
  }

  expect_failures = [var.allowed_origins]
}

run "limit_beyond_the_hardware" {
  command = plan

  variables {
    max_allowed = { temperature = 126 }
  }

  expect_failures = [var.max_allowed]
}

run "site" {
  command = plan

  variables {
    gateway_sites = ["Hall 1"]
  }

  expect_failures = [var.gateway_sites]
}

run "email" {
  command = plan

  variables {
    alert_emails = ["nobody"]
  }

  expect_failures = [var.alert_emails]
}

run "share" {
  command = plan

  variables {
    alert_limits = { api_error_share = 2 }
  }

  expect_failures = [var.alert_limits]
}

run "billing_account" {
  command = plan

  variables {
    billing_account = "my account"
  }

  expect_failures = [var.billing_account]
}

run "budget" {
  command = plan

  variables {
    monthly_budget = 0.5
  }

  expect_failures = [var.monthly_budget]
}

run "domain" {
  command = plan

  variables {
    domain = "https://climate.example.com"
  }

  expect_failures = [var.domain]
}

run "label" {
  command = plan

  variables {
    labels = { System = "coldaisle" }
  }

  expect_failures = [var.labels]
}

run "too_few_rows" {
  command = plan

  variables {
    learning = { training_rows = 100 }
  }

  expect_failures = [var.learning]
}

run "half_a_sample" {
  command = plan

  variables {
    learning = { prediction_sample = 0.5 }
  }

  expect_failures = [var.learning]
}

run "no_unreported_sensors" {
  command = plan

  variables {
    max_unreported_sensors = 0
  }

  expect_failures = [var.max_unreported_sensors]
}

run "enrolled_gateways_alone" {
  command = plan

  variables {
    require_enrolled_gateways = true
    max_unreported_sensors    = 50
  }

  assert {
    condition     = local.environment.ingest.REQUIRE_ENROLLED_GATEWAYS == "true" && local.environment.detect.REQUIRE_ENROLLED_GATEWAYS == "true" && local.environment.api.MAX_UNREPORTED_SENSORS == "50"
    error_message = "The functions and the API do not get what was set."
  }
}

run "more_clients_than_connections" {
  command = plan

  variables {
    functions = { ingest = { max_instances = 100 } }
  }

  expect_failures = [var.database]
}

run "large" {
  command = plan

  variables {
    functions = {
      ingest = { min_instances = 2, max_instances = 40, connections = 2 }
      detect = { min_instances = 2, max_instances = 40, cpu = "2", memory = "1Gi" }
    }
    api      = { min_instances = 2, max_instances = 20 }
    database = { edition = "ENTERPRISE_PLUS", tier = "db-perf-optimized-N-4", highly_available = true, max_connections = 800 }
  }

  assert {
    condition     = local.connections == 40 * 2 + 40 * 4 + 5 * 4 + 1 * 4 + 20 * 8 + 4
    error_message = "Connections are not counted right."
  }
}
