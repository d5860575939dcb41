variable "project_id" {
  description = "Project of the network."
  type        = string
}

variable "region" {
  description = "Region of the subnetwork."
  type        = string
}

variable "subnet_range" {
  description = "Addresses of the subnetwork."
  type        = string

  validation {
    condition     = can(cidrhost(var.subnet_range, 0)) && try(tonumber(split("/", var.subnet_range)[1]) <= 26, false)
    error_message = "subnet_range must be an IPv4 range such as 10.8.0.0/22, /26 or larger."
  }
}
