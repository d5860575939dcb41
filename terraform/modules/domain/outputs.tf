output "address" {
  description = "IPv4 address that the domain's A record must name."
  value       = google_compute_global_address.this.address
}
