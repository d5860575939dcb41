# The modules of the pipeline by themselves: a topic with its dead letter, and a
# function with its subscription.
mock_provider "google" {
  source = "./tests/mocks"
}

# Contract 9.6: dead letters are kept for 31 days.
run "topic" {
  module {
    source = "./modules/topic"
  }

  variables {
    project_id   = "coldaisle-test"
    name         = "data"
    pubsub_agent = "serviceAccount:service-1@gcp-sa-pubsub.iam.gserviceaccount.com"
  }

  assert {
    condition     = google_pubsub_topic.this.name == "data" && google_pubsub_topic.dead_letter.name == "data-dead-letter"
    error_message = "The topics are not named after what they carry."
  }

  assert {
    condition     = google_pubsub_subscription.dead_letter.topic == output.dead_letter.topic && output.dead_letter.topic == "projects/coldaisle-test/topics/data-dead-letter" && google_pubsub_subscription.dead_letter.name == "data-dead-letter"
    error_message = "Nothing keeps what is in the dead letter."
  }

  assert {
    condition     = google_pubsub_subscription.dead_letter.message_retention_duration == "2678400s" && google_pubsub_subscription.dead_letter.retain_acked_messages && google_pubsub_subscription.dead_letter.expiration_policy[0].ttl == ""
    error_message = "The dead letter must keep messages as long as can be, and never expire."
  }

  assert {
    condition     = google_pubsub_topic_iam_member.forward.topic == "data-dead-letter" && google_pubsub_topic_iam_member.forward.role == "roles/pubsub.publisher" && google_pubsub_topic_iam_member.forward.member == var.pubsub_agent
    error_message = "Pub/Sub itself must be able to publish to the dead letter."
  }
}

run "topic_refuses_another_agent" {
  command = plan

  module {
    source = "./modules/topic"
  }

  variables {
    project_id   = "coldaisle-test"
    name         = "data"
    pubsub_agent = "allUsers"
  }

  expect_failures = [var.pubsub_agent]
}

# Contract 9.6: a hundred attempts, 10 to 600 seconds apart; undelivered messages are kept for 7 days.
run "function" {
  module {
    source = "./modules/function"
  }

  variables {
    project_id        = "coldaisle-test"
    region            = "europe-west1"
    name              = "ingest"
    description       = "Stores each reading."
    archive           = "tests/archives/ingest.zip"
    source_bucket     = "archives"
    repository        = "projects/coldaisle-test/locations/europe-west1/repositories/functions"
    build_account     = "projects/coldaisle-test/serviceAccounts/coldaisle-build@coldaisle-test.iam.gserviceaccount.com"
    environment       = { PROJECT_ID = "coldaisle-test" }
    size              = { min_instances = 1, max_instances = 7, concurrency = 80, cpu = "1", memory = "512Mi" }
    network           = { network = "coldaisle", subnetwork = "coldaisle" }
    topic             = "projects/coldaisle-test/topics/data"
    dead_letter_topic = "projects/coldaisle-test/topics/data-dead-letter"
    push_account      = "coldaisle-push@coldaisle-test.iam.gserviceaccount.com"
    pubsub_agent      = "serviceAccount:service-1@gcp-sa-pubsub.iam.gserviceaccount.com"
  }

  assert {
    condition     = google_cloudfunctions2_function.this.build_config[0].runtime == "go126" && google_cloudfunctions2_function.this.build_config[0].entry_point == "ingest"
    error_message = "The function is not built as what it is."
  }

  assert {
    condition     = length(google_cloudfunctions2_function.this.event_trigger) == 0
    error_message = "A trigger would make a second subscription, without a dead letter."
  }

  assert {
    condition = (
      google_cloudfunctions2_function.this.service_config[0].max_instance_request_concurrency == 80
      && google_cloudfunctions2_function.this.service_config[0].min_instance_count == 1
      && google_cloudfunctions2_function.this.service_config[0].max_instance_count == 7
    )
    error_message = "The function does not have the size that was asked for."
  }

  assert {
    condition     = google_cloudfunctions2_function.this.service_config[0].service_account_email == google_service_account.this.email && google_cloudfunctions2_function.this.service_config[0].ingress_settings == "ALLOW_INTERNAL_ONLY"
    error_message = "The function must run as its own account and be closed to the internet."
  }

  assert {
    condition     = google_cloudfunctions2_function.this.service_config[0].all_traffic_on_latest_revision
    error_message = "After a roll-back, which names a revision, the next release would get no messages."
  }

  assert {
    condition     = google_cloudfunctions2_function.this.service_config[0].direct_vpc_network_interface[0].subnetwork == "coldaisle" && google_cloudfunctions2_function.this.service_config[0].direct_vpc_egress == "VPC_EGRESS_PRIVATE_RANGES_ONLY"
    error_message = "The function does not reach private addresses."
  }

  assert {
    condition     = google_cloud_run_v2_service_iam_member.push.name == "ingest" && google_cloud_run_v2_service_iam_member.push.role == "roles/run.invoker" && google_cloud_run_v2_service_iam_member.push.member == "serviceAccount:coldaisle-push@coldaisle-test.iam.gserviceaccount.com"
    error_message = "The push account, and it alone, may call the function."
  }

  assert {
    condition = (
      google_pubsub_subscription.push.push_config[0].push_endpoint == google_cloudfunctions2_function.this.service_config[0].uri
      && google_pubsub_subscription.push.push_config[0].oidc_token[0].audience == google_cloudfunctions2_function.this.service_config[0].uri
      && google_pubsub_subscription.push.push_config[0].oidc_token[0].service_account_email == "coldaisle-push@coldaisle-test.iam.gserviceaccount.com"
    )
    error_message = "The subscription does not push to the function in the push account's name."
  }

  assert {
    condition     = google_pubsub_subscription.push.dead_letter_policy[0].max_delivery_attempts == 100 && google_pubsub_subscription.push.dead_letter_policy[0].dead_letter_topic == "projects/coldaisle-test/topics/data-dead-letter"
    error_message = "After a hundred attempts a message goes to the dead letter."
  }

  assert {
    condition     = google_pubsub_subscription.push.retry_policy[0].minimum_backoff == "10s" && google_pubsub_subscription.push.retry_policy[0].maximum_backoff == "600s" && google_pubsub_subscription.push.expiration_policy[0].ttl == ""
    error_message = "Attempts must come ever more slowly, and the subscription must never expire."
  }

  assert {
    condition     = google_pubsub_subscription.push.ack_deadline_seconds == 60 && google_pubsub_subscription.push.message_retention_duration == "604800s"
    error_message = "A step has a minute, a message a week."
  }

  assert {
    condition     = google_pubsub_subscription_iam_member.forward.subscription == "ingest" && google_pubsub_subscription_iam_member.forward.role == "roles/pubsub.subscriber" && google_pubsub_subscription_iam_member.forward.member == var.pubsub_agent
    error_message = "Pub/Sub must be able to take a message off the subscription when it moves it."
  }

  assert {
    condition     = google_pubsub_topic_iam_member.dead_letter.topic == "projects/coldaisle-test/topics/data-dead-letter" && google_pubsub_topic_iam_member.dead_letter.role == "roles/pubsub.publisher" && google_pubsub_topic_iam_member.dead_letter.member == google_service_account.this.member
    error_message = "The function must be able to publish to its own dead letter."
  }

  assert {
    condition     = google_storage_bucket_object.archive.name == "ingest/${filesha256("tests/archives/ingest.zip")}.zip" && google_cloudfunctions2_function.this.build_config[0].source[0].storage_source[0].object == google_storage_bucket_object.archive.name
    error_message = "The function is not deployed from the archive that is named by its content."
  }
}

