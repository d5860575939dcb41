# Gateways stand in server rooms, outside of Google Cloud, and may publish to one
# topic and do nothing else.
#
# Enrolled gateways publish as one account, by short-lived tokens that the API hands
# out; their signatures tell them apart. No key of the account exists.
#
# Gateways that are not enrolled have an account for each site: a gateway that
# is stolen or sold is shut out alone.
#
# With a trust anchor, gateways prove who they are by certificates of the
# customer's own authority (workload identity federation), and no key exists
# that could be copied: the certificate's common name is the site.
locals {
  pool      = "coldaisle-gateways"
  federated = var.trust_anchor == null ? [] : [var.trust_anchor]
}

resource "google_service_account" "enrolled" {
  project      = var.project_id
  account_id   = "coldaisle-gateways"
  display_name = "Enrolled gateways"
  description  = "Publishes the readings of enrolled gateways."
}

resource "google_pubsub_topic_iam_member" "enrolled" {
  project = var.project_id
  topic   = var.topic
  role    = "roles/pubsub.publisher"
  member  = google_service_account.enrolled.member
}

# The API makes the tokens of this account, and of no other.
resource "google_service_account_iam_member" "enrolled" {
  service_account_id = google_service_account.enrolled.name
  role               = "roles/iam.serviceAccountTokenCreator"
  member             = var.token_maker
}

resource "google_service_account" "site" {
  for_each = var.sites

  project      = var.project_id
  account_id   = "gateway-${each.key}"
  display_name = "Gateway ${each.key}"
  description  = "Publishes the readings of site ${each.key}."
}

resource "google_pubsub_topic_iam_member" "publish" {
  for_each = google_service_account.site

  project = var.project_id
  topic   = var.topic
  role    = "roles/pubsub.publisher"
  member  = each.value.member
}

resource "google_iam_workload_identity_pool" "this" {
  count = length(local.federated)

  project                   = var.project_id
  workload_identity_pool_id = local.pool
  display_name              = "Gateways"
  description               = "Gateways that identify themselves by certificate."
}

resource "google_iam_workload_identity_pool_provider" "certificates" {
  count = length(local.federated)

  project                            = var.project_id
  workload_identity_pool_id          = google_iam_workload_identity_pool.this[0].workload_identity_pool_id
  workload_identity_pool_provider_id = "certificates"
  display_name                       = "Certificates"
  attribute_mapping                  = { "google.subject" = "assertion.subject.dn.cn" }

  x509 {
    trust_store {
      trust_anchors {
        pem_certificate = local.federated[0]
      }
    }
  }
}

# A certificate of a site acts as that site's account, and as no other.
resource "google_service_account_iam_member" "certificate" {
  for_each = length(local.federated) == 0 ? {} : google_service_account.site

  service_account_id = each.value.name
  role               = "roles/iam.workloadIdentityUser"
  member             = "principal://iam.googleapis.com/${google_iam_workload_identity_pool.this[0].name}/subject/${each.key}"
}
