# How soon a reading can be read and raises its alert. Cloud Scheduler publishes one of the
# probe each minute. Ingest logs how long after its publish time it could be read, and
# storealert how long after it its alert would be stored. In an outage these entries come
# late, all of them: each probe counts once.
resource "google_logging_metric" "probe" {
  for_each = { probe_lateness = "probe readable", alert_lateness = "probe alerted" }

  project         = var.project_id
  name            = "coldaisle/${each.key}"
  description     = "Seconds from the publication of a reading of the probe until the log says ${each.value}."
  filter          = "resource.type=\"cloud_run_revision\" AND jsonPayload.message=\"${each.value}\""
  value_extractor = "EXTRACT(jsonPayload.lateness_s)"

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "DISTRIBUTION"
    unit        = "s"
  }

  bucket_options {
    explicit_buckets {
      bounds = [0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 600, 3600]
    }
  }
}

resource "google_monitoring_custom_service" "pipeline" {
  project      = var.project_id
  service_id   = "coldaisle-pipeline"
  display_name = "Coldaisle: from the gateway to the page"
}

# The objectives, each 99.9 % over 28 days. The text of each alert names its playbook,
# docs/playbooks/<key>.md.
#
#   within   seconds in which a probe has to come, of the metric
#   bad      filter of the requests that count against it, of those of total
#   burn     how many times too fast the budget burns when the alert fires, by window
#
# The budget is 40 probes, and the alert fires when three of an hour are late or six of 24
# hours. Of requests there are more: two per cent of the budget within an hour, or five
# within six hours.
locals {
  probe = { for key, metric in google_logging_metric.probe : key => "metric.type = \"logging.googleapis.com/user/${metric.name}\" AND resource.type = \"cloud_run_revision\"" }

  objectives = {
    probe_late = {
      title  = "Readings are late"
      slo    = "readable-within-10-s"
      name   = "Readings can be read within 10 s"
      metric = "probe_lateness"
      within = 10
      burn   = { "3600s" = 40, "86400s" = 4 }
      text   = "The service's own readings, published once a minute, cannot be read within 10 s. While they are over a minute late the page says so, and no sensor counts as silent."
    }
    alerts_late = {
      title  = "Alerts are late"
      slo    = "alerts-within-30-s"
      name   = "Alerts are stored within 30 s"
      metric = "alert_lateness"
      within = 30
      burn   = { "3600s" = 40, "86400s" = 4 }
      text   = "The service's own readings, published once a minute, do not raise their alert within 30 s. A room may be too hot, and nobody is told in time."
    }
    api_unavailable = {
      title = "The API misses its objective"
      slo   = "api-available"
      name  = "Requests are answered without a fault"
      total = "${local.api} AND metric.type = \"run.googleapis.com/request_count\""
      bad   = "${local.api} AND metric.type = \"run.googleapis.com/request_count\" AND metric.labels.response_code_class = \"5xx\""
      burn  = { "3600s" = 14.4, "21600s" = 6 }
      text  = "More requests are answered with 5xx than one in a thousand, for longer than the month allows."
    }
  }
}

resource "google_monitoring_slo" "this" {
  for_each = local.objectives

  project             = var.project_id
  service             = google_monitoring_custom_service.pipeline.service_id
  slo_id              = each.value.slo
  display_name        = each.value.name
  goal                = 0.999
  rolling_period_days = 28

  request_based_sli {
    dynamic "distribution_cut" {
      for_each = can(each.value.within) ? [each.value] : []
      content {
        distribution_filter = local.probe[distribution_cut.value.metric]

        range {
          min = 0
          max = distribution_cut.value.within
        }
      }
    }

    dynamic "good_total_ratio" {
      for_each = can(each.value.bad) ? [each.value] : []
      content {
        total_service_filter = good_total_ratio.value.total
        bad_service_filter   = good_total_ratio.value.bad
      }
    }
  }
}

# While no probe comes at all nothing is counted: that is a condition of its own.
resource "google_monitoring_alert_policy" "objective" {
  for_each = local.objectives

  project               = var.project_id
  display_name          = "Coldaisle: ${each.value.title}"
  combiner              = "OR"
  notification_channels = local.channels
  severity              = "ERROR"

  dynamic "conditions" {
    for_each = each.value.burn
    content {
      display_name = "Error budget, over ${conditions.key}"

      condition_threshold {
        filter          = "select_slo_burn_rate(\"${google_monitoring_slo.this[each.key].name}\", \"${conditions.key}\")"
        comparison      = "COMPARISON_GT"
        threshold_value = conditions.value
        duration        = "0s"

        trigger {
          count = 1
        }
      }
    }
  }

  dynamic "conditions" {
    for_each = can(each.value.within) ? [local.probe[each.value.metric]] : []
    content {
      display_name = "No probe for 5 minutes"

      condition_absent {
        filter   = conditions.value
        duration = "300s"

        aggregations {
          alignment_period     = "60s"
          per_series_aligner   = "ALIGN_DELTA"
          cross_series_reducer = "REDUCE_SUM"
        }

        trigger {
          count = 1
        }
      }
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "${each.value.text}\n\nPlaybook: docs/playbooks/${each.key}.md"
  }

  alert_strategy {
    auto_close = "86400s"
  }
}
