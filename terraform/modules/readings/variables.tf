variable "project_id" {
  description = "Project of the table."
  type        = string
}

variable "location" {
  description = "Region or multi-region that keeps the readings. It cannot be changed later."
  type        = string
}

variable "deletion_protection" {
  description = "Whether terraform refuses to delete the table."
  type        = bool
}

variable "labels" {
  description = "Labels of dataset and table."
  type        = map(string)
  default     = {}
}
