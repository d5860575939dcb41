output "name" {
  description = "Name of the instance."
  value       = google_sql_database_instance.this.name
}

output "connection_name" {
  description = "Instance as connectors want it: project:region:name."
  value       = "${var.project_id}:${var.region}:${google_sql_database_instance.this.name}"
}

output "database" {
  description = "Name of the database in it."
  value       = google_sql_database.this.name
}

output "users" {
  description = "Database user of each component."
  value       = { for component, user in google_sql_user.component : component => user.name }
}
