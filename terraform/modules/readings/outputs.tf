output "dataset" {
  description = "Dataset of the readings."
  value       = google_bigquery_dataset.this.dataset_id
}

output "table" {
  description = "Table of the readings."
  value       = google_bigquery_table.readings.table_id
}

output "aggregator" {
  description = "Account that makes the aggregates, as a member of policies."
  value       = google_service_account.hourly.member
}
