output "channels" {
  description = "Notification channels, by their full names."
  value       = local.channels
}

output "policies" {
  description = "Titles of the alert policies, by key."
  value       = { for name, policy in google_monitoring_alert_policy.this : name => policy.display_name }
}
