# One step of the pipeline: a function, the service account it runs as, and the
# push subscription that feeds it.
locals {
  # A function of this generation is a Cloud Run service of the same name.
  service = google_cloudfunctions2_function.this.name
}

resource "google_service_account" "this" {
  project      = var.project_id
  account_id   = "coldaisle-${var.name}"
  display_name = "Function ${var.name}"
  description  = var.description
}

# Named by content: the function is deployed again when its own archive has
# changed, and only then.
resource "google_storage_bucket_object" "archive" {
  bucket = var.source_bucket
  name   = "${var.name}/${filesha256(var.archive)}.zip"
  source = var.archive

  lifecycle {
    create_before_destroy = true
  }
}

resource "google_cloudfunctions2_function" "this" {
  project     = var.project_id
  location    = var.region
  name        = var.name
  description = var.description
  labels      = var.labels

  build_config {
    runtime           = "go126"
    entry_point       = var.name
    docker_repository = var.repository
    service_account   = var.build_account

    source {
      storage_source {
        bucket = google_storage_bucket_object.archive.bucket
        object = google_storage_bucket_object.archive.name
      }
    }
  }

  service_config {
    service_account_email            = google_service_account.this.email
    environment_variables            = var.environment
    min_instance_count               = var.size.min_instances
    max_instance_count               = var.size.max_instances
    max_instance_request_concurrency = var.size.concurrency
    available_cpu                    = var.size.cpu
    available_memory                 = var.size.memory
    timeout_seconds                  = 60
    ingress_settings                 = var.internal ? "ALLOW_INTERNAL_ONLY" : "ALLOW_ALL" # Pub/Sub of this project counts as internal
    all_traffic_on_latest_revision   = true

    direct_vpc_egress = var.network == null ? null : "VPC_EGRESS_PRIVATE_RANGES_ONLY"

    dynamic "direct_vpc_network_interface" {
      for_each = var.network[*]
      content {
        network    = direct_vpc_network_interface.value.network
        subnetwork = direct_vpc_network_interface.value.subnetwork
      }
    }
  }
}

resource "google_cloud_run_v2_service_iam_member" "push" {
  project  = var.project_id
  location = var.region
  name     = local.service
  role     = "roles/run.invoker"
  member   = "serviceAccount:${var.push_account}"
}

resource "google_pubsub_subscription" "push" {
  project = var.project_id
  name    = var.name
  topic   = var.topic
  labels  = var.labels

  # Longer than a step may take, which ends itself after 50 s.
  ack_deadline_seconds       = 60
  message_retention_duration = "604800s" # 7 days

  push_config {
    push_endpoint = google_cloudfunctions2_function.this.service_config[0].uri

    oidc_token {
      service_account_email = var.push_account
      audience              = google_cloudfunctions2_function.this.service_config[0].uri
    }
  }

  retry_policy {
    minimum_backoff = "10s"
    maximum_backoff = "600s"
  }

  # Patience for what may pass: with this backoff about 15 hours. What cannot pass
  # the function itself publishes to the same topic, and acknowledges.
  dead_letter_policy {
    dead_letter_topic     = var.dead_letter_topic
    max_delivery_attempts = 100
  }

  expiration_policy {
    ttl = "" # never
  }

  depends_on = [google_cloud_run_v2_service_iam_member.push]
}

# The function publishes what it refuses to its own dead letter.
resource "google_pubsub_topic_iam_member" "dead_letter" {
  project = var.project_id
  topic   = var.dead_letter_topic
  role    = "roles/pubsub.publisher"
  member  = google_service_account.this.member
}

# A message that Pub/Sub has moved to the dead letter is acknowledged here by
# Pub/Sub itself.
resource "google_pubsub_subscription_iam_member" "forward" {
  project      = var.project_id
  subscription = google_pubsub_subscription.push.name
  role         = "roles/pubsub.subscriber"
  member       = var.pubsub_agent
}
