variable "project_id" {
  description = "Project of the load balancer."
  type        = string
}

variable "region" {
  description = "Region of the service."
  type        = string
}

variable "domain" {
  description = "Domain at which the service answers."
  type        = string
}

variable "service" {
  description = "Name of the Cloud Run service."
  type        = string
}
