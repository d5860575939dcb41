# One dashboard along the flow of data: readings published, messages waiting, the
# functions, the API, and the database.
locals {
  charts = [
    {
      title = "Readings published to topic ${var.data_topic}, per second"
      series = [{
        filter  = "${local.data} AND metric.type = \"pubsub.googleapis.com/topic/send_message_operation_count\""
        aligner = "ALIGN_RATE"
        reducer = "REDUCE_SUM"
        group   = []
      }]
    },
    {
      title = "Messages processed, per second, by function and answer"
      series = [{
        filter  = "${local.functions} AND metric.type = \"run.googleapis.com/request_count\""
        aligner = "ALIGN_RATE"
        reducer = "REDUCE_SUM"
        group   = ["resource.labels.service_name", "metric.labels.response_code_class"]
      }]
    },
    {
      title = "Age of the oldest waiting message, seconds"
      series = [{
        filter  = "${local.subscriptions} AND metric.type = \"pubsub.googleapis.com/subscription/oldest_unacked_message_age\""
        aligner = "ALIGN_MAX"
        reducer = "REDUCE_MAX"
        group   = ["resource.labels.subscription_id"]
      }]
    },
    {
      title = "Messages in the dead letters"
      series = [{
        filter  = "${local.dead_letters} AND metric.type = \"pubsub.googleapis.com/subscription/num_undelivered_messages\""
        aligner = "ALIGN_MAX"
        reducer = "REDUCE_SUM"
        group   = ["resource.labels.subscription_id"]
      }]
    },
    {
      title = "Dead letters, by function and reason, and those that Pub/Sub moved"
      series = [
        {
          filter  = "resource.type = \"cloud_run_revision\" AND metric.type = \"logging.googleapis.com/user/${google_logging_metric.dead_letters.name}\""
          aligner = "ALIGN_DELTA"
          reducer = "REDUCE_SUM"
          group   = ["metric.labels.function", "metric.labels.reason"]
        },
        {
          filter  = "${local.subscriptions} AND metric.type = \"pubsub.googleapis.com/subscription/dead_letter_message_count\""
          aligner = "ALIGN_DELTA"
          reducer = "REDUCE_SUM"
          group   = ["resource.labels.subscription_id"]
        },
      ]
    },
    {
      title = "API: requests per second, by answer"
      series = [{
        filter  = "${local.api} AND metric.type = \"run.googleapis.com/request_count\""
        aligner = "ALIGN_RATE"
        reducer = "REDUCE_SUM"
        group   = ["metric.labels.response_code_class"]
      }]
    },
    {
      title = "API: latency in seconds, median and 95th percentile"
      series = [for percentile in ["50", "95"] : {
        filter  = "${local.api} AND metric.type = \"logging.googleapis.com/user/${google_logging_metric.latency.name}\""
        aligner = "ALIGN_PERCENTILE_${percentile}"
        reducer = "REDUCE_MAX"
        group   = []
      }]
    },
    {
      title = "Instances, by service"
      series = [{
        filter  = "resource.type = \"cloud_run_revision\" AND metric.type = \"run.googleapis.com/container/instance_count\""
        aligner = "ALIGN_MAX"
        reducer = "REDUCE_SUM"
        group   = ["resource.labels.service_name"]
      }]
    },
    {
      title = "Database: processor and disk, share in use"
      series = [for resource in ["cpu", "disk"] : {
        filter  = "${local.database} AND metric.type = \"cloudsql.googleapis.com/database/${resource}/utilization\""
        aligner = "ALIGN_MEAN"
        reducer = "REDUCE_MAX"
        group   = []
      }]
    },
    {
      title = "Database: connections"
      series = [{
        filter  = "${local.database} AND metric.type = \"cloudsql.googleapis.com/database/postgresql/num_backends\""
        aligner = "ALIGN_MAX"
        reducer = "REDUCE_SUM"
        group   = []
      }]
    },
    {
      title = "BigQuery: bytes scanned and billed"
      series = [{
        filter  = "metric.type = \"bigquery.googleapis.com/query/statement_scanned_bytes_billed\""
        aligner = "ALIGN_DELTA"
        reducer = "REDUCE_SUM"
        group   = []
      }]
    },
  ]
}

# Cloud Monitoring drops what is zero or empty from what it is given, so that a
# plan would find it missing for ever: it is not written in the first place.
resource "google_monitoring_dashboard" "this" {
  project = var.project_id

  dashboard_json = jsonencode({
    displayName = "Coldaisle"
    mosaicLayout = {
      columns = 12
      tiles = [for i, chart in local.charts : merge(
        { for key, value in { xPos = 6 * (i % 2), yPos = 4 * floor(i / 2) } : key => value if value > 0 },
        {
          width  = 6
          height = 4
          widget = {
            title = chart.title
            xyChart = {
              dataSets = [for series in chart.series : {
                plotType = "LINE"
                timeSeriesQuery = {
                  timeSeriesFilter = {
                    filter = series.filter
                    aggregation = merge(
                      {
                        alignmentPeriod    = "60s"
                        perSeriesAligner   = series.aligner
                        crossSeriesReducer = series.reducer
                      },
                      { for key, value in { groupByFields = series.group } : key => value if length(value) > 0 },
                    )
                  }
                }
              }]
            }
          }
        },
      )]
    }
  })
}
