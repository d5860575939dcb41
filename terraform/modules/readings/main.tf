# The time-series table. Readings are kept for ever: no partition expires.
resource "google_bigquery_dataset" "this" {
  project                    = var.project_id
  dataset_id                 = "sensor_data"
  location                   = var.location
  description                = "Readings of temperature and humidity."
  max_time_travel_hours      = "168"
  delete_contents_on_destroy = false
  labels                     = var.labels
}

resource "google_bigquery_table" "readings" {
  project             = var.project_id
  dataset_id          = google_bigquery_dataset.this.dataset_id
  table_id            = "readings"
  description         = "One row a reading, as it was delivered: at least once. Its identity is (customer_id, node_id, timestamp, message_id)."
  schema              = file("${path.module}/schema.json")
  clustering          = ["node_id", "message_id"]
  deletion_protection = var.deletion_protection
  labels              = var.labels

  # A query that names no time would read, and bill, all years.
  require_partition_filter = true

  time_partitioning {
    type  = "DAY"
    field = "timestamp"
  }
}

# Aggregates by hour, for charts and statistics of weeks. A release of before reads
# them not, and one of now reads raw until the first run.
resource "google_bigquery_table" "hourly" {
  project             = var.project_id
  dataset_id          = google_bigquery_dataset.this.dataset_id
  table_id            = "${google_bigquery_table.readings.table_id}_hourly"
  description         = "One row for each node, channel and hour with readings, made by the scheduled query. It can be made again from the readings."
  schema              = file("${path.module}/hourly.json")
  clustering          = ["node_id"]
  deletion_protection = var.deletion_protection
  labels              = var.labels

  time_partitioning {
    type  = "MONTH"
    field = "hour"
  }
}

resource "google_bigquery_table" "runs" {
  project             = var.project_id
  dataset_id          = google_bigquery_dataset.this.dataset_id
  table_id            = "${google_bigquery_table.readings.table_id}_hourly_runs"
  description         = "One row for each run of the scheduled query. Empty both tables to have all aggregates made again."
  schema              = file("${path.module}/runs.json")
  deletion_protection = var.deletion_protection
  labels              = var.labels
}

# The scheduled query runs as this account, which may do nothing else.
resource "google_service_account" "hourly" {
  project      = var.project_id
  account_id   = "coldaisle-hourly"
  display_name = "Hourly aggregates"
  description  = "Summarises the readings by hour."
}

resource "google_bigquery_table_iam_member" "hourly" {
  for_each = {
    readings = { table = google_bigquery_table.readings.table_id, role = "roles/bigquery.dataViewer" }
    hourly   = { table = google_bigquery_table.hourly.table_id, role = "roles/bigquery.dataEditor" }
    runs     = { table = google_bigquery_table.runs.table_id, role = "roles/bigquery.dataEditor" }
  }

  project    = var.project_id
  dataset_id = google_bigquery_dataset.this.dataset_id
  table_id   = each.value.table
  role       = each.value.role
  member     = google_service_account.hourly.member
}

# To see when partitions were changed.
resource "google_bigquery_dataset_iam_member" "hourly" {
  project    = var.project_id
  dataset_id = google_bigquery_dataset.this.dataset_id
  role       = "roles/bigquery.metadataViewer"
  member     = google_service_account.hourly.member
}

resource "google_bigquery_data_transfer_config" "hourly" {
  project              = var.project_id
  location             = var.location
  display_name         = "Hourly aggregates of the readings"
  data_source_id       = "scheduled_query"
  schedule             = "every 3 hours"
  service_account_name = google_service_account.hourly.email

  params = {
    query = templatefile("${path.module}/hourly.sql", {
      project  = var.project_id
      dataset  = google_bigquery_dataset.this.dataset_id
      readings = google_bigquery_table.readings.table_id
      hourly   = google_bigquery_table.hourly.table_id
      runs     = google_bigquery_table.runs.table_id
    })
  }

  depends_on = [google_bigquery_table_iam_member.hourly, google_bigquery_dataset_iam_member.hourly]
}
