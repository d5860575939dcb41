# Alert policies, in one form: one metric against a threshold. The text of each alert
# names its playbook, docs/playbooks/<key>.md.
#
#   filter, metric       which series; aligner and reducer make one value of each
#   alignment_seconds    period of one value
#   threshold, below     the alert fires above the threshold, or with below = true under it
#   duration_seconds     how long the condition must hold
#   denominator_filter   if given, the value is the ratio to the series of this filter
#   missing_data_fires   whether an absence of data fires the alert too
locals {
  policies = merge({
    dead_letter = {
      title             = "A dead letter is not empty"
      runbook           = "A function refused a message, or could not handle it in 100 attempts. The message is kept for 31 days and can be redelivered."
      metric            = "pubsub.googleapis.com/subscription/num_undelivered_messages"
      filter            = local.dead_letters
      alignment_seconds = 60
      aligner           = "ALIGN_MAX"
      reducer           = "REDUCE_SUM"
      group             = ["resource.labels.subscription_id"]
      threshold         = 0
      duration_seconds  = 0
    }
    messages_refused = {
      title             = "A function refuses messages"
      runbook           = "A function put messages into its dead letter; the label reason says why. Malformed: somebody publishes what is no message. Panic or rejected: a defect, often of a release."
      metric            = "logging.googleapis.com/user/${google_logging_metric.dead_letters.name}"
      filter            = "resource.type = \"cloud_run_revision\""
      alignment_seconds = 300
      aligner           = "ALIGN_DELTA"
      reducer           = "REDUCE_SUM"
      group             = ["metric.labels.function", "metric.labels.reason"]
      threshold         = 0
      duration_seconds  = 0
    }
    readings_clamped = {
      title             = "Readings are dated in the future"
      runbook           = "A gateway that is not enrolled has a clock that is ahead: its readings get the time at which they were published."
      metric            = "logging.googleapis.com/user/${google_logging_metric.clamped.name}"
      filter            = "resource.type = \"cloud_run_revision\""
      alignment_seconds = 300
      aligner           = "ALIGN_DELTA"
      reducer           = "REDUCE_SUM"
      group             = []
      threshold         = 0
      duration_seconds  = 600
    }
    gateway_clock = {
      title             = "A gateway's system clock is off"
      runbook           = "The system clock of an enrolled gateway is more than five minutes off. It publishes nothing until the clock is set; its readings are kept and get their true times."
      metric            = "logging.googleapis.com/user/${google_logging_metric.clock.name}"
      filter            = "resource.type = \"cloud_run_revision\""
      alignment_seconds = 300
      aligner           = "ALIGN_DELTA"
      reducer           = "REDUCE_SUM"
      group             = ["metric.labels.gateway"]
      threshold         = 0
      duration_seconds  = 300
    }
    site_dark = {
      title             = "A site is dark"
      runbook           = "An enrolled gateway has reported nothing for 15 minutes or, where the gateway is called not enrolled, no reading of that customer has come. Other sites may be well."
      metric            = "logging.googleapis.com/user/${google_logging_metric.dark.name}"
      filter            = "resource.type = \"cloud_run_revision\""
      alignment_seconds = 600
      aligner           = "ALIGN_DELTA"
      reducer           = "REDUCE_SUM"
      group             = ["metric.labels.gateway", "metric.labels.customer"]
      threshold         = 0
      duration_seconds  = 0
    }
    hourly_failed = {
      title             = "Hourly aggregates fail"
      runbook           = "Ingest cannot aggregate the readings of more than 8 days ago by the hour; its log says why. Charts lack readings that came more than 8 days late, and raw readings stay in PostgreSQL until this works again."
      metric            = "logging.googleapis.com/user/${google_logging_metric.hourly.name}"
      filter            = "resource.type = \"cloud_run_revision\""
      alignment_seconds = 300
      aligner           = "ALIGN_DELTA"
      reducer           = "REDUCE_SUM"
      group             = []
      threshold         = 0
      duration_seconds  = 0
    }
    function_errors = {
      title             = "A function fails"
      runbook           = "A function answers with 5xx, and Pub/Sub delivers those messages again. Its log names the cause; the database or BigQuery may be unavailable."
      metric            = "run.googleapis.com/request_count"
      filter            = "${local.functions} AND metric.labels.response_code_class = \"5xx\""
      alignment_seconds = 300
      aligner           = "ALIGN_DELTA"
      reducer           = "REDUCE_SUM"
      group             = ["resource.labels.service_name"]
      threshold         = var.thresholds.function_errors
      duration_seconds  = 0
    }
    oldest_unacked = {
      title             = "Messages wait"
      runbook           = "The oldest message of a subscription is not processed in time: the function fails, or it needs more instances (max_instances)."
      metric            = "pubsub.googleapis.com/subscription/oldest_unacked_message_age"
      filter            = local.subscriptions
      alignment_seconds = 60
      aligner           = "ALIGN_MAX"
      reducer           = "REDUCE_MAX"
      group             = ["resource.labels.subscription_id"]
      threshold         = var.thresholds.unacked_seconds
      duration_seconds  = 300
    }
    api_errors = {
      title              = "The API fails"
      runbook            = "Too many requests are answered with 5xx; the log of service api names the cause. After a release, roll back first."
      metric             = "run.googleapis.com/request_count"
      filter             = "${local.api} AND metric.labels.response_code_class = \"5xx\""
      alignment_seconds  = 300
      aligner            = "ALIGN_RATE"
      reducer            = "REDUCE_SUM"
      group              = []
      denominator_filter = local.api
      threshold          = var.thresholds.api_error_share
      duration_seconds   = 300
    }
    api_latency = {
      title             = "The API is slow"
      runbook           = "One request in twenty takes longer than the threshold. Look at the queries (Cloud SQL insights, BigQuery jobs) and at the number of instances."
      metric            = "logging.googleapis.com/user/${google_logging_metric.latency.name}"
      filter            = local.api
      alignment_seconds = 300
      aligner           = "ALIGN_PERCENTILE_95"
      reducer           = "REDUCE_MAX"
      group             = []
      threshold         = var.thresholds.api_latency_ms / 1000
      duration_seconds  = 600
    }
    database_disk = {
      title             = "The database's disk fills up"
      runbook           = "The disk grows by itself up to max_disk_gb. It is near that size, or something writes too much."
      metric            = "cloudsql.googleapis.com/database/disk/utilization"
      filter            = local.database
      alignment_seconds = 300
      aligner           = "ALIGN_MEAN"
      reducer           = "REDUCE_MAX"
      group             = []
      threshold         = var.thresholds.disk_share
      duration_seconds  = 600
    }
    database_connections = {
      title             = "The database runs out of connections"
      runbook           = "Raise max_connections (and the tier), or lower max_instances or connections of the components."
      metric            = "cloudsql.googleapis.com/database/postgresql/num_backends"
      filter            = local.database
      alignment_seconds = 60
      aligner           = "ALIGN_MAX"
      reducer           = "REDUCE_SUM"
      group             = ["resource.labels.database_id"]
      threshold         = 0.9 * var.max_connections
      duration_seconds  = 300
    }
    }, {
    for no_readings in var.readings_expected ? ["no_readings"] : [] : no_readings => {
      title              = "No readings arrive"
      runbook            = "Ingest has stored nothing for 15 minutes. Either no gateway publishes (metric of topic ${var.data_topic}, log of a gateway), or ingest fails."
      metric             = "logging.googleapis.com/user/${google_logging_metric.stored.name}"
      filter             = "resource.type = \"cloud_run_revision\" AND resource.labels.service_name = \"${var.ingest}\""
      alignment_seconds  = 300
      aligner            = "ALIGN_DELTA"
      reducer            = "REDUCE_SUM"
      group              = []
      threshold          = 1
      below              = true
      duration_seconds   = 900
      missing_data_fires = true
    }
    }, {
    # By its host: another host is another check, and Google deletes none whose id a policy names.
    for uptime in var.uptime_check_enabled ? ["uptime"] : [] : uptime => {
      title             = "The API does not answer"
      runbook           = "Requests for /health fail from several regions."
      metric            = "monitoring.googleapis.com/uptime_check/check_passed"
      filter            = "resource.type = \"uptime_url\" AND resource.labels.host = \"${google_monitoring_uptime_check_config.api[0].monitored_resource[0].labels.host}\""
      alignment_seconds = 300
      aligner           = "ALIGN_FRACTION_TRUE"
      reducer           = "REDUCE_MEAN"
      group             = []
      threshold         = 0.5
      below             = true
      duration_seconds  = 120
    }
  })
}

