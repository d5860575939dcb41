terraform {
  required_version = ">= 1.11"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = "~> 7.45"
    }
  }
}

# Where the state is kept stands in backend.tf, which the bootstrap writes: see
# README.md.

provider "google" {
  project = var.project_id
  region  = var.region

  # Budgets belong to a billing account, and a person's own credentials must say
  # which project asks.
  billing_project       = var.project_id
  user_project_override = true
}
