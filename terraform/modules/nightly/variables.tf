variable "project_id" {
  description = "Project whose Cloud Build runs the checks."
  type        = string
}

variable "region" {
  description = "Region of the trigger, and of its repository's connection."
  type        = string
}

variable "repository" {
  description = "Repository of Cloud Build that is checked, by its full name."
  type        = string
}

variable "branch" {
  description = "Branch that is checked."
  type        = string
}

variable "channels" {
  description = "Notification channels of the alert."
  type        = list(string)
}

variable "labels" {
  description = "Labels of the topic."
  type        = map(string)
  default     = {}
}
