variable "project_id" {
  description = "Google Cloud project that takes the whole system."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project_id))
    error_message = "project_id must be 6 to 30 lower-case letters, digits or hyphens, begin with a letter and not end with a hyphen."
  }
}

variable "region" {
  description = "Region of the state's bucket."
  type        = string
  default     = "europe-west1"

  validation {
    condition     = can(regex("^[a-z]+-[a-z]+[0-9]+$", var.region))
    error_message = "region must be a Google Cloud region such as europe-west1."
  }
}

variable "operators" {
  description = "Who may deploy as the deployer, as IAM members such as user:anna@example.com or group:platform@example.com. It has no default, which would shut them out."
  type        = set(string)

  validation {
    condition     = alltrue([for member in var.operators : can(regex("^(user|group|serviceAccount|principal|principalSet):[^ ]+$", member))])
    error_message = "operators must be IAM members such as user:anna@example.com."
  }
}
