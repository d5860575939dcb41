# What Google would answer, where a random text would not do.
mock_resource "google_service_account" {
  defaults = {
    email  = "coldaisle-part@coldaisle-test.iam.gserviceaccount.com"
    member = "serviceAccount:coldaisle-part@coldaisle-test.iam.gserviceaccount.com"
    name   = "projects/coldaisle-test/serviceAccounts/coldaisle-part@coldaisle-test.iam.gserviceaccount.com"
  }
}

mock_resource "google_storage_bucket" {
  defaults = { project_number = 123456789012 }
}

mock_resource "google_cloud_run_v2_service" {
  defaults = {
    uri              = "https://api-abc123-ew.a.run.app"
    traffic_statuses = [{ tag = "next", uri = "https://next---api-abc123-ew.a.run.app" }]
  }
}
