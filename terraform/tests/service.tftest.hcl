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
    condition     = google_cloud_run_v2_job.migrate[0].template[0].template[0].containers[0].args == tolist(["migrate"]) && google_cloud_run_v2_job.migrate[0].template[0].template[0].max_retries == 0 && google_cloud_run_v2_job.migrate[0].template[0].template[0].containers[0].image == google_cloud_run_v2_service.this[0].template[0].containers[0].image
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
    condition     = [for target in google_cloud_run_v2_service.this[0].traffic : "${target.type} ${target.percent} ${target.tag}"] == ["TRAFFIC_TARGET_ALLOCATION_TYPE_LATEST 100 next"]
    error_message = "After a roll-back, which names a revision, the next release would get no requests."
  }

  assert {
    condition     = google_cloud_run_v2_service.this[0].deletion_protection && google_cloud_run_v2_service.this[0].template[0].vpc_access[0].egress == "PRIVATE_RANGES_ONLY"
    error_message = "The API can be deleted, or does not reach private addresses."
  }
}

run "api_in_a_release" {
  module {
    source = "./modules/api"
  }

  variables {
    project_id                = "coldaisle-test"
    region                    = "europe-west1"
    image                     = "europe-west1-docker.pkg.dev/coldaisle-test/coldaisle/api@sha256:0123"
    environment               = {}
    migration_environment     = {}
    secrets                   = {}
    size                      = { min_instances = 1, max_instances = 4, concurrency = 80, cpu = "1", memory = "512Mi" }
    traffic                   = { api-00001-abc = 90, api-00002-def = 10 }
    only_behind_load_balancer = true
    deletion_protection       = true
  }

  assert {
    condition     = output.traffic == { api-00001-abc = 90, api-00002-def = 10, next = 0 }
    error_message = "The newest revision gets requests before its smoke test, or has no address."
  }

  assert {
    condition     = google_cloud_run_v2_service.this[0].ingress == "INGRESS_TRAFFIC_INTERNAL_LOAD_BALANCER"
    error_message = "The API answers at two addresses."
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
    condition     = { for name, group in google_compute_region_network_endpoint_group.this : name => "${group.cloud_run[0].service} ${coalesce(group.cloud_run[0].tag, "-")}" } == { coldaisle = "api -", coldaisle-next = "api next" }
    error_message = "The load balancer does not lead to the API and to its newest revision."
  }

  assert {
    condition = (
      google_compute_url_map.this.default_service == google_compute_backend_service.this["coldaisle"].id
      && google_compute_url_map.this.path_matcher[0].default_service == google_compute_backend_service.this["coldaisle"].id
      && google_compute_url_map.this.path_matcher[0].route_rules[0].service == google_compute_backend_service.this["coldaisle-next"].id
      && google_compute_url_map.this.path_matcher[0].route_rules[0].match_rules[0].header_matches[0].header_name == "X-Coldaisle-Release"
      && google_compute_url_map.this.path_matcher[0].route_rules[0].match_rules[0].header_matches[0].exact_match == "next"
      && google_compute_url_map.this.path_matcher[0].route_rules[0].match_rules[0].prefix_match == "/"
      && one(google_compute_url_map.this.host_rule).hosts == toset(["climate.example.com"])
    )
    error_message = "A revision that no release has looked at gets requests."
  }
}

