variable "project_id" {
  description = "Project of the accounts."
  type        = string
}

variable "topic" {
  description = "Name of the topic that gateways publish to."
  type        = string
}

variable "token_maker" {
  description = "IAM member that makes access tokens for enrolled gateways."
  type        = string
}

variable "sites" {
  description = "Sites that have a gateway."
  type        = set(string)
}
