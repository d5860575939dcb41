output "dataset" {
  description = "Dataset of the readings."
  value       = google_bigquery_dataset.this.dataset_id
}

output "table" {
  description = "Table of the readings."
  value       = google_bigquery_table.readings.table_id
}
