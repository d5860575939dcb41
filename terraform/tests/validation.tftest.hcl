# What a person may get wrong is refused before anything is made. A run gives several wrong
# values at once: each of its expect_failures must fail.
mock_provider "google" {
  source = "./tests/mocks"
}

variables {
  project_id        = "coldaisle-test"
  api_image         = ""
  function_archives = "tests/archives"
}

run "wrong_values" {
  command = plan

  variables {
    project_id             = "Not A Project"
    redeliverers           = ["allUsers"]
    region                 = "Belgium"
    readings_location      = "Europe"
    api_image              = "europe-west1-docker.pkg.dev/coldaisle-test/coldaisle/api:latest"
    function_archives      = "tests"
    size                   = "medium"
    functions_billing      = "hour"
    database               = { instance = "Coldaisle" }
    subnet_range           = "10.8.0.0"
    secret_key_version     = "latest"
    allowed_origins        = ["https://console.example.com/path"]
    max_allowed            = { temperature = 126 }
    gateway_sites          = ["Hall 1"]
    alert_emails           = ["nobody"]
    alert_limits           = { api_error_share = 2 }
    billing_account        = "my account"
    monthly_budget         = 0.5
    domain                 = "https://climate.example.com"
    labels                 = { System = "coldaisle" }
    learning               = { training_rows = 100 }
    max_unreported_sensors = 0
  }

  expect_failures = [
    var.project_id, var.redeliverers, var.region, var.readings_location, var.api_image, var.function_archives, var.size,
    var.functions_billing, var.database, var.subnet_range, var.secret_key_version, var.allowed_origins, var.max_allowed,
    var.gateway_sites, var.alert_emails, var.alert_limits, var.billing_account, var.monthly_budget, var.domain, var.labels,
    var.learning, var.max_unreported_sensors,
  ]
}

run "nearly_right_values" {
  command = plan

  variables {
    project_id   = "coldaisle-"
    region       = "europe-west3" # where a new project may not build
    api_image    = "europe-west1-docker.pkg.dev/coldaisle-test/coldaisle/api@sha256:0123"
    subnet_range = "10.8.0.0/28"
    learning     = { training_rows = 500.5 }
  }

  expect_failures = [var.project_id, var.region, var.api_image, var.subnet_range, var.learning]
}

run "function_minimum" {
  command = plan

  variables {
    functions = { ingest = { min_instances = 3, max_instances = 2 } }
  }

  expect_failures = [terraform_data.size]
}

run "function_concurrency" {
  command = plan

  variables {
    functions = { detect = { concurrency = 0 } }
  }

  expect_failures = [terraform_data.size]
}

run "api_memory" {
  command = plan

  variables {
    api = { memory = "half" }
  }

  expect_failures = [terraform_data.size]
}

run "database_edition" {
  command = plan

  variables {
    database = { edition = "ENTERPRISE_PLUS" }
  }

  expect_failures = [terraform_data.size]
}

run "database_backups" {
  command = plan

  variables {
    database = { retained_backups = 1 }
  }

  expect_failures = [terraform_data.size]
}

run "iops_of_a_disk_that_has_its_own" {
  command = plan

  variables {
    database = { iops = 3000 }
  }

  expect_failures = [terraform_data.size]
}

run "more_clients_than_connections" {
  command = plan

  variables {
    functions = { ingest = { max_instances = 100 } }
  }

  expect_failures = [terraform_data.size]
}

run "large" {
  command = plan

  variables {
    region                    = "europe-west3"
    builds_everywhere         = true
    require_enrolled_gateways = true
    max_unreported_sensors    = 50
    functions = {
      ingest = { min_instances = 2, max_instances = 40, connections = 2 }
      detect = { min_instances = 2, max_instances = 40, cpu = "2", memory = "1Gi" }
    }
    api      = { min_instances = 2, max_instances = 20 }
    database = { edition = "ENTERPRISE_PLUS", tier = "db-perf-optimized-N-4", highly_available = true, max_connections = 800, disk_type = "HYPERDISK_BALANCED", iops = 6000 }
  }

  assert {
    condition     = local.connections == 40 * 2 + 40 * 4 + 5 * 4 + 1 * 4 + 20 * 8 + 4
    error_message = "Connections are not counted right."
  }

  assert {
    condition     = local.environment.ingest.REQUIRE_ENROLLED_GATEWAYS == "true" && local.environment.detect.REQUIRE_ENROLLED_GATEWAYS == "true" && local.environment.api.MAX_UNREPORTED_SENSORS == "50"
    error_message = "The functions and the API do not get what was set."
  }
}
