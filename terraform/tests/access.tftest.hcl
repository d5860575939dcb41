# Who may do what: exactly this, and nothing on the whole project that a role on
# one resource can replace.
mock_provider "google" {
  source = "./tests/mocks"
}

variables {
  project_id        = "coldaisle-test"
  api_image         = "europe-west1-docker.pkg.dev/coldaisle-test/coldaisle/api@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
  function_archives = "tests/archives"
  gateway_sites     = ["hall-1"]
}

override_resource {
  target = module.function["ingest"].google_service_account.this
  values = { member = "serviceAccount:ingest" }
}

override_resource {
  target = module.function["detect"].google_service_account.this
  values = { member = "serviceAccount:detect" }
}

override_resource {
  target = module.function["storealert"].google_service_account.this
  values = { member = "serviceAccount:storealert" }
}

override_resource {
  target = module.function["train"].google_service_account.this
  values = { member = "serviceAccount:train" }
}

override_resource {
  target = module.api.google_service_account.api
  values = { member = "serviceAccount:api" }
}

override_resource {
  target = module.api.google_service_account.migrate
  values = { member = "serviceAccount:migrate" }
}

override_resource {
  target = module.gateways.google_service_account.enrolled
  values = { member = "serviceAccount:gateways", name = "projects/coldaisle-test/serviceAccounts/gateways@coldaisle-test.iam.gserviceaccount.com" }
}

run "rights" {
  assert {
    condition = toset([for right in google_pubsub_topic_iam_member.publisher : "${right.member} ${right.role} ${right.topic}"]) == toset([
      "serviceAccount:detect roles/pubsub.publisher alerts",
      "serviceAccount:api roles/pubsub.publisher model-retraining",
      "serviceAccount:api roles/pubsub.publisher data",
    ])
    error_message = "Detection publishes alerts, the API asks for training and sends drills, and nobody else publishes."
  }

  assert {
    condition = { for right in google_bigquery_table_iam_member.readings : right.member => right.role } == {
      "serviceAccount:ingest" = "roles/bigquery.dataEditor"
      "serviceAccount:train"  = "roles/bigquery.dataViewer"
      "serviceAccount:api"    = "roles/bigquery.dataViewer"
    }
    error_message = "Ingest writes readings, API and training read them, and nobody else sees them."
  }

  assert {
    condition = { for right in google_storage_bucket_iam_member.models : right.member => right.role } == {
      "serviceAccount:train"  = "roles/storage.objectUser"
      "serviceAccount:detect" = "roles/storage.objectViewer"
      "serviceAccount:api"    = "roles/storage.objectViewer"
    }
    error_message = "Training writes models, detection and API read them, and nobody else sees them."
  }

  assert {
    condition     = google_service_account_iam_member.push.role == "roles/iam.serviceAccountOpenIdTokenCreator" && google_service_account_iam_member.push.member == local.pubsub_agent
    error_message = "Only Pub/Sub may call in the name of the push account, and only with identity tokens."
  }

  assert {
    condition     = module.gateways.roles == { "hall-1" = { topic = "data", role = "roles/pubsub.publisher" } }
    error_message = "A gateway may publish to topic data and nothing else."
  }

  assert {
    condition = module.gateways.enrolled == {
      member = "serviceAccount:gateways"
      topic  = "data"
      role   = "roles/pubsub.publisher"
      tokens = {
        account = "projects/coldaisle-test/serviceAccounts/gateways@coldaisle-test.iam.gserviceaccount.com"
        role    = "roles/iam.serviceAccountTokenCreator"
        member  = "serviceAccount:api"
      }
    }
    error_message = "Enrolled gateways may publish to topic data and nothing else; the API makes tokens of their account, and of no other."
  }

  assert {
    condition     = length(google_service_account_iam_member.redeliver) == 0 && toset([for function in module.function : function.ingress]) == toset(["ALLOW_INTERNAL_ONLY"])
    error_message = "Where nobody redelivers the functions are closed to the internet."
  }

  assert {
    condition     = module.api.open
    error_message = "The API is not open to its customers."
  }
}

run "redelivery" {
  variables {
    redeliverers = ["user:anna@example.com"]
  }

  assert {
    condition     = { for right in google_service_account_iam_member.redeliver : right.member => right.role } == { "user:anna@example.com" = "roles/iam.serviceAccountTokenCreator" }
    error_message = "Who was named, and nobody else, acts as the account that redelivers."
  }

  assert {
    condition     = toset([for right in google_cloud_run_v2_service_iam_member.redeliver : "${right.role} ${right.name} ${right.member == google_service_account.redeliver.member}"]) == toset([for name in ["ingest", "detect", "storealert", "train"] : "roles/run.invoker ${name} true"])
    error_message = "The account that redelivers must be able to call every function, and do no more with it."
  }

  assert {
    condition = { for right in google_pubsub_subscription_iam_member.redeliver : right.subscription => right.role } == {
      "data-dead-letter"             = "roles/pubsub.subscriber"
      "alerts-dead-letter"           = "roles/pubsub.subscriber"
      "model-retraining-dead-letter" = "roles/pubsub.subscriber"
      "ingest"                       = "roles/pubsub.viewer"
      "detect"                       = "roles/pubsub.viewer"
      "storealert"                   = "roles/pubsub.viewer"
      "train"                        = "roles/pubsub.viewer"
    }
    error_message = "The account that redelivers takes from dead letters and only looks at the functions' subscriptions."
  }

  assert {
    condition     = toset([for function in module.function : function.ingress]) == toset(["ALLOW_ALL"])
    error_message = "The functions cannot be reached from where somebody redelivers."
  }
}

