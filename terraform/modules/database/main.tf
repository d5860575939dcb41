# The metadata database. Nobody logs in with a password: each component has a
# database user of its service account's name, and IAM says who may log in.
resource "google_sql_database_instance" "this" {
  project             = var.project_id
  region              = var.region
  name                = var.name
  database_version    = "POSTGRES_17"
  deletion_protection = var.deletion_protection

  settings {
    tier                        = var.size.tier
    edition                     = var.size.edition
    availability_type           = var.size.highly_available ? "REGIONAL" : "ZONAL"
    deletion_protection_enabled = var.deletion_protection # against the console and gcloud too
    disk_type                   = var.size.disk_type
    disk_size                   = var.size.disk_gb
    data_disk_provisioned_iops  = var.size.iops
    disk_autoresize             = true
    disk_autoresize_limit       = var.size.max_disk_gb
    # Only by a connector that authenticates by IAM, never straight to the port.
    connector_enforcement = "REQUIRED"
    user_labels           = var.labels

    ip_configuration {
      ipv4_enabled    = var.network == null
      private_network = var.network
      ssl_mode        = "ENCRYPTED_ONLY"
    }

    backup_configuration {
      enabled                        = true
      start_time                     = "02:00" # UTC
      point_in_time_recovery_enabled = true
      transaction_log_retention_days = 7

      backup_retention_settings {
        retained_backups = var.size.retained_backups
        retention_unit   = "COUNT"
      }
    }

    final_backup_config {
      enabled        = true
      retention_days = 30
    }

    maintenance_window {
      day          = 7 # Sunday
      hour         = 3 # UTC
      update_track = "stable"
    }

    insights_config {
      query_insights_enabled  = true
      record_application_tags = false
      record_client_address   = false
    }

    database_flags {
      name  = "cloudsql.iam_authentication"
      value = "on"
    }

    database_flags {
      name  = "max_connections"
      value = tostring(var.size.max_connections)
    }
  }

  lifecycle {
    # The disk has grown since: a plan would make the instance anew to have it smaller again.
    ignore_changes = [settings[0].disk_size]
  }
}

resource "google_sql_database" "this" {
  project  = var.project_id
  instance = google_sql_database_instance.this.name
  name     = "coldaisle"

  # Its tables belong to the migration's user, which goes with the instance.
  deletion_policy = "ABANDON"
}

locals {
  # PostgreSQL wants a service account's address without its last part.
  users = { for component, account in var.users : component => trimsuffix(account, ".gserviceaccount.com") }
}

# Systems of version 0.1.0 have the users under the former name.
moved {
  from = google_sql_user.part
  to   = google_sql_user.component
}

resource "google_sql_user" "component" {
  for_each = local.users

  project  = var.project_id
  instance = google_sql_database_instance.this.name
  name     = each.value
  type     = "CLOUD_IAM_SERVICE_ACCOUNT"

  # The migration owns the schema and gives the others their rights in it. They
  # begin with none.
  database_roles = each.key == var.owner ? ["cloudsqlsuperuser"] : null

  # A user who owns tables or has rights on them cannot be dropped.
  deletion_policy = "ABANDON"
}
