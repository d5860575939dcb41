# The API, the domain in front of it, the gateways, and what watches all.
mock_provider "google" {
  source = "./tests/mocks"
}

run "api" {
  module {
    source = "./modules/api"
  }

  variables {
    project_id            = "coldaisle-test"
    region                = "europe-west1"
    image                 = "europe-west1-docker.pkg.dev/coldaisle-test/coldaisle/api@sha256:0123"
    environment           = { PROJECT_ID = "coldaisle-test" }
    migration_environment = { DB_NAME = "coldaisle" }
    secrets               = { SECRET_KEY = { secret = "SECRET_KEY", version = "3" } }
    size                  = { min_instances = 1, max_instances = 4, concurrency = 80, cpu = "1", memory = "512Mi" }
    network               = { network = "coldaisle", subnetwork = "coldaisle" }
    deletion_protection   = true
  }

  assert {
    condition = (
      google_cloud_run_v2_service.this[0].template[0].containers[0].startup_probe[0].http_get[0].path == "/health"
      && google_cloud_run_v2_service.this[0].template[0].containers[0].liveness_probe[0].http_get[0].path == "/health"
    )
    error_message = "Nobody looks whether an instance answers."
  }

  assert {
    condition = (
      google_cloud_run_v2_service.this[0].template[0].scaling[0].min_instance_count == 1
      && google_cloud_run_v2_service.this[0].template[0].scaling[0].max_instance_count == 4
      && google_cloud_run_v2_service.this[0].template[0].max_instance_request_concurrency == 80
    )
    error_message = "The API does not have the size that was asked for."
  }

  assert {
    condition     = google_cloud_run_v2_service.this[0].template[0].service_account == google_service_account.api.email && google_cloud_run_v2_job.migrate[0].template[0].template[0].service_account == google_service_account.migrate.email
    error_message = "API and migration must run as accounts of their own."
  }

  assert {
    condition = [
      for variable in google_cloud_run_v2_service.this[0].template[0].containers[0].env :
      one(one(variable.value_source).secret_key_ref) == { secret = "SECRET_KEY", version = "3" } if variable.name == "SECRET_KEY"
    ] == [true]
    error_message = "The secret does not come from Secret Manager, in the version that was asked for."
  }

  assert {
    condition     = google_cloud_run_v2_job.migrate[0].template[0].template[0].containers[0].args == tolist(["migrate"]) && google_cloud_run_v2_job.migrate[0].template[0].template[0].containers[0].image == google_cloud_run_v2_service.this[0].template[0].containers[0].image
    error_message = "The migration is not that of the API's own image."
  }

  assert {
    condition     = [for variable in google_cloud_run_v2_job.migrate[0].template[0].template[0].containers[0].env : variable.name] == ["DB_NAME"]
    error_message = "The migration sees more than the database, or a secret."
  }

  assert {
    condition     = google_secret_manager_secret_iam_member.api["SECRET_KEY"].role == "roles/secretmanager.secretAccessor" && google_secret_manager_secret_iam_member.api["SECRET_KEY"].member == google_service_account.api.member
    error_message = "The API, and it alone, may read its secret."
  }

  assert {
    condition     = google_cloud_run_v2_service.this[0].invoker_iam_disabled && google_cloud_run_v2_service.this[0].ingress == "INGRESS_TRAFFIC_ALL"
    error_message = "The API is not open to its customers."
  }

  assert {
    condition     = [for target in google_cloud_run_v2_service.this[0].traffic : "${target.type} ${target.percent}"] == ["TRAFFIC_TARGET_ALLOCATION_TYPE_LATEST 100"]
    error_message = "After a roll-back, which names a revision, the next release would get no requests."
  }

  assert {
    condition     = google_cloud_run_v2_service.this[0].deletion_protection && google_cloud_run_v2_service.this[0].template[0].vpc_access[0].egress == "PRIVATE_RANGES_ONLY"
    error_message = "The API can be deleted, or does not reach private addresses."
  }
}

