output "id" {
  description = "Full name of the network, once private services can be reached through it."
  value       = "projects/${var.project_id}/global/networks/${google_compute_network.this.name}"
  depends_on  = [google_service_networking_connection.this]
}

output "egress" {
  description = "Names of network and subnetwork, as Cloud Run and the functions want them."
  value = {
    network    = google_compute_network.this.name
    subnetwork = google_compute_subnetwork.this.name
  }
}
