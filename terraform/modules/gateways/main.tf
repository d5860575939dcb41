# Gateways stand in server rooms, outside of Google Cloud, and may publish to one
# topic and do nothing else.
#
# Enrolled gateways publish as one account, by short-lived tokens that the API hands
# out; their signatures tell them apart. No key of the account exists.
#
# Gateways that are not enrolled have an account for each site: a gateway that
# is stolen or sold is shut out alone. They act as it by any Google credential.
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
