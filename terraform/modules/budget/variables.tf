variable "project_id" {
  description = "Project that the budget is for."
  type        = string
}

variable "project_number" {
  description = "Number of that project."
  type        = string
}

variable "billing_account" {
  description = "Billing account that pays for the project."
  type        = string
}

variable "monthly" {
  description = "Expected cost of a month, whole units of the billing account's currency."
  type        = number
}

variable "channels" {
  description = "Notification channels, five at most; the billing account's administrators hear in any case."
  type        = list(string)
  default     = []
}
