# Alert policies on one metric against a limit, in one form. Each says what to do.
#
#   filter, metric   which series; aligner and reducer make one number of each
#   over             seconds that a number is made of
#   limit, below     how much is too much, or with below = true too little
#   lasting          seconds that it must last
#   of               a filter: the metric is then a share of that one
#   missing          whether no data at all counts as trouble
locals {
  policies = merge({
    dead_letter = {
      title   = "A dead letter is not empty"
      advice  = "Messages could not be processed five times over. docs/pipeline.md says how to find out why and how to move them back."
      metric  = "pubsub.googleapis.com/subscription/num_undelivered_messages"
      filter  = local.dead_letters
      over    = 60
      aligner = "ALIGN_MAX"
      reducer = "REDUCE_SUM"
      group   = ["resource.labels.subscription_id"]
      limit   = 0
      lasting = 0
    }
    function_errors = {
      title   = "A function fails"
      advice  = "It answers with 5xx, so that Pub/Sub delivers again: look into the function's log. What it depends on (database, BigQuery) may be away."
      metric  = "run.googleapis.com/request_count"
      filter  = "${local.functions} AND metric.labels.response_code_class = \"5xx\""
      over    = 300
      aligner = "ALIGN_DELTA"
      reducer = "REDUCE_SUM"
      group   = ["resource.labels.service_name"]
      limit   = var.limits.function_errors
      lasting = 0
    }
    oldest_unacked = {
      title   = "Messages wait"
      advice  = "The oldest message of a subscription is not processed in time: its function fails, or it cannot keep up and needs more max_instances."
      metric  = "pubsub.googleapis.com/subscription/oldest_unacked_message_age"
      filter  = local.subscriptions
      over    = 60
      aligner = "ALIGN_MAX"
      reducer = "REDUCE_MAX"
      group   = ["resource.labels.subscription_id"]
      limit   = var.limits.unacked_seconds
      lasting = 300
    }
    api_errors = {
      title   = "The API fails"
      advice  = "The share of requests answered with 5xx is too high: look into the log of service api. After a release, roll back first."
      metric  = "run.googleapis.com/request_count"
      filter  = "${local.api} AND metric.labels.response_code_class = \"5xx\""
      over    = 300
      aligner = "ALIGN_RATE"
      reducer = "REDUCE_SUM"
      group   = []
      of      = local.api
      limit   = var.limits.api_error_share
      lasting = 300
    }
    api_latency = {
      title   = "The API is slow"
      advice  = "One request in twenty takes longer than the limit: look at the queries (Cloud SQL insights, BigQuery jobs) and at the number of instances."
      metric  = "run.googleapis.com/request_latencies"
      filter  = local.api
      over    = 300
      aligner = "ALIGN_PERCENTILE_95"
      reducer = "REDUCE_MAX"
      group   = []
      limit   = var.limits.api_latency_ms
      lasting = 600
    }
    database_disk = {
      title   = "The database's disk fills up"
      advice  = "It grows by itself up to max_disk_gb and is near that, or something writes far too much."
      metric  = "cloudsql.googleapis.com/database/disk/utilization"
      filter  = local.database
      over    = 300
      aligner = "ALIGN_MEAN"
      reducer = "REDUCE_MAX"
      group   = []
      limit   = var.limits.disk_share
      lasting = 600
    }
    database_connections = {
      title   = "The database runs out of connections"
      advice  = "Raise max_connections (and the tier), or lower max_instances or connections of the parts."
      metric  = "cloudsql.googleapis.com/database/postgresql/num_backends"
      filter  = local.database
      over    = 60
      aligner = "ALIGN_MAX"
      reducer = "REDUCE_SUM"
      group   = ["resource.labels.database_id"]
      limit   = 0.9 * var.max_connections
      lasting = 300
    }
    }, {
    for always in var.readings_expected ? ["no_readings"] : [] : always => {
      title   = "No readings arrive"
      advice  = "Ingest has stored nothing for a quarter of an hour. Do gateways publish (metric of topic ${var.data_topic}, log of a gateway)? Does ingest fail?"
      metric  = "run.googleapis.com/request_count"
      filter  = "resource.type = \"cloud_run_revision\" AND resource.labels.service_name = \"${var.ingest}\" AND metric.labels.response_code_class = \"2xx\""
      over    = 300
      aligner = "ALIGN_DELTA"
      reducer = "REDUCE_SUM"
      group   = []
      limit   = 1
      below   = true
      lasting = 900
      missing = true
    }
    }, {
    for watched in var.watched ? ["uptime"] : [] : watched => {
      title   = "The API does not answer"
      advice  = "Requests for /health fail from several places in the world."
      metric  = "monitoring.googleapis.com/uptime_check/check_passed"
      filter  = "resource.type = \"uptime_url\" AND metric.labels.check_id = \"${google_monitoring_uptime_check_config.api[0].uptime_check_id}\""
      over    = 300
      aligner = "ALIGN_FRACTION_TRUE"
      reducer = "REDUCE_MEAN"
      group   = []
      limit   = 0.5
      below   = true
      lasting = 120
    }
  })
}

resource "google_monitoring_alert_policy" "this" {
  for_each = local.policies

  project               = var.project_id
  display_name          = "Coldaisle: ${each.value.title}"
  combiner              = "OR"
  notification_channels = local.channels
  severity              = contains(["database_disk", "database_connections", "api_latency"], each.key) ? "WARNING" : "ERROR"

  conditions {
    display_name = each.value.title

    condition_threshold {
      filter                  = "${each.value.filter} AND metric.type = \"${each.value.metric}\""
      comparison              = try(each.value.below, false) ? "COMPARISON_LT" : "COMPARISON_GT"
      threshold_value         = each.value.limit
      duration                = "${each.value.lasting}s"
      denominator_filter      = try("${each.value.of} AND metric.type = \"${each.value.metric}\"", null)
      evaluation_missing_data = try(each.value.missing, false) ? "EVALUATION_MISSING_DATA_ACTIVE" : null

      aggregations {
        alignment_period     = "${each.value.over}s"
        per_series_aligner   = each.value.aligner
        cross_series_reducer = each.value.reducer
        group_by_fields      = each.value.group
      }

      dynamic "denominator_aggregations" {
        for_each = can(each.value.of) ? [each.value] : []
        content {
          alignment_period     = "${denominator_aggregations.value.over}s"
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
    content   = each.value.advice
  }

  alert_strategy {
    auto_close = "86400s"
  }
}
