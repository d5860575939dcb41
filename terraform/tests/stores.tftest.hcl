# Where data is kept: database, readings, models, images.
mock_provider "google" {
  source = "./tests/mocks"
}

run "database" {
  module {
    source = "./modules/database"
  }

  variables {
    project_id = "coldaisle-test"
    region     = "europe-west1"
    name       = "coldaisle"
    size = {
      tier             = "db-custom-1-3840"
      edition          = "ENTERPRISE"
      highly_available = true
      max_connections  = 200
      disk_type        = "PD_SSD"
      disk_gb          = 20
      max_disk_gb      = 100
      iops             = null
      retained_backups = 14
    }
    network = "projects/coldaisle-test/global/networks/coldaisle"
    users = {
      api     = "coldaisle-api@coldaisle-test.iam.gserviceaccount.com"
      migrate = "coldaisle-migrate@coldaisle-test.iam.gserviceaccount.com"
    }
    owner               = "migrate"
    deletion_protection = true
  }

  assert {
    condition     = !google_sql_database_instance.this.settings[0].ip_configuration[0].ipv4_enabled && google_sql_database_instance.this.settings[0].ip_configuration[0].private_network == var.network && google_sql_database_instance.this.settings[0].ip_configuration[0].ssl_mode == "ENCRYPTED_ONLY"
    error_message = "The database has a public address, or takes unencrypted connections."
  }

  assert {
    condition     = google_sql_database_instance.this.settings[0].backup_configuration[0].enabled && google_sql_database_instance.this.settings[0].backup_configuration[0].point_in_time_recovery_enabled && google_sql_database_instance.this.settings[0].backup_configuration[0].transaction_log_retention_days == 7
    error_message = "The database cannot be brought back to any moment of the last week."
  }

  assert {
    condition     = google_sql_database_instance.this.settings[0].backup_configuration[0].backup_retention_settings[0].retained_backups == 14 && google_sql_database_instance.this.settings[0].final_backup_config[0].enabled && google_sql_database_instance.this.settings[0].final_backup_config[0].retention_days == 30
    error_message = "Fewer daily backups are kept than were asked for, or none of a database that was deleted."
  }

  assert {
    condition     = google_sql_database_instance.this.settings[0].disk_autoresize && google_sql_database_instance.this.settings[0].disk_autoresize_limit == 100 && google_sql_database_instance.this.settings[0].disk_size == 20
    error_message = "The disk does not grow, or not as far as was asked for."
  }

  assert {
    condition     = google_sql_database_instance.this.database_version == "POSTGRES_17" && google_sql_database_instance.this.deletion_protection && google_sql_database_instance.this.settings[0].deletion_protection_enabled
    error_message = "The database can be deleted, here or elsewhere, or is replaced for another version."
  }

  assert {
    condition = { for flag in google_sql_database_instance.this.settings[0].database_flags : flag.name => flag.value } == {
      "cloudsql.iam_authentication" = "on"
      "max_connections"             = "200"
    }
    error_message = "Service accounts cannot log in, or the limit of connections is another than asked for."
  }

  assert {
    condition     = google_sql_database_instance.this.settings[0].availability_type == "REGIONAL" && google_sql_database_instance.this.settings[0].edition == "ENTERPRISE"
    error_message = "The database is not what was asked for: without an edition, Google takes the dearer one."
  }

  assert {
    condition     = alltrue([for user in google_sql_user.component : user.type == "CLOUD_IAM_SERVICE_ACCOUNT" && user.password == null && user.deletion_policy == "ABANDON"])
    error_message = "A database user has a password, or the apply that takes a component away fails for what its user owns."
  }

  assert {
    condition     = google_sql_user.component["api"].name == "coldaisle-api@coldaisle-test.iam" && google_sql_user.component["api"].database_roles == null && google_sql_user.component["migrate"].database_roles == tolist(["cloudsqlsuperuser"])
    error_message = "Only the migration may own the schema."
  }
}

