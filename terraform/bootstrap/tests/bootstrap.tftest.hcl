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
    condition     = google_service_account.checks.account_id == "coldaisle-checks" && { for right in google_project_iam_member.checks : right.role => try(one(right.condition).expression, "") } == { "roles/logging.logWriter" = "", "roles/storage.objectViewer" = "resource.name.startsWith(\"projects/_/buckets/coldaisle-test_cloudbuild\")" }
    error_message = "What runs the checks may do more in the project than write logs and read the sources of a build."
  }

  assert {
    condition     = google_storage_bucket_iam_member.checked.bucket == "coldaisle-test-checked" && google_storage_bucket_iam_member.checked.role == "roles/storage.objectUser"
    error_message = "The checks cannot hand over what passed, or may do more with it."
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
