# A domain of the customer's own in front of the API: an address, a certificate
# that Google renews, and a load balancer that also sends http to https.
locals {
  name = "coldaisle"
  tags = { (local.name) = null, "${local.name}-next" = "next" }
}

resource "google_compute_global_address" "this" {
  project = var.project_id
  name    = local.name
}

resource "google_compute_managed_ssl_certificate" "this" {
  project = var.project_id
  # A certificate cannot change its domain; another one comes before it goes.
  name = "${local.name}-${substr(sha256(var.domain), 0, 8)}"

  managed {
    domains = [var.domain]
  }

  lifecycle {
    create_before_destroy = true
  }
}

# The service, and its newest revision by the tag: a release looks at that one before it
# gets requests.
resource "google_compute_region_network_endpoint_group" "this" {
  for_each = local.tags

  project               = var.project_id
  region                = var.region
  name                  = each.key
  network_endpoint_type = "SERVERLESS"

  cloud_run {
    service = var.service
    tag     = each.value
  }
}

resource "google_compute_backend_service" "this" {
  for_each = local.tags

  project               = var.project_id
  name                  = each.key
  protocol              = "HTTPS"
  load_balancing_scheme = "EXTERNAL_MANAGED"

  backend {
    group = google_compute_region_network_endpoint_group.this[each.key].id
  }

  log_config {
    enable = false # Cloud Run logs every request
  }
}

resource "google_compute_url_map" "this" {
  project         = var.project_id
  name            = local.name
  default_service = google_compute_backend_service.this[local.name].id

  host_rule {
    hosts        = [var.domain]
    path_matcher = "release"
  }

  path_matcher {
    name            = "release"
    default_service = google_compute_backend_service.this[local.name].id

    route_rules {
      priority = 1
      service  = google_compute_backend_service.this["${local.name}-next"].id

      match_rules {
        prefix_match = "/"

        header_matches {
          header_name = "X-Coldaisle-Release"
          exact_match = "next"
        }
      }
    }
  }
}

resource "google_compute_url_map" "redirect" {
  project = var.project_id
  name    = "${local.name}-to-https"

  default_url_redirect {
    https_redirect         = true
    redirect_response_code = "MOVED_PERMANENTLY_DEFAULT"
    strip_query            = false
  }
}

resource "google_compute_target_https_proxy" "this" {
  project          = var.project_id
  name             = local.name
  url_map          = google_compute_url_map.this.id
  ssl_certificates = [google_compute_managed_ssl_certificate.this.id]
}

resource "google_compute_target_http_proxy" "redirect" {
  project = var.project_id
  name    = "${local.name}-to-https"
  url_map = google_compute_url_map.redirect.id
}

resource "google_compute_global_forwarding_rule" "https" {
  project               = var.project_id
  name                  = local.name
  load_balancing_scheme = "EXTERNAL_MANAGED"
  ip_address            = google_compute_global_address.this.id
  port_range            = "443"
  target                = google_compute_target_https_proxy.this.id
}

resource "google_compute_global_forwarding_rule" "http" {
  project               = var.project_id
  name                  = "${local.name}-to-https"
  load_balancing_scheme = "EXTERNAL_MANAGED"
  ip_address            = google_compute_global_address.this.id
  port_range            = "80"
  target                = google_compute_target_http_proxy.redirect.id
}