run "database_with_a_public_address" {
  module {
    source = "./modules/database"
  }

  variables {
    project_id = "coldaisle-test"
    region     = "europe-west1"
    name       = "coldaisle"
    size = {
      tier             = "db-custom-1-3840"
      edition          = "ENTERPRISE"
      highly_available = false
      max_connections  = 200
      disk_type        = "PD_SSD"
      disk_gb          = 20
      max_disk_gb      = 100
      iops             = null
      retained_backups = 14
    }
    users               = { migrate = "coldaisle-migrate@coldaisle-test.iam.gserviceaccount.com" }
    owner               = "migrate"
    deletion_protection = false
  }

  assert {
    condition     = google_sql_database_instance.this.settings[0].ip_configuration[0].ipv4_enabled && length(google_sql_database_instance.this.settings[0].ip_configuration[0].authorized_networks) == 0 && google_sql_database_instance.this.settings[0].connector_enforcement == "REQUIRED"
    error_message = "A public address must be open to connectors alone, which authenticate by IAM."
  }

  assert {
    condition     = google_sql_database_instance.this.settings[0].availability_type == "ZONAL" && !google_sql_database_instance.this.deletion_protection
    error_message = "The database is not what was asked for."
  }
}

run "readings" {
  module {
    source = "./modules/readings"
  }

  variables {
    project_id          = "coldaisle-test"
    location            = "europe-west1"
    deletion_protection = true
  }

  assert {
    condition     = google_bigquery_table.readings.time_partitioning[0].type == "DAY" && google_bigquery_table.readings.time_partitioning[0].field == "timestamp" && google_bigquery_table.readings.require_partition_filter
    error_message = "Readings must be partitioned by day, and a query must say which days."
  }

  assert {
    condition     = google_bigquery_table.readings.clustering == tolist(["node_id", "message_id"])
    error_message = "Readings must be clustered by node and message."
  }

  assert {
    condition     = google_bigquery_table.readings.deletion_protection && google_bigquery_dataset.this.max_time_travel_hours == "168" && !google_bigquery_dataset.this.delete_contents_on_destroy
    error_message = "Readings can be deleted, or cannot be brought back for a week."
  }

  assert {
    condition = [for column in jsondecode(google_bigquery_table.readings.schema) : "${column.name} ${column.type} ${column.mode}"] == [
      "node_id STRING REQUIRED", "message_id STRING REQUIRED", "timestamp TIMESTAMP REQUIRED", "temperature FLOAT NULLABLE", "humidity FLOAT NULLABLE",
      "customer_id INTEGER NULLABLE", "uncorrected_temperature FLOAT NULLABLE", "uncorrected_humidity FLOAT NULLABLE",
    ]
    error_message = "The columns are not those of the specification, the customer of an enrolled gateway, and the measured values."
  }
}

run "models" {
  module {
    source = "./modules/models"
  }

  variables {
    project_id = "coldaisle-test"
    region     = "europe-west1"
  }

  assert {
    condition     = google_storage_bucket.this.uniform_bucket_level_access && google_storage_bucket.this.public_access_prevention == "enforced" && google_storage_bucket.this.versioning[0].enabled && !google_storage_bucket.this.force_destroy
    error_message = "The models are not kept, or not to themselves."
  }

  assert {
    condition     = alltrue([for rule in google_storage_bucket.this.lifecycle_rule : one(rule.action).type != "Delete" || one(rule.condition).with_state == "ARCHIVED"])
    error_message = "A model that serves could be deleted for its age."
  }

  assert {
    condition     = alltrue([for rule in google_storage_bucket.this.lifecycle_rule : coalesce(one(rule.condition).num_newer_versions, 0) == 0])
    error_message = "What was deleted is kept for ever: nothing newer takes its name."
  }
}

run "archives" {
  module {
    source = "./modules/build"
  }

  variables {
    project_id = "coldaisle-test"
    region     = "europe-west1"
  }

  assert {
    condition     = google_storage_bucket.archives.versioning[0].enabled && google_storage_bucket.archives.public_access_prevention == "enforced"
    error_message = "An archive that was replaced is gone, and docs/operations.md says where it is."
  }

  assert {
    condition     = [for rule in google_storage_bucket.archives.lifecycle_rule : one(rule.condition).with_state if one(rule.action).type == "Delete"] == ["ARCHIVED"]
    error_message = "Archives are kept for ever, or one that a function runs could be deleted for its age."
  }

  assert {
    condition     = google_artifact_registry_repository_iam_member.images.role == "roles/artifactregistry.writer" && google_storage_bucket_iam_member.archives.role == "roles/storage.objectViewer"
    error_message = "The build may do more than read archives and write images."
  }
}

run "images" {
  module {
    source = "./modules/images"
  }

  variables {
    project_id  = "coldaisle-test"
    region      = "europe-west1"
    name        = "coldaisle"
    description = "Images of the API."
  }

  assert {
    condition     = output.address == "europe-west1-docker.pkg.dev/coldaisle-test/coldaisle" && google_artifact_registry_repository.this.format == "DOCKER"
    error_message = "Images cannot be pushed to where the documentation says."
  }
}