run "gateways" {
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
    condition     = google_service_account.site["hall-1"].account_id == "gateway-hall-1"
    error_message = "Each site has its own account."
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
    condition = {
      for key, threshold in { for key, policy in google_monitoring_alert_policy.this : key => policy.conditions[0].condition_threshold[0] } :
      key => "${regex("metric.type = \"([^\"]+)\"", threshold.filter)[0]} ${threshold.comparison} ${threshold.threshold_value} ${threshold.duration}"
      } == {
      api_errors           = "run.googleapis.com/request_count COMPARISON_GT 0.02 300s"
      api_latency          = "logging.googleapis.com/user/coldaisle/api_latency COMPARISON_GT 2 600s"
      database_connections = "cloudsql.googleapis.com/database/postgresql/num_backends COMPARISON_GT 180 300s"
      database_disk        = "cloudsql.googleapis.com/database/disk/utilization COMPARISON_GT 0.8 600s"
      dead_letter          = "pubsub.googleapis.com/subscription/num_undelivered_messages COMPARISON_GT 0 0s"
      function_errors      = "run.googleapis.com/request_count COMPARISON_GT 10 0s"
      gateway_clock        = "logging.googleapis.com/user/coldaisle/gateway_clock_off COMPARISON_GT 0 300s"
      hourly_failed        = "logging.googleapis.com/user/coldaisle/hourly_failed COMPARISON_GT 0 0s"
      messages_refused     = "logging.googleapis.com/user/coldaisle/dead_letters COMPARISON_GT 0 0s"
      no_readings          = "logging.googleapis.com/user/coldaisle/readings_stored COMPARISON_LT 1 900s"
      oldest_unacked       = "pubsub.googleapis.com/subscription/oldest_unacked_message_age COMPARISON_GT 300 300s"
      readings_clamped     = "logging.googleapis.com/user/coldaisle/readings_clamped COMPARISON_GT 0 600s"
      site_dark            = "logging.googleapis.com/user/coldaisle/site_dark COMPARISON_GT 0 0s"
      uptime               = "monitoring.googleapis.com/uptime_check/check_passed COMPARISON_LT 0.5 120s"
    }
    error_message = "Something is not watched, or an alert fires at another value or after another time than it should."
  }

  assert {
    condition = { for metric in [google_logging_metric.dead_letters, google_logging_metric.clamped, google_logging_metric.clock, google_logging_metric.hourly, google_logging_metric.dark, google_logging_metric.latency, google_logging_metric.stored] : metric.name => regex("jsonPayload.*", metric.filter) } == {
      "coldaisle/dead_letters"      = "jsonPayload.message=\"message dead-lettered\""
      "coldaisle/readings_clamped"  = "jsonPayload.readings_clamped>0"
      "coldaisle/gateway_clock_off" = "jsonPayload.message=\"a gateway's system clock is off\""
      "coldaisle/hourly_failed"     = "jsonPayload.message=\"hourly aggregates failed; retrying in a minute\""
      "coldaisle/api_latency"       = "jsonPayload.message=\"request\" AND httpRequest.requestUrl!=\"/api/v1/incidents/changes\""
      "coldaisle/site_dark"         = "jsonPayload.message=\"a site is dark\""
      "coldaisle/readings_stored"   = "jsonPayload.readings_stored>0"
    }
    error_message = "A metric counts other entries of the log than the components write."
  }

  assert {
    condition     = alltrue([for policy in google_monitoring_alert_policy.this : policy.notification_channels == tolist([google_monitoring_notification_channel.email["one@example.com"].name]) && length(policy.documentation[0].content) > 40])
    error_message = "An alert reaches nobody, or does not say what to do."
  }

  assert {
    condition     = google_monitoring_alert_policy.this["gateway_clock"].conditions[0].condition_threshold[0].aggregations[0].group_by_fields == tolist(["metric.labels.gateway"])
    error_message = "A gateway's wrong clock is not told, or not which gateway's."
  }

  assert {
    condition     = strcontains(google_monitoring_alert_policy.this["dead_letter"].conditions[0].condition_threshold[0].filter, "full_match(\"data-dead-letter|alerts-dead-letter\")")
    error_message = "A dead letter is not watched."
  }

  assert {
    condition = (
      keys(google_logging_metric.dead_letters.label_extractors) == sort([for label in google_logging_metric.dead_letters.metric_descriptor[0].labels : label.key])
      && google_monitoring_alert_policy.this["messages_refused"].conditions[0].condition_threshold[0].aggregations[0].group_by_fields == tolist(["metric.labels.function", "metric.labels.reason"])
    )
    error_message = "Dead letters are not counted by function and reason."
  }

  assert {
    condition     = google_monitoring_alert_policy.this["no_readings"].conditions[0].condition_threshold[0].evaluation_missing_data == "EVALUATION_MISSING_DATA_ACTIVE"
    error_message = "Silence must count as trouble."
  }

  assert {
    condition = { for key, policy in google_monitoring_alert_policy.this : policy.alert_strategy[0].auto_close => key... }["1800s"] == [
      "api_errors", "function_errors", "gateway_clock", "hourly_failed", "messages_refused", "readings_clamped", "site_dark"
    ]
    error_message = "an alert of events stays open for a day, and hides the next"
  }

  assert {
    condition     = strcontains(google_monitoring_alert_policy.this["api_errors"].conditions[0].condition_threshold[0].denominator_filter, "service_name = \"api\"") && google_monitoring_alert_policy.this["api_latency"].conditions[0].condition_threshold[0].denominator_filter == null
    error_message = "Errors of the API must be counted as a share of its requests."
  }

  assert {
    condition = (
      alltrue([for key in ["api_errors", "function_errors"] : strcontains(google_monitoring_alert_policy.this[key].conditions[0].condition_threshold[0].filter, "response_code_class = \"5xx\"")])
      && google_monitoring_alert_policy.this["api_latency"].conditions[0].condition_threshold[0].aggregations[0].per_series_aligner == "ALIGN_PERCENTILE_95"
      && google_logging_metric.latency.value_extractor == "EXTRACT(httpRequest.latency)" && contains(google_logging_metric.latency.bucket_options[0].explicit_buckets[0].bounds, 2)
      && google_monitoring_alert_policy.this["oldest_unacked"].conditions[0].condition_threshold[0].aggregations[0].group_by_fields == tolist(["resource.labels.subscription_id"])
    )
    error_message = "Other answers than faults are counted, or the slow requests hide among the others."
  }

  assert {
    condition     = alltrue([for policy in google_monitoring_alert_policy.this : strcontains(policy.conditions[0].condition_threshold[0].filter, "resource.type = ")])
    error_message = "Cloud Monitoring wants both a metric and a resource in a filter."
  }

  assert {
    condition = (
      { for key, objective in google_monitoring_slo.this : key => try(objective.request_based_sli[0].distribution_cut[0].range[0].max, "ratio") } == { probe_late = 10, alerts_late = 30, api_unavailable = "ratio" }
      && alltrue([for objective in google_monitoring_slo.this : objective.goal == 0.999 && objective.rolling_period_days == 28])
    )
    error_message = "The objectives are not 99.9 % within 10 and 30 seconds, and of requests."
  }

  assert {
    condition = (
      strcontains(google_monitoring_slo.this["probe_late"].request_based_sli[0].distribution_cut[0].distribution_filter, "user/coldaisle/probe_lateness")
      && strcontains(google_monitoring_slo.this["alerts_late"].request_based_sli[0].distribution_cut[0].distribution_filter, "user/coldaisle/alert_lateness")
      && { for key, metric in google_logging_metric.probe : key => "${metric.value_extractor} ${strcontains(metric.filter, "probe alerted")}" } == { probe_lateness = "EXTRACT(jsonPayload.lateness_s) false", alert_lateness = "EXTRACT(jsonPayload.lateness_s) true" }
      && alltrue([for metric in google_logging_metric.probe : length(setintersection(metric.bucket_options[0].explicit_buckets[0].bounds, [10, 30])) == 2])
    )
    error_message = "What is measured is not what ingest and storealert log, or no bucket ends where an objective does."
  }

  assert {
    condition = (
      strcontains(google_monitoring_slo.this["api_unavailable"].request_based_sli[0].good_total_ratio[0].bad_service_filter, "service_name = \"api\"")
      && strcontains(google_monitoring_slo.this["api_unavailable"].request_based_sli[0].good_total_ratio[0].bad_service_filter, "\"5xx\"")
      && !strcontains(google_monitoring_slo.this["api_unavailable"].request_based_sli[0].good_total_ratio[0].total_service_filter, "5xx")
    )
    error_message = "The API's availability is not the share of requests without a fault."
  }

  assert {
    condition = (
      { for key, policy in google_monitoring_alert_policy.objective : key => { for condition in policy.conditions : condition.condition_threshold[0].filter => condition.condition_threshold[0].threshold_value if length(condition.condition_threshold) > 0 } } == {
        for key, burn in { probe_late = { "3600s" = 40, "86400s" = 4 }, alerts_late = { "3600s" = 40, "86400s" = 4 }, api_unavailable = { "3600s" = 14.4, "21600s" = 6 } } :
        key => { for window, rate in burn : "select_slo_burn_rate(\"${google_monitoring_slo.this[key].name}\", \"${window}\")" => rate }
      }
      && { for key, policy in google_monitoring_alert_policy.objective : key => [for condition in policy.conditions : condition.condition_absent[0].duration if length(condition.condition_absent) > 0] } == { probe_late = ["300s"], alerts_late = ["300s"], api_unavailable = [] }
      && alltrue([for key, policy in google_monitoring_alert_policy.objective : length(policy.notification_channels) == 1 && endswith(policy.documentation[0].content, "\n\nPlaybook: docs/playbooks/${key}.md")])
    )
    error_message = "A budget that burns, or a probe that does not come, raises no alert, or the alert names no playbook."
  }

  assert {
    condition     = alltrue([for key, policy in google_monitoring_alert_policy.this : endswith(policy.documentation[0].content, "\n\nPlaybook: docs/playbooks/${key}.md")])
    error_message = "An alert's text does not name its playbook."
  }

  assert {
    condition = (
      google_monitoring_alert_policy.this["site_dark"].conditions[0].condition_threshold[0].aggregations[0].group_by_fields == tolist(["metric.labels.gateway", "metric.labels.customer"])
      && google_logging_metric.dark.label_extractors == tomap({ gateway = "EXTRACT(jsonPayload.gateway)", customer = "EXTRACT(jsonPayload.customer_id)" })
    )
    error_message = "A dark site is not told, or not which gateway and customer."
  }

  assert {
    condition     = google_monitoring_uptime_check_config.api[0].http_check[0].path == "/health" && google_monitoring_uptime_check_config.api[0].http_check[0].use_ssl && google_monitoring_uptime_check_config.api[0].content_matchers[0].content == "\"healthy\"" && google_monitoring_uptime_check_config.api[0].monitored_resource[0].labels.host == "api-abc123-ew.a.run.app"
    error_message = "Nobody looks from outside whether the API answers."
  }

  assert {
    condition     = alltrue([for channel in google_monitoring_notification_channel.email : coalesce(channel.force_delete, false)])
    error_message = "Google deletes no channel that a policy names: an address could not be removed."
  }

  assert {
    condition     = !strcontains(google_monitoring_alert_policy.this["uptime"].conditions[0].condition_threshold[0].filter, "check_id")
    error_message = "Google deletes no check that a policy names: another domain could not be set."
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
    condition     = [for rule in google_billing_budget.this.threshold_rules : rule.threshold_percent] == [0.5, 0.9, 1, 1.2] && google_billing_budget.this.threshold_rules[3].spend_basis == "FORECASTED_SPEND" && google_billing_budget.this.all_updates_rule[0].monitoring_notification_channels == tolist(var.channels)
    error_message = "Nobody is warned before the money is spent."
  }
}

