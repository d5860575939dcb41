variable "project_id" {
  description = "Project of the functions."
  type        = string
}

variable "region" {
  description = "Region of the functions."
  type        = string
}

variable "labels" {
  description = "Labels of bucket and repository."
  type        = map(string)
  default     = {}
}
