# The backend API with its dashboard, and the job that migrates the database
# before a new version of it takes requests.
locals {
  egress = var.network[*]
}

resource "google_service_account" "api" {
  project      = var.project_id
  account_id   = "coldaisle-api"
  display_name = "Backend API"
  description  = "Runs the API and the dashboard."
}

resource "google_service_account" "migrate" {
  project      = var.project_id
  account_id   = "coldaisle-migrate"
  display_name = "Database migration"
  description  = "Owns the database's schema and brings it up to date."
}

resource "google_cloud_run_v2_service" "this" {
  count = var.image == "" ? 0 : 1

  project             = var.project_id
  location            = var.region
  name                = "api"
  description         = "Backend API and dashboard."
  ingress             = var.only_behind_load_balancer ? "INGRESS_TRAFFIC_INTERNAL_LOAD_BALANCER" : "INGRESS_TRAFFIC_ALL"
  deletion_protection = var.deletion_protection
  labels              = var.labels

  # The API checks its callers itself, by their tokens; registration and login are
  # open to everybody. Not by a right of allUsers: organisations that restrict
  # sharing to their own domains refuse it. Nothing else may be called without one.
  invoker_iam_disabled = true

  template {
    service_account                  = google_service_account.api.email
    max_instance_request_concurrency = var.size.concurrency
    timeout                          = "300s" # long ranges of readings are streamed

    scaling {
      min_instance_count = var.size.min_instances
      max_instance_count = var.size.max_instances
    }

    dynamic "vpc_access" {
      for_each = local.egress
      content {
        egress = "PRIVATE_RANGES_ONLY"
        network_interfaces {
          network    = vpc_access.value.network
          subnetwork = vpc_access.value.subnetwork
        }
      }
    }

    containers {
      image = var.image

      ports {
        container_port = 8080
      }

      resources {
        # Work between requests, a look at due training runs, is short and once a
        # minute: the uptime check brings it the processor often enough.
        cpu_idle          = true
        startup_cpu_boost = true
        limits = {
          cpu    = var.size.cpu
          memory = var.size.memory
        }
      }

      dynamic "env" {
        for_each = var.environment
        content {
          name  = env.key
          value = env.value
        }
      }

      dynamic "env" {
        for_each = var.secrets
        content {
          name = env.key
          value_source {
            secret_key_ref {
              secret  = env.value.secret
              version = env.value.version
            }
          }
        }
      }

      startup_probe {
        period_seconds    = 1
        timeout_seconds   = 1
        failure_threshold = 30
        http_get {
          path = "/health"
          port = 8080
        }
      }

      liveness_probe {
        period_seconds    = 30
        timeout_seconds   = 5
        failure_threshold = 3
        http_get {
          path = "/health"
          port = 8080
        }
      }
    }
  }

  # A release keeps the requests where they are until the newest revision, which has an
  # address by its tag, has passed a smoke test.
  dynamic "traffic" {
    for_each = var.traffic
    content {
      type     = "TRAFFIC_TARGET_ALLOCATION_TYPE_REVISION"
      revision = traffic.key
      percent  = traffic.value
    }
  }

  traffic {
    type    = "TRAFFIC_TARGET_ALLOCATION_TYPE_LATEST"
    percent = length(var.traffic) == 0 ? 100 : 0
    tag     = "next"
  }

  lifecycle {
    ignore_changes = [client, client_version] # of whichever tool came last
  }

  depends_on = [google_secret_manager_secret_iam_member.api]
}

resource "google_cloud_run_v2_job" "migrate" {
  count = var.image == "" ? 0 : 1

  project             = var.project_id
  location            = var.region
  name                = "migrate"
  deletion_protection = false # it holds nothing
  labels              = var.labels

  template {
    template {
      service_account = google_service_account.migrate.email
      max_retries     = 0 # a migration that failed is looked at before it runs again
      timeout         = "1800s"

      dynamic "vpc_access" {
        for_each = local.egress
        content {
          egress = "PRIVATE_RANGES_ONLY"
          network_interfaces {
            network    = vpc_access.value.network
            subnetwork = vpc_access.value.subnetwork
          }
        }
      }

      containers {
        image = var.image
        args  = ["migrate"]

        resources {
          limits = {
            cpu    = "1"
            memory = "512Mi"
          }
        }

        dynamic "env" {
          for_each = var.migration_environment
          content {
            name  = env.key
            value = env.value
          }
        }
      }
    }
  }

  lifecycle {
    ignore_changes = [client, client_version]
  }
}

resource "google_secret_manager_secret_iam_member" "api" {
  for_each = var.secrets

  project   = var.project_id
  secret_id = each.value.secret
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.api.member
}
