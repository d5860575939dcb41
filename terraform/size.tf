# What is made, by var.size. functions, api and database of terraform.tfvars replace single
# values of it. docs/cost.md says what each size costs.
locals {
  sizes = {
    # For 10 nodes or so. What is given up: the first request after a quiet hour waits for an
    # instance, the database shares its processor and has no standby or service level.
    small = {
      functions = {
        ingest     = { min_instances = 0, max_instances = 2, concurrency = 80, cpu = "1", memory = "512Mi", connections = 2 }
        detect     = { min_instances = 0, max_instances = 2, concurrency = 80, cpu = "1", memory = "512Mi", connections = 2 }
        storealert = { min_instances = 0, max_instances = 1, concurrency = 80, cpu = "1", memory = "512Mi", connections = 2 }
        train      = { min_instances = 0, max_instances = 1, concurrency = 80, cpu = "1", memory = "1Gi", connections = 2 }
      }
      api = { min_instances = 0, max_instances = 2, concurrency = 80, cpu = "1", memory = "512Mi", connections = 4 }
      database = {
        instance        = "coldaisle", tier = "db-f1-micro", edition = "ENTERPRISE", highly_available = false, private_address = true,
        max_connections = 40, disk_type = "PD_SSD", disk_gb = 10, max_disk_gb = 20, iops = null, retained_backups = 7
      }
      monthly_budget = 15
    }
    standard = {
      functions = {
        ingest     = { min_instances = 0, max_instances = 10, concurrency = 80, cpu = "1", memory = "512Mi", connections = 4 }
        detect     = { min_instances = 0, max_instances = 10, concurrency = 80, cpu = "1", memory = "512Mi", connections = 4 }
        storealert = { min_instances = 0, max_instances = 5, concurrency = 80, cpu = "1", memory = "512Mi", connections = 4 }
        train      = { min_instances = 0, max_instances = 1, concurrency = 80, cpu = "2", memory = "2Gi", connections = 4 }
      }
      api = { min_instances = 1, max_instances = 10, concurrency = 80, cpu = "1", memory = "512Mi", connections = 8 }
      database = {
        instance        = "coldaisle", tier = "db-custom-1-3840", edition = "ENTERPRISE", highly_available = false, private_address = true,
        max_connections = 200, disk_type = "PD_SSD", disk_gb = 10, max_disk_gb = 100, iops = null, retained_backups = 14
      }
      monthly_budget = 200
    }
  }

  size = {
    functions = {
      for name, size in local.sizes[var.size].functions :
      name => merge(size, { for key, value in var.functions[name] : key => value if value != null })
    }
    api            = merge(local.sizes[var.size].api, { for key, value in var.api : key => value if value != null })
    database       = merge(local.sizes[var.size].database, { for key, value in var.database : key => value if value != null })
    monthly_budget = local.sizes[var.size].monthly_budget
  }
}

# Refuses what cannot be, before anything is made: these rules are of sizes and terraform.tfvars together.
resource "terraform_data" "size" {
  lifecycle {
    precondition {
      condition     = alltrue([for size in concat(values(local.size.functions), [local.size.api]) : size.min_instances >= 0 && size.max_instances >= 1 && size.min_instances <= size.max_instances])
      error_message = "Functions and API need min_instances of 0 or more, not above max_instances, which must be 1 or more."
    }

    precondition {
      condition     = alltrue([for size in concat(values(local.size.functions), [local.size.api]) : size.concurrency >= 1 && size.concurrency <= 1000 && size.connections >= 1]) && local.size.api.connections >= 2
      error_message = "Functions and API need a concurrency between 1 and 1000 and 1 connection or more, the API 2, one of which listens for changes of incidents."
    }

    precondition {
      condition     = alltrue([for size in concat(values(local.size.functions), [local.size.api]) : can(regex("^[1-9][0-9]*(Mi|Gi)$", size.memory)) && contains(["1", "2", "4", "6", "8"], size.cpu)])
      error_message = "Functions and API need a memory such as 512Mi or 2Gi and a cpu of 1, 2, 4, 6 or 8: with less than 1 an instance takes one message at a time."
    }

    precondition {
      condition     = contains(["ENTERPRISE", "ENTERPRISE_PLUS"], local.size.database.edition) && (startswith(local.size.database.tier, "db-perf-optimized-") == (local.size.database.edition == "ENTERPRISE_PLUS"))
      error_message = "edition must be ENTERPRISE, with a tier such as db-custom-1-3840, or ENTERPRISE_PLUS, with one such as db-perf-optimized-N-2."
    }

    precondition {
      condition     = local.size.database.max_connections >= 25 && local.size.database.disk_gb >= 10 && local.size.database.max_disk_gb >= local.size.database.disk_gb && local.size.database.retained_backups >= 7 && local.size.database.retained_backups <= 365
      error_message = "The database needs 25 connections and 10 GB or more, max_disk_gb not below disk_gb, and between 7 and 365 retained backups."
    }

    precondition {
      condition     = (local.size.database.iops != null) == (local.size.database.disk_type == "HYPERDISK_BALANCED")
      error_message = "iops are set for disk_type HYPERDISK_BALANCED, and for no other: a PD_SSD has more the larger it is."
    }

    precondition {
      condition     = local.connections <= local.size.database.max_connections - 10
      error_message = "The components may open ${local.connections} connections at their largest, the database takes ${local.size.database.max_connections}, of which 10 are kept for itself and for people: raise max_connections (and the tier), or lower max_instances or connections."
    }
  }
}