run "api_without_an_image" {
  module {
    source = "./modules/api"
  }

  variables {
    project_id            = "coldaisle-test"
    region                = "europe-west1"
    image                 = ""
    environment           = {}
    migration_environment = {}
    secrets               = {}
    size                  = { min_instances = 1, max_instances = 4, concurrency = 80, cpu = "1", memory = "512Mi" }
    deletion_protection   = true
  }

  assert {
    condition     = length(google_cloud_run_v2_service.this) == 0 && output.open == null && output.uri == null
    error_message = "There is a service without an image."
  }
}

run "domain" {
  module {
    source = "./modules/domain"
  }

  variables {
    project_id = "coldaisle-test"
    region     = "europe-west1"
    domain     = "climate.example.com"
    service    = "api"
  }

  assert {
    condition     = google_compute_managed_ssl_certificate.this.managed[0].domains == tolist(["climate.example.com"]) && google_compute_global_forwarding_rule.https.port_range == "443"
    error_message = "The domain has no certificate."
  }

  assert {
    condition     = google_compute_url_map.redirect.default_url_redirect[0].https_redirect && google_compute_global_forwarding_rule.http.target == google_compute_target_http_proxy.redirect.id
    error_message = "Plain http is not sent to https."
  }

  assert {
    condition     = google_compute_region_network_endpoint_group.this.cloud_run[0].service == "api"
    error_message = "The load balancer does not lead to the API."
  }
}

run "gateways_with_keys" {
  module {
    source = "./modules/gateways"
  }

  variables {
    project_id  = "coldaisle-test"
    topic       = "data"
    token_maker = "serviceAccount:api"
    sites       = ["hall-1", "hall-2"]
  }

  assert {
    condition     = toset([for right in google_pubsub_topic_iam_member.publish : "${right.role} ${right.topic}"]) == toset(["roles/pubsub.publisher data"]) && length(google_pubsub_topic_iam_member.publish) == 2
    error_message = "A gateway may publish to topic data and nothing else."
  }

  assert {
    condition     = google_service_account.site["hall-1"].account_id == "gateway-hall-1" && length(google_iam_workload_identity_pool.this) == 0
    error_message = "Each site has its own account, and without a trust anchor nothing else."
  }
}

run "gateways_with_certificates" {
  module {
    source = "./modules/gateways"
  }

  variables {
    project_id   = "coldaisle-test"
    topic        = "data"
    token_maker  = "serviceAccount:api"
    sites        = ["hall-1", "hall-2"]
    trust_anchor = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
  }

  assert {
    condition     = google_iam_workload_identity_pool_provider.certificates[0].attribute_mapping == tomap({ "google.subject" = "assertion.subject.dn.cn" })
    error_message = "A certificate's common name must say which site it is."
  }

  assert {
    condition     = google_service_account_iam_member.certificate["hall-1"].role == "roles/iam.workloadIdentityUser" && endswith(google_service_account_iam_member.certificate["hall-1"].member, "/subject/hall-1") && startswith(google_service_account_iam_member.certificate["hall-1"].member, "principal://")
    error_message = "A certificate acts as another account than its site's."
  }
}

