variable "project_id" {
  description = "Project of the repository."
  type        = string
}

variable "region" {
  description = "Region of the repository."
  type        = string
}

variable "name" {
  description = "Name of the repository."
  type        = string
}

variable "description" {
  description = "Description of the repository."
  type        = string
}

variable "labels" {
  description = "Labels of the repository."
  type        = map(string)
  default     = {}
}
