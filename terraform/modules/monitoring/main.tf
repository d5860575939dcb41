# Who hears of trouble, and the check from outside that the API answers.
resource "google_monitoring_notification_channel" "email" {
  for_each = var.emails

  project      = var.project_id
  display_name = each.key
  type         = "email"
  labels       = { email_address = each.key }
  force_delete = true # an address that is removed goes before the policies that name it change
}

locals {
  channels = [for channel in google_monitoring_notification_channel.email : channel.name]

  # Filters of Cloud Monitoring for groups of resources.
  functions     = "resource.type = \"cloud_run_revision\" AND resource.labels.service_name = monitoring.regex.full_match(\"${join("|", var.functions)}\")"
  api           = "resource.type = \"cloud_run_revision\" AND resource.labels.service_name = \"${var.api}\""
  database      = "resource.type = \"cloudsql_database\" AND resource.labels.database_id = \"${var.project_id}:${var.database}\""
  dead_letters  = "resource.type = \"pubsub_subscription\" AND resource.labels.subscription_id = monitoring.regex.full_match(\"${join("|", var.dead_letters)}\")"
  subscriptions = "resource.type = \"pubsub_subscription\" AND resource.labels.subscription_id = monitoring.regex.full_match(\"${join("|", var.functions)}\")"
  data          = "resource.type = \"pubsub_topic\" AND resource.labels.topic_id = \"${var.data_topic}\""
}

# Functions log each message that they put into a dead letter, and why. What Pub/Sub
# moves there after the last attempt is a metric of its own.
resource "google_logging_metric" "dead_letters" {
  project     = var.project_id
  name        = "coldaisle/dead_letters"
  description = "Messages that a function put into its dead letter, by function and reason."
  filter      = "resource.type=\"cloud_run_revision\" AND severity=ERROR AND jsonPayload.message=\"message dead-lettered\""

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "INT64"
    unit        = "1"

    labels {
      key         = "function"
      value_type  = "STRING"
      description = "Function that refused the message."
    }

    labels {
      key         = "reason"
      value_type  = "STRING"
      description = "Reason, as in shared/push."
    }
  }

  label_extractors = {
    function = "EXTRACT(resource.labels.service_name)"
    reason   = "EXTRACT(jsonPayload.reason)"
  }
}

# Minutes in which ingest could not aggregate hours.
resource "google_logging_metric" "hourly" {
  project     = var.project_id
  name        = "coldaisle/hourly_failed"
  description = "Minutes in which the hourly aggregates failed."
  filter      = "jsonPayload.message=\"hourly aggregates failed; retrying in a minute\""

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "INT64"
    unit        = "1"
  }
}

# The functions write what they counted once a minute; an entry is a minute with
# readings that were dated anew.
resource "google_logging_metric" "clamped" {
  project     = var.project_id
  name        = "coldaisle/readings_clamped"
  description = "Minutes of an instance in which readings were dated anew, since they lay ahead of their publish time."
  filter      = "resource.type=\"cloud_run_revision\" AND jsonPayload.readings_clamped>0"

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "INT64"
    unit        = "1"
  }
}

# The API logs each status of an enrolled gateway that has to correct its system clock by
# more than five minutes.
resource "google_logging_metric" "clock" {
  project     = var.project_id
  name        = "coldaisle/gateway_clock_off"
  description = "Statuses of enrolled gateways whose system clock is more than five minutes off, by gateway."
  filter      = "resource.type=\"cloud_run_revision\" AND jsonPayload.message=\"a gateway's system clock is off\""

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "INT64"
    unit        = "1"

    labels {
      key         = "gateway"
      value_type  = "STRING"
      description = "Id of the gateway."
    }
  }

  label_extractors = {
    gateway = "EXTRACT(jsonPayload.gateway)"
  }
}

# The API logs each dark site every five minutes: an enrolled gateway, or a customer whose
# other gateways send nothing.
resource "google_logging_metric" "dark" {
  project     = var.project_id
  name        = "coldaisle/site_dark"
  description = "Looks at which a site had said nothing for 15 minutes, by gateway and customer."
  filter      = "resource.type=\"cloud_run_revision\" AND jsonPayload.message=\"a site is dark\""

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "INT64"
    unit        = "1"

    labels {
      key         = "gateway"
      value_type  = "STRING"
      description = "Id of the gateway, or not enrolled."
    }

    labels {
      key         = "customer"
      value_type  = "INT64"
      description = "Id of the customer."
    }
  }

  label_extractors = {
    gateway  = "EXTRACT(jsonPayload.gateway)"
    customer = "EXTRACT(jsonPayload.customer_id)"
  }
}

# Cloud Run's own latencies know no path. A watch asks for changes all the time and waits 25 s:
# where one runs, the slowest twentieth of the requests would always be its own.
resource "google_logging_metric" "latency" {
  project         = var.project_id
  name            = "coldaisle/api_latency"
  description     = "Seconds that the API took for a request, but for those that wait for changes, and for checks of its health."
  filter          = "resource.type=\"cloud_run_revision\" AND resource.labels.service_name=\"${var.api}\" AND jsonPayload.message=\"request\" AND httpRequest.requestUrl!=\"/api/v1/incidents/changes\""
  value_extractor = "EXTRACT(httpRequest.latency)"

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "DISTRIBUTION"
    unit        = "s"
  }

  bucket_options {
    explicit_buckets {
      bounds = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300]
    }
  }
}

# The probe calls ingest each minute, so that requests do not tell whether gateways do.
resource "google_logging_metric" "stored" {
  project     = var.project_id
  name        = "coldaisle/readings_stored"
  description = "Minutes of an instance in which readings were stored."
  filter      = "resource.type=\"cloud_run_revision\" AND jsonPayload.readings_stored>0"

  metric_descriptor {
    metric_kind = "DELTA"
    value_type  = "INT64"
    unit        = "1"
  }
}

resource "google_monitoring_uptime_check_config" "api" {
  count = var.uptime_check_enabled ? 1 : 0

  project      = var.project_id
  display_name = "Coldaisle API"
  period       = "60s"
  timeout      = "10s"

  http_check {
    path         = "/health"
    port         = 443
    use_ssl      = true
    validate_ssl = true
  }

  content_matchers {
    content = "\"healthy\""
    matcher = "CONTAINS_STRING"
  }

  monitored_resource {
    type = "uptime_url"
    labels = {
      project_id = var.project_id
      host       = var.host
    }
  }
}
