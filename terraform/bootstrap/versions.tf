terraform {
  required_version = ">= 1.11"

  # In the bucket that it makes: run/tools/release/bootstrap names it.
  backend "gcs" {
    prefix = "bootstrap"
  }

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = "~> 7.45"
    }
  }
}

provider "google" {
  project = var.project_id
  region  = var.region
}
