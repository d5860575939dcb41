variable "project_id" {
  description = "Project of the service."
  type        = string
}

variable "region" {
  description = "Region of the service."
  type        = string
}

variable "image" {
  description = "Image of the service and the migration, by digest; empty for accounts alone, before there is an image."
  type        = string
}

variable "environment" {
  description = "Environment of the service, by the names that its config reads, without secrets."
  type        = map(string)
}

variable "migration_environment" {
  description = "Environment of the migration."
  type        = map(string)
}

variable "secrets" {
  description = "Secrets of the service by the variable that it reads them from: name in Secret Manager and version."
  type        = map(object({ secret = string, version = string }))
}

variable "size" {
  description = "Instances, requests at a time in one instance, CPUs and memory of an instance."
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

variable "deletion_protection" {
  description = "Whether terraform refuses to delete the service."
  type        = bool
}

variable "labels" {
  description = "Labels of service and job."
  type        = map(string)
  default     = {}
}

variable "traffic" {
  description = "Revisions that get the requests, with their percentages; empty for the newest."
  type        = map(number)
  default     = {}
}

variable "only_behind_load_balancer" {
  description = "Whether requests come by the load balancer alone, and none at the address of Cloud Run."
  type        = bool
  default     = false
}