run "function_without_a_network" {
  module {
    source = "./modules/function"
  }

  variables {
    project_id        = "coldaisle-test"
    region            = "europe-west1"
    name              = "ingest"
    description       = "Stores each reading."
    archive           = "tests/archives/ingest.zip"
    source_bucket     = "archives"
    repository        = "projects/coldaisle-test/locations/europe-west1/repositories/functions"
    build_account     = "projects/coldaisle-test/serviceAccounts/coldaisle-build@coldaisle-test.iam.gserviceaccount.com"
    environment       = {}
    size              = { min_instances = 0, max_instances = 1, concurrency = 80, cpu = "1", memory = "512Mi" }
    topic             = "projects/coldaisle-test/topics/data"
    dead_letter_topic = "projects/coldaisle-test/topics/data-dead-letter"
    push_account      = "coldaisle-push@coldaisle-test.iam.gserviceaccount.com"
    pubsub_agent      = "serviceAccount:service-1@gcp-sa-pubsub.iam.gserviceaccount.com"
  }

  assert {
    condition     = length(google_cloudfunctions2_function.this.service_config[0].direct_vpc_network_interface) == 0
    error_message = "Without a network there is nothing to be connected to."
  }
}

run "function_refuses_what_cannot_be" {
  command = plan

  module {
    source = "./modules/function"
  }

  variables {
    project_id        = "coldaisle-test"
    region            = "europe-west1"
    name              = "Ingest"
    description       = "Stores each reading."
    archive           = "tests/archives/none.zip"
    source_bucket     = "archives"
    repository        = "projects/coldaisle-test/locations/europe-west1/repositories/functions"
    build_account     = "projects/coldaisle-test/serviceAccounts/coldaisle-build@coldaisle-test.iam.gserviceaccount.com"
    environment       = {}
    size              = { min_instances = 0, max_instances = 1, concurrency = 80, cpu = "0.5", memory = "512Mi" }
    topic             = "projects/coldaisle-test/topics/data"
    dead_letter_topic = "projects/coldaisle-test/topics/data-dead-letter"
    push_account      = "coldaisle-push@coldaisle-test.iam.gserviceaccount.com"
    pubsub_agent      = "serviceAccount:service-1@gcp-sa-pubsub.iam.gserviceaccount.com"
  }

  expect_failures = [var.name, var.archive]
}