run "monitoring" {
  module {
    source = "./modules/monitoring"
  }

  variables {
    project_id           = "coldaisle-test"
    emails               = ["one@example.com"]
    functions            = ["detect", "ingest"]
    ingest               = "ingest"
    dead_letters         = ["data-dead-letter", "alerts-dead-letter"]
    data_topic           = "data"
    api                  = "api"
    uptime_check_enabled = true
    host                 = "api-abc123-ew.a.run.app"
    database             = "coldaisle"
    max_connections      = 200
    readings_expected    = true
    thresholds           = { function_errors = 10, unacked_seconds = 300, api_error_share = 0.02, api_latency_ms = 2000, disk_share = 0.8 }
  }

  assert {
    condition = keys(google_monitoring_alert_policy.this) == [
      "api_errors", "api_latency", "database_connections", "database_disk", "dead_letter", "function_errors", "messages_refused", "no_readings", "oldest_unacked", "readings_clamped", "uptime",
    ]
    error_message = "Something is not watched."
  }

  assert {
    condition     = alltrue([for policy in google_monitoring_alert_policy.this : policy.notification_channels == tolist([google_monitoring_notification_channel.email["one@example.com"].name]) && length(policy.documentation[0].content) > 40])
    error_message = "An alert reaches nobody, or does not say what to do."
  }

  assert {
    condition     = google_monitoring_alert_policy.this["dead_letter"].conditions[0].condition_threshold[0].threshold_value == 0 && strcontains(google_monitoring_alert_policy.this["dead_letter"].conditions[0].condition_threshold[0].filter, "full_match(\"data-dead-letter|alerts-dead-letter\")")
    error_message = "One message in a dead letter must be enough."
  }

  assert {
    condition = (
      strcontains(google_monitoring_alert_policy.this["messages_refused"].conditions[0].condition_threshold[0].filter, "metric.type = \"logging.googleapis.com/user/coldaisle/dead_letters\"")
      && keys(google_logging_metric.dead_letters.label_extractors) == sort([for label in google_logging_metric.dead_letters.metric_descriptor[0].labels : label.key])
      && google_monitoring_alert_policy.this["messages_refused"].conditions[0].condition_threshold[0].aggregations[0].group_by_fields == tolist(["metric.labels.function", "metric.labels.reason"])
    )
    error_message = "Dead letters are not counted by function and reason."
  }

  assert {
    condition     = google_monitoring_alert_policy.this["no_readings"].conditions[0].condition_threshold[0].evaluation_missing_data == "EVALUATION_MISSING_DATA_ACTIVE" && google_monitoring_alert_policy.this["no_readings"].conditions[0].condition_threshold[0].comparison == "COMPARISON_LT"
    error_message = "Silence must count as trouble."
  }

  assert {
    condition     = strcontains(google_monitoring_alert_policy.this["api_errors"].conditions[0].condition_threshold[0].denominator_filter, "service_name = \"api\"") && google_monitoring_alert_policy.this["api_latency"].conditions[0].condition_threshold[0].denominator_filter == null
    error_message = "Errors of the API must be counted as a share of its requests."
  }

  assert {
    condition     = alltrue([for policy in google_monitoring_alert_policy.this : strcontains(policy.conditions[0].condition_threshold[0].filter, "resource.type = ") && strcontains(policy.conditions[0].condition_threshold[0].filter, "metric.type = ")])
    error_message = "Cloud Monitoring wants both a metric and a resource in a filter."
  }

  assert {
    condition     = google_monitoring_uptime_check_config.api[0].http_check[0].path == "/health" && google_monitoring_uptime_check_config.api[0].http_check[0].use_ssl && google_monitoring_uptime_check_config.api[0].monitored_resource[0].labels.host == "api-abc123-ew.a.run.app"
    error_message = "Nobody looks from outside whether the API answers."
  }

  assert {
    condition     = length(jsondecode(google_monitoring_dashboard.this.dashboard_json).mosaicLayout.tiles) == 11 && alltrue([for tile in jsondecode(google_monitoring_dashboard.this.dashboard_json).mosaicLayout.tiles : try(tile.xPos, 0) + tile.width <= 12])
    error_message = "The dashboard does not fit its grid."
  }
}

run "budget" {
  module {
    source = "./modules/budget"
  }

  variables {
    project_id      = "coldaisle-test"
    project_number  = "123456789012"
    billing_account = "012345-6789AB-CDEF01"
    monthly         = 200
    channels        = ["projects/coldaisle-test/notificationChannels/1"]
  }

  assert {
    condition     = google_billing_budget.this.amount[0].specified_amount[0].units == "200" && google_billing_budget.this.budget_filter[0].projects == toset(["projects/123456789012"])
    error_message = "The budget is another, or another project's."
  }

  assert {
    condition     = anytrue([for rule in google_billing_budget.this.threshold_rules : rule.spend_basis == "FORECASTED_SPEND"])
    error_message = "Nobody is warned before the money is spent."
  }
}