run "nightly" {
  module {
    source = "./modules/nightly"
  }

  variables {
    project_id = "coldaisle-test"
    region     = "europe-west1"
    repository = "projects/coldaisle-test/locations/europe-west1/connections/github/repositories/coldaisle"
    branch     = "main"
    channels   = ["projects/coldaisle-test/notificationChannels/1"]
  }

  assert {
    condition = (
      google_cloud_scheduler_job.this.schedule == "0 1 * * *"
      && google_cloud_scheduler_job.this.pubsub_target[0].topic_name == google_pubsub_topic.this.id
      && google_cloudbuild_trigger.this.pubsub_config[0].topic == google_pubsub_topic.this.id
      && strcontains(google_cloudbuild_trigger.this.build[0].step[0].script, "\n.ci/nightly\n")
      && google_cloudbuild_trigger.this.build[0].timeout == "36000s"
      && google_cloudbuild_trigger.this.source_to_build[0].ref == "refs/heads/main"
    )
    error_message = "Nothing runs the nightly checks."
  }

  assert {
    condition     = google_cloudbuild_trigger.this.service_account == "projects/coldaisle-test/serviceAccounts/coldaisle-checks@coldaisle-test.iam.gserviceaccount.com"
    error_message = "The nightly checks run as somebody who may more than write a log."
  }

  assert {
    condition     = strcontains(google_monitoring_alert_policy.failed.conditions[0].condition_threshold[0].filter, google_logging_metric.failed.name) && google_monitoring_alert_policy.failed.conditions[0].condition_threshold[0].threshold_value == 0 && strcontains(google_logging_metric.failed.filter, "build_trigger_id=\"${google_cloudbuild_trigger.this.trigger_id}\" AND textPayload=~\"^ERROR: (build step|context deadline exceeded)\"") && length(google_monitoring_alert_policy.failed.notification_channels) == 1
    error_message = "Nobody hears when they fail."
  }
}
