variable "project_id" {
  description = "Project of the function."
  type        = string
}

variable "region" {
  description = "Region of the function."
  type        = string
}

variable "name" {
  description = "Name of the function, of its subscription, and under which its entry point is registered."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,19}$", var.name))
    error_message = "name must be 1 to 20 lower-case letters, digits or hyphens and begin with a letter."
  }
}

variable "description" {
  description = "What the function does, in one sentence."
  type        = string
}

variable "archive" {
  description = "Path of the zip archive with the function's source."
  type        = string

  validation {
    condition     = fileexists(var.archive)
    error_message = "There is no archive at this path: make the archives with go run ./run/tools/release/archive."
  }
}

variable "source_bucket" {
  description = "Bucket that takes the archive."
  type        = string
}

variable "repository" {
  description = "Artifact Registry repository of the built image, as projects/P/locations/L/repositories/R."
  type        = string
}

variable "build_account" {
  description = "Service account that builds the function, as projects/P/serviceAccounts/E."
  type        = string
}

variable "environment" {
  description = "Environment of the function, by the names that its config reads."
  type        = map(string)
}

variable "size" {
  description = "Instances, messages at a time in one instance, CPUs and memory of an instance."
  type = object({
    min_instances = number
    max_instances = number
    concurrency   = number
    cpu           = string
    memory        = string
  })
}

variable "network" {
  description = "Names of the network and subnetwork through which private addresses are reached, or null."
  type        = object({ network = string, subnetwork = string })
  default     = null
}

variable "topic" {
  description = "Topic that feeds the function, by its full name."
  type        = string
}

variable "dead_letter_topic" {
  description = "Topic that takes the messages which the function refuses, or could not handle in 100 attempts, by its full name."
  type        = string
}

variable "internal" {
  description = "Whether calls from outside Google's network are turned away even with the right to call."
  type        = bool
  default     = true
}

variable "push_account" {
  description = "E-mail of the service account in whose name Pub/Sub calls the function."
  type        = string
}

variable "pubsub_agent" {
  description = "Pub/Sub's own service agent, as an IAM member."
  type        = string
}

variable "labels" {
  description = "Labels of the function and its subscription."
  type        = map(string)
  default     = {}
}
