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
  description = "What the images are."
  type        = string
}

variable "labels" {
  description = "Labels of the repository."
  type        = map(string)
  default     = {}
}
