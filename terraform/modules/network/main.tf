# The private network between the database and its clients. Only traffic to
# private addresses takes it; calls to Google's APIs go their usual way.
resource "google_compute_network" "this" {
  project                 = var.project_id
  name                    = "coldaisle"
  description             = "Between the metadata database and the functions and the API."
  auto_create_subnetworks = false
}

# Every instance of a function or of the API takes addresses from it, two each
# while a revision replaces another.
resource "google_compute_subnetwork" "this" {
  project                  = var.project_id
  region                   = var.region
  name                     = "coldaisle"
  network                  = google_compute_network.this.id
  ip_cidr_range            = var.subnet_range
  private_ip_google_access = true
}

# Addresses that are left to Google for the database, on its side of a peering.
resource "google_compute_global_address" "services" {
  project       = var.project_id
  name          = "coldaisle-services"
  network       = google_compute_network.this.id
  purpose       = "VPC_PEERING"
  address_type  = "INTERNAL"
  prefix_length = 20
}

resource "google_service_networking_connection" "this" {
  network                 = google_compute_network.this.id
  service                 = "servicenetworking.googleapis.com"
  reserved_peering_ranges = [google_compute_global_address.services.name]

  # Google refuses to end a peering for hours after the last database in it has
  # gone; a tear-down leaves it to the network's own deletion.
  deletion_policy = "ABANDON"
}
