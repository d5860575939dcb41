variable "project_id" {
  description = "Project of the secret."
  type        = string
}

variable "name" {
  description = "Name of the secret."
  type        = string
}

variable "labels" {
  description = "Labels of the secret."
  type        = map(string)
  default     = {}
}
