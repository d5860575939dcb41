mock_provider "google" {}

override_resource {
  target = google_service_account.deployer
  values = {
    member = "serviceAccount:coldaisle-deployer@coldaisle-test.iam.gserviceaccount.com"
    name   = "projects/coldaisle-test/serviceAccounts/coldaisle-deployer@coldaisle-test.iam.gserviceaccount.com"
  }
}

variables {
  project_id = "coldaisle-test"
  operators  = ["user:anna@example.com"]
}

run "bootstrap" {
  assert {
    condition     = google_storage_bucket.state.versioning[0].enabled && google_storage_bucket.state.uniform_bucket_level_access && google_storage_bucket.state.public_access_prevention == "enforced"
    error_message = "The state is not kept, or not to itself."
  }

  assert {
    condition     = length([for right in google_project_iam_member.deployer : right.role if contains(["roles/owner", "roles/editor", "roles/resourcemanager.projectIamAdmin"], right.role)]) == 0
    error_message = "The deployer could make itself an owner."
  }

  assert {
    condition     = strcontains(google_project_iam_member.giver.condition[0].expression, "hasOnly([\"roles/bigquery.jobUser\", \"roles/cloudsql.client\", \"roles/cloudsql.instanceUser\", \"roles/logging.logWriter\", \"roles/storage.objectViewer\"])")
    error_message = "The deployer may give other roles than those that components have."
  }

  assert {
    condition     = contains([for service in google_project_service.this : service.service], "iamcredentials.googleapis.com")
    error_message = "An operator cannot act as the deployer: that is the API which gives out its tokens."
  }

  assert {
    condition     = contains([for right in google_project_iam_member.deployer : right.role], "roles/cloudbuild.builds.editor")
    error_message = "A release cannot see whether the one that holds the lock is over."
  }

  assert {
    condition     = strcontains(output.backend, "bucket = \"coldaisle-test-terraform-state\"")
    error_message = "The state would be kept elsewhere."
  }

  assert {
    condition     = google_service_account_iam_member.operator["user:anna@example.com"].role == "roles/iam.serviceAccountTokenCreator"
    error_message = "An operator cannot deploy."
  }
}

run "operator_that_is_nobody" {
  command = plan

  variables {
    operators = ["anna@example.com"]
  }

  expect_failures = [var.operators]
}
