variable "project_id" {
  description = "Project of the database."
  type        = string
}

variable "region" {
  description = "Region of the database."
  type        = string
}

variable "name" {
  description = "Name of the instance. The name of a deleted one cannot be used again for a week."
  type        = string
}

variable "size" {
  description = "Machine, edition, availability, most connections, disk (GB at first and at most), and how many daily backups are kept."
  type = object({
    tier             = string
    edition          = string
    highly_available = bool
    max_connections  = number
    disk_type        = string
    disk_gb          = number
    max_disk_gb      = number
    iops             = number
    retained_backups = number
  })
}

variable "network" {
  description = "Network in which the instance has its private address, by its full name; null gives it a public one."
  type        = string
  default     = null
}

variable "users" {
  description = "E-mail of the service account of each component that uses the database."
  type        = map(string)
}

variable "owner" {
  description = "The component among users that owns the schema: the migration."
  type        = string

  validation {
    condition     = contains(keys(var.users), var.owner)
    error_message = "owner must be one of users."
  }
}

variable "deletion_protection" {
  description = "Whether the instance refuses to be deleted, here and elsewhere."
  type        = bool
}

variable "labels" {
  description = "Labels of the instance."
  type        = map(string)
  default     = {}
}