run "project_roles" {
  assert {
    condition     = toset([for right in google_project_iam_member.queries : "${right.member} ${right.role}"]) == toset(["serviceAccount:train roles/bigquery.jobUser", "serviceAccount:api roles/bigquery.jobUser", "serviceAccount:ingest roles/bigquery.jobUser"])
    error_message = "Who queries may run queries in the project, and nobody else."
  }

  assert {
    condition = alltrue([
      for right in concat(values(google_project_iam_member.database_client), values(google_project_iam_member.database_login)) :
      strcontains(one(right.condition).expression, "resource.name == \"projects/coldaisle-test/instances/coldaisle\"")
    ])
    error_message = "A role of Cloud SQL is not narrowed to the instance."
  }

  assert {
    condition     = toset([for right in google_project_iam_member.database_client : right.role]) == toset(["roles/cloudsql.client"]) && toset([for right in google_project_iam_member.database_login : right.role]) == toset(["roles/cloudsql.instanceUser"])
    error_message = "A component has another role of Cloud SQL than to connect and to log in."
  }

  assert {
    condition     = toset(keys(google_project_iam_member.database_client)) == toset(keys(module.database.users)) && keys(google_project_iam_member.database_client) == keys(google_project_iam_member.database_login)
    error_message = "Database users and those who may log in are not the same."
  }

  assert {
    condition = tomap(module.build.project_roles) == tomap({
      "roles/storage.objectViewer" = "resource.name.startsWith(\"projects/_/buckets/gcf-v2-sources-\")"
      "roles/logging.logWriter"    = ""
    })
    error_message = "The build has another role on the project than to read Cloud Functions' copies and to write logs."
  }
}

# The text of every module: what no plan shows, because it must not exist.
run "text" {
  command = plan

  module {
    source = "./tests/text"
  }

  assert {
    condition     = length([for name, text in output.files : name if length(regexall("roles/(owner|editor|viewer|browser)\"", text)) > 0]) == 0
    error_message = "A basic role is given."
  }

  assert {
    condition     = length([for name, text in output.files : name if length(regexall("\"allUsers\"|\"allAuthenticatedUsers\"", text)) > 0]) == 0
    error_message = "A right is given to everybody, which domain restricted sharing refuses."
  }

  assert {
    condition     = [for name, text in output.files : name if length(regexall("invoker_iam_disabled += true", text)) > 0] == ["modules/api/main.tf"]
    error_message = "Something else than the API is open to everybody."
  }

  assert {
    condition     = length([for name, text in output.files : name if length(regexall("resource \"google_[a-z0-9_]+_iam_(binding|policy)\"", text)) > 0]) == 0
    error_message = "A binding or policy takes away rights that somebody else, such as a service agent, was given."
  }

  assert {
    condition     = length([for name, text in output.files : name if length(regexall("resource \"(google_service_account_key|google_secret_manager_secret_version|random_password|google_storage_hmac_key)\"", text)) > 0]) == 0
    error_message = "A secret would be in the state."
  }

  assert {
    condition     = toset([for name, text in output.files : name if strcontains(text, "resource \"google_project_iam_member\"") && !startswith(name, "bootstrap/")]) == toset(["access.tf", "modules/build/main.tf"])
    error_message = "A role on the project is given outside of access.tf and modules/build, where these tests look."
  }

  assert {
    condition     = toset([for name, text in output.files : name if strcontains(text, "resource \"google_pubsub_subscription\"")]) == toset(["modules/function/main.tf", "modules/topic/main.tf"])
    error_message = "A subscription is made outside of the modules whose subscriptions have a dead letter, or are one."
  }

  assert {
    condition     = toset([for name, text in output.files : name if strcontains(text, "resource \"google_pubsub_topic_iam_member\"")]) == toset(["access.tf", "modules/function/main.tf", "modules/gateways/main.tf", "modules/topic/main.tf"])
    error_message = "A right to publish is given where these tests do not look."
  }

  assert {
    condition     = toset([for name, text in output.files : name if strcontains(text, "resource \"google_pubsub_topic\"")]) == toset(["modules/nightly/main.tf", "modules/topic/main.tf"])
    error_message = "A topic is made outside of the module that gives each one its dead letter, and is not that of the nightly checks."
  }

  assert {
    condition     = alltrue(flatten([for name, text in output.files : [for block in split("\nvariable ", "\n${text}") : strcontains(block, "description = ") if startswith(block, "\"")] if endswith(name, "variables.tf")]))
    error_message = "A variable has no description."
  }

  assert {
    condition     = alltrue(flatten([for name, text in output.files : [for block in split("\noutput ", "\n${text}") : strcontains(block, "description = ") if startswith(block, "\"")] if endswith(name, "outputs.tf")]))
    error_message = "An output has no description."
  }

  assert {
    condition = toset(flatten([
      for name, text in output.files : [
        for block in split("\nresource ", text) : regexall("\n  role +=  *\"(roles/[a-zA-Z.]+)\"", block) if startswith(block, "\"google_project_iam_member\"")
      ] if !startswith(name, "bootstrap/")
    ])) == toset(flatten(regexall("\"(roles/[a-zA-Z.]+)\"", regex("(?s)given = \\[[^]]*\\]", output.files["bootstrap/main.tf"]))))
    error_message = "The deployer may give other roles on the project than the components have: see given in bootstrap/main.tf."
  }
}
