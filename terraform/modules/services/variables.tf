variable "project_id" {
  description = "Project in which the APIs are enabled."
  type        = string
}
