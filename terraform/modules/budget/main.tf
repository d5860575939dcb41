# Says when the project costs more than expected. It stops nothing.
resource "google_billing_budget" "this" {
  billing_account = var.billing_account
  display_name    = "Coldaisle in ${var.project_id}"

  budget_filter {
    projects        = ["projects/${var.project_number}"]
    calendar_period = "MONTH"
  }

  amount {
    specified_amount {
      units = tostring(var.monthly)
    }
  }

  dynamic "threshold_rules" {
    for_each = [0.5, 0.9, 1.0]
    content {
      threshold_percent = threshold_rules.value
    }
  }

  # By the look of it, more than planned before the month is over.
  threshold_rules {
    threshold_percent = 1.2
    spend_basis       = "FORECASTED_SPEND"
  }

  dynamic "all_updates_rule" {
    for_each = length(var.channels) == 0 ? [] : [var.channels]
    content {
      monitoring_notification_channels = all_updates_rule.value
    }
  }
}
