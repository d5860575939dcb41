variable "project_id" {
  description = "Project of the topic."
  type        = string
}

variable "name" {
  description = "Name of the topic. Its dead letter is named after it."
  type        = string
}

variable "pubsub_agent" {
  description = "Pub/Sub's own service agent, as an IAM member."
  type        = string

  validation {
    condition     = startswith(var.pubsub_agent, "serviceAccount:")
    error_message = "pubsub_agent must be an IAM member that begins with serviceAccount:."
  }
}

variable "labels" {
  description = "Labels of the topics and of the dead letter's subscription."
  type        = map(string)
  default     = {}
}
