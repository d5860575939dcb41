variable "project_id" {
  description = "Project that is monitored."
  type        = string
}

variable "emails" {
  description = "Addresses that alerts are sent to."
  type        = set(string)
}

variable "functions" {
  description = "Names of the functions; their subscriptions have the same."
  type        = list(string)
}

variable "ingest" {
  description = "The function among them that stores readings."
  type        = string
}

variable "dead_letters" {
  description = "Subscriptions of the dead letters."
  type        = list(string)
}

variable "data_topic" {
  description = "Topic of readings."
  type        = string
}

variable "api" {
  description = "Cloud Run service of the API."
  type        = string
}

variable "host" {
  description = "Host at which the API answers."
  type        = string
}

variable "uptime_check_enabled" {
  description = "Whether there is an API to check from outside; known before its host is."
  type        = bool
}

variable "database" {
  description = "Cloud SQL instance."
  type        = string
}

variable "max_connections" {
  description = "Connections that the database takes."
  type        = number
}

variable "readings_expected" {
  description = "Whether there are gateways, so that the absence of readings raises an alert."
  type        = bool
}

variable "thresholds" {
  description = "Thresholds of the alerts: 5xx of a function in 5 minutes, age of the oldest message in seconds, share of 5xx of the API, its 95th percentile of latency in ms, share of the database's disk."
  type = object({
    function_errors = number
    unacked_seconds = number
    api_error_share = number
    api_latency_ms  = number
    disk_share      = number
  })
}
