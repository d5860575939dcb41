variable "project_id" {
  description = "Project of the bucket, whose name begins with the project's."
  type        = string
}

variable "name" {
  description = "What its name ends in, behind the project's."
  type        = string
  default     = "models"
}

variable "region" {
  description = "Region of the bucket."
  type        = string
}

variable "labels" {
  description = "Labels of the bucket."
  type        = map(string)
  default     = {}
}
