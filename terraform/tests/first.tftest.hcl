mock_provider "google" {}
variables {
  project_id        = "coldaisle-test"
  api_image         = "europe-west1-docker.pkg.dev/coldaisle-test/coldaisle/api@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
  function_archives = "tests/archives"
}
run "plan" {
  command = apply
}