resource "google_monitoring_alert_policy" "this" {
  for_each = local.policies

  project               = var.project_id
  display_name          = "Coldaisle: ${each.value.title}"
  combiner              = "OR"
  notification_channels = local.channels
  severity              = contains(["readings_clamped", "hourly_failed", "gateway_clock", "site_dark", "database_disk", "database_connections", "api_latency"], each.key) ? "WARNING" : "ERROR"

  conditions {
    display_name = each.value.title

    condition_threshold {
      filter                  = "${each.value.filter} AND metric.type = \"${each.value.metric}\""
      comparison              = try(each.value.below, false) ? "COMPARISON_LT" : "COMPARISON_GT"
      threshold_value         = each.value.threshold
      duration                = "${each.value.duration_seconds}s"
      denominator_filter      = try("${each.value.denominator_filter} AND metric.type = \"${each.value.metric}\"", null)
      evaluation_missing_data = try(each.value.missing_data_fires, false) ? "EVALUATION_MISSING_DATA_ACTIVE" : null

      aggregations {
        alignment_period     = "${each.value.alignment_seconds}s"
        per_series_aligner   = each.value.aligner
        cross_series_reducer = each.value.reducer
        group_by_fields      = each.value.group
      }

      dynamic "denominator_aggregations" {
        for_each = can(each.value.denominator_filter) ? [each.value] : []
        content {
          alignment_period     = "${denominator_aggregations.value.alignment_seconds}s"
          per_series_aligner   = denominator_aggregations.value.aligner
          cross_series_reducer = denominator_aggregations.value.reducer
          group_by_fields      = denominator_aggregations.value.group
        }
      }

      trigger {
        count = 1
      }
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "${each.value.runbook}\n\nPlaybook: docs/playbooks/${each.key}.md"
  }

  # What counts events has no data once they end: while its incident is open a second
  # darkness of the same site would tell nobody.
  alert_strategy {
    auto_close = contains(["ALIGN_DELTA", "ALIGN_RATE"], each.value.aligner) && !try(each.value.missing_data_fires, false) ? "1800s" : "86400s"
  }
}
