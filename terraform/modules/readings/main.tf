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
