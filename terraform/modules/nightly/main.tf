# What takes too long for every release, each night: Cloud Build runs .ci/nightly on the
# repository that releases come from. Cloud Scheduler starts it through a topic, so that
# nobody needs a right to start builds.
resource "google_pubsub_topic" "this" {
  project = var.project_id
  name    = "nightly"
  labels  = var.labels
}

resource "google_cloud_scheduler_job" "this" {
  project     = var.project_id
  region      = var.region
  name        = "coldaisle-nightly"
  description = "Starts the nightly checks."
  schedule    = "0 1 * * *"

  pubsub_target {
    topic_name = google_pubsub_topic.this.id
    data       = base64encode("{}")
  }
}

resource "google_cloudbuild_trigger" "this" {
  project         = var.project_id
  location        = var.region
  name            = "nightly"
  description     = "Tests, long fuzzing, BigQuery's statements, soak, and known vulnerabilities."
  service_account = "projects/${var.project_id}/serviceAccounts/coldaisle-checks@${var.project_id}.iam.gserviceaccount.com"

  pubsub_config {
    topic = google_pubsub_topic.this.id
  }

  source_to_build {
    repository = var.repository
    ref        = "refs/heads/${var.branch}"
    repo_type  = "GITHUB"
  }

  build {
    timeout = "36000s"

    options {
      logging      = "CLOUD_LOGGING_ONLY"
      machine_type = "E2_HIGHCPU_8"
    }

    step {
      name   = "golang:1.26-trixie"
      script = "#!/usr/bin/env bash\nset -euo pipefail\n.ci/nightly\n"
    }
  }
}

# A build that fails is told as the system's own alerts are.
resource "google_logging_metric" "failed" {
  project     = var.project_id
  name        = "coldaisle/nightly_failed"
  description = "Nightly checks of which a step failed, or that took too long."
  filter      = "resource.type=\"build\" AND resource.labels.build_trigger_id=\"${google_cloudbuild_trigger.this.trigger_id}\" AND textPayload=~\"^ERROR: (build step|context deadline exceeded)\""

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "INT64"
    unit        = "1"
  }
}

resource "google_monitoring_alert_policy" "failed" {
  project               = var.project_id
  display_name          = "Coldaisle: The nightly checks fail"
  combiner              = "OR"
  notification_channels = var.channels
  severity              = "WARNING"

  conditions {
    display_name = "The nightly checks fail"

    condition_threshold {
      filter          = "resource.type = \"build\" AND metric.type = \"logging.googleapis.com/user/${google_logging_metric.failed.name}\""
      comparison      = "COMPARISON_GT"
      threshold_value = 0
      duration        = "0s"

      aggregations {
        alignment_period     = "300s"
        per_series_aligner   = "ALIGN_DELTA"
        cross_series_reducer = "REDUCE_SUM"
      }

      trigger {
        count = 1
      }
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "A vulnerability is known in a dependency, fuzzing found an input, or a test failed that only runs at night.\n\nPlaybook: docs/playbooks/nightly_failed.md"
  }

  alert_strategy {
    auto_close = "1800s" # the next night tells again
  }
}
