variable "project_id" {
  description = "Google Cloud project that takes the whole system. One project holds one."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project_id))
    error_message = "project_id must be 6 to 30 lower-case letters, digits or hyphens, begin with a letter and not end with a hyphen."
  }
}

variable "region" {
  description = "Region of everything that has one."
  type        = string
  default     = "europe-west1"

  validation {
    condition     = can(regex("^[a-z]+-[a-z]+[0-9]+$", var.region))
    error_message = "region must be a Google Cloud region such as europe-west1."
  }

  # https://cloud.google.com/build/docs/locations, restricted regions for some projects.
  validation {
    condition     = var.builds_everywhere || contains(["us-central1", "us-west2", "europe-west1", "asia-east1", "australia-southeast1", "southamerica-east1"], var.region)
    error_message = "New projects may build in us-central1, us-west2, europe-west1, asia-east1, australia-southeast1 and southamerica-east1 alone. When a build in ${var.region} has worked in this project, set builds_everywhere = true."
  }
}

variable "builds_everywhere" {
  description = "Whether Cloud Build builds in every region for this project. It does for most, for new ones in a few regions alone."
  type        = bool
  default     = false
}

variable "readings_location" {
  description = "Where BigQuery keeps the readings: a region, EU or US. By default the region of the rest. It cannot be changed later."
  type        = string
  default     = null

  validation {
    condition     = var.readings_location == null || can(regex("^(EU|US|[a-z]+-[a-z]+[0-9]+)$", var.readings_location))
    error_message = "readings_location must be EU, US or a region such as europe-west1."
  }
}

variable "api_image" {
  description = "Image of the API by digest, or an empty string for the first apply, which makes the repository that the image is pushed to."
  type        = string

  validation {
    condition     = var.api_image == "" || can(regex("^[a-z0-9.-]+/[a-z0-9./_-]+@sha256:[0-9a-f]{64}$", var.api_image))
    error_message = "api_image must name an image by digest, HOST/PROJECT/REPOSITORY/NAME@sha256:..., not by a tag, which may mean something else tomorrow; or be empty."
  }
}

variable "api_traffic" {
  description = "Revisions of the API that get its requests, with their percentages; empty for the newest. A release names those of before, and moves the requests itself."
  type        = map(number)
  default     = {}

  validation {
    condition     = length(var.api_traffic) == 0 || sum(concat([0], values(var.api_traffic))) == 100
    error_message = "api_traffic must add up to 100 percent."
  }
}

variable "function_archives" {
  description = "Folder with the functions' archives, NAME.zip each, made by: go run ./run/tools/release/archive -out DIR. Relative to this folder."
  type        = string
  default     = "../dist/functions"

  validation {
    condition     = alltrue([for name in ["ingest", "detect", "storealert", "train"] : fileexists("${var.function_archives}/${name}.zip")])
    error_message = "function_archives must hold ingest.zip, detect.zip, storealert.zip and train.zip: make them with go run ./run/tools/release/archive -out DIR."
  }
}

variable "size" {
  description = "What functions, api, database and monthly_budget are where they say nothing else: standard, or small, for 10 nodes or so."
  type        = string
  default     = "standard"

  validation {
    condition     = contains(["small", "standard"], var.size)
    error_message = "size must be small or standard."
  }
}

variable "functions" {
  description = "What differs from var.size in a function: instances, messages at a time in one instance, CPUs and memory of an instance, database connections of an instance."
  type = object({
    ingest = optional(object({
      min_instances = optional(number)
      max_instances = optional(number)
      concurrency   = optional(number)
      cpu           = optional(string)
      memory        = optional(string)
      connections   = optional(number)
    }), {})
    detect = optional(object({
      min_instances = optional(number)
      max_instances = optional(number)
      concurrency   = optional(number)
      cpu           = optional(string)
      memory        = optional(string)
      connections   = optional(number)
    }), {})
    storealert = optional(object({
      min_instances = optional(number)
      max_instances = optional(number)
      concurrency   = optional(number)
      cpu           = optional(string)
      memory        = optional(string)
      connections   = optional(number)
    }), {})
    train = optional(object({
      min_instances = optional(number)
      max_instances = optional(number)
      concurrency   = optional(number)
      cpu           = optional(string)
      memory        = optional(string)
      connections   = optional(number)
    }), {})
  })
  default = {}
}

variable "functions_billing" {
  description = "How ingest and detect, which take every reading, are billed: by request, or by instance, which is cheaper from about 300 nodes on (docs/cost.md)."
  type        = string
  default     = "request"

  validation {
    condition     = contains(["request", "instance"], var.functions_billing)
    error_message = "functions_billing must be request or instance."
  }
}

variable "api" {
  description = "What differs from var.size in the API: instances, requests at a time in one instance, CPUs and memory of an instance, database connections of an instance."
  type = object({
    min_instances = optional(number)
    max_instances = optional(number)
    concurrency   = optional(number)
    cpu           = optional(string)
    memory        = optional(string)
    connections   = optional(number)
  })
  default = {}
}

variable "database" {
  description = "What differs from var.size in the metadata database: name of the instance, machine and edition, whether a second zone stands by, whether its address is private, most connections, disk (PD_SSD, or HYPERDISK_BALANCED with its iops), its GB at first and at most, and how many daily backups are kept."
  type = object({
    instance         = optional(string)
    tier             = optional(string)
    edition          = optional(string)
    highly_available = optional(bool)
    private_address  = optional(bool)
    max_connections  = optional(number)
    disk_type        = optional(string)
    disk_gb          = optional(number)
    max_disk_gb      = optional(number)
    iops             = optional(number)
    retained_backups = optional(number)
  })
  default = {}

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,61}[a-z0-9]$", coalesce(var.database.instance, "coldaisle")))
    error_message = "The instance must be named by lower-case letters, digits and hyphens and begin with a letter."
  }
}

variable "subnet_range" {
  description = "Private addresses of the instances of functions and API, two each while a revision replaces another; unused when the database's address is public."
  type        = string
  default     = "10.8.0.0/22"

  validation {
    condition     = can(cidrhost(var.subnet_range, 0)) && try(tonumber(split("/", var.subnet_range)[1]) <= 26, false)
    error_message = "subnet_range must be an IPv4 range such as 10.8.0.0/22, /26 or larger."
  }
}

variable "secret_key_version" {
  description = "Version of the secret SECRET_KEY that the API runs with. A number: with latest, two instances of one revision could have different keys."
  type        = string
  default     = "1"

  validation {
    condition     = can(regex("^[1-9][0-9]*$", var.secret_key_version))
    error_message = "secret_key_version must be the number of a version."
  }
}

variable "record_keys_version" {
  description = "Version of the secret RECORD_KEYS, the keys that sign monthly records (docs/records.md). Without one there are no records."
  type        = string
  default     = null

  validation {
    condition     = var.record_keys_version == null || can(regex("^[1-9][0-9]*$", var.record_keys_version))
    error_message = "record_keys_version must be the number of a version."
  }
}

variable "allowed_origins" {
  description = "Other origins whose pages may call the API; the dashboard needs none. By default the local development origins of the specification."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for origin in var.allowed_origins : can(regex("^https?://[a-z0-9.-]+(:[0-9]+)?$", origin))])
    error_message = "allowed_origins must be origins such as https://console.example.com, without a path."
  }
}

variable "require_enrolled_gateways" {
  description = "Whether readings that no enrolled gateway has signed go to the dead letter. Turn it on once all gateways are enrolled."
  type        = bool
  default     = false
}

variable "max_unreported_sensors" {
  description = "Sensors of a customer that may wait for their first reading through a gateway that is not enrolled."
  type        = number
  default     = 1000

  validation {
    condition     = var.max_unreported_sensors >= 1 && floor(var.max_unreported_sensors) == var.max_unreported_sensors
    error_message = "max_unreported_sensors must be a whole number of 1 or more."
  }
}

variable "max_allowed" {
  description = "Limits that apply where the owner of a sensor has set none: degrees Celsius and percent of relative humidity."
  type = object({
    temperature = optional(number, 50)
    humidity    = optional(number, 50)
  })
  default = {}

  validation {
    condition     = var.max_allowed.temperature >= -40 && var.max_allowed.temperature <= 125 && var.max_allowed.humidity >= 0 && var.max_allowed.humidity <= 100
    error_message = "The temperature must lie between -40 and 125, the humidity between 0 and 100."
  }
}

variable "learning" {
  description = "Most readings that a training run uses."
  type = object({
    training_rows = optional(number, 5000)
  })
  default = {}

  validation {
    condition     = var.learning.training_rows >= 500 && var.learning.training_rows <= 500000 && floor(var.learning.training_rows) == var.learning.training_rows
    error_message = "training_rows must be a whole number between 500, the fewest that a run accepts, and 500000."
  }
}

variable "redeliverers" {
  description = "Who may redeliver dead letters, as IAM members such as user:anna@example.com. With any, the functions are reachable from outside Google's network, for callers with the right to call them."
  type        = set(string)
  default     = []

  validation {
    condition     = alltrue([for member in var.redeliverers : can(regex("^(user|group|serviceAccount|principal|principalSet):[^ ]+$", member))])
    error_message = "redeliverers must be IAM members such as user:anna@example.com."
  }
}

variable "gateway_sites" {
  description = "Sites that have a gateway, each with an account of its own that may publish readings and nothing else. With any, an alert says when no readings arrive."
  type        = set(string)
  default     = ["main"]

  validation {
    condition     = alltrue([for site in var.gateway_sites : can(regex("^[a-z][a-z0-9-]{0,20}[a-z0-9]$", site))])
    error_message = "A site must be named by 2 to 22 lower-case letters, digits and hyphens and begin with a letter."
  }
}

variable "alert_emails" {
  description = "Addresses that alerts and the budget's warnings are sent to."
  type        = set(string)
  default     = []

  validation {
    condition     = alltrue([for email in var.alert_emails : can(regex("^[^@ ]+@[^@ ]+\\.[^@ ]+$", email))])
    error_message = "alert_emails must be e-mail addresses."
  }
}

variable "alert_limits" {
  description = "From when on there is trouble: 5xx of a function in 5 minutes, age of the oldest waiting message in seconds, share of the API's requests answered with 5xx, 95th percentile of its latency in ms, share of the database's disk."
  type = object({
    function_errors = optional(number, 10)
    unacked_seconds = optional(number, 300)
    api_error_share = optional(number, 0.02)
    api_latency_ms  = optional(number, 2000)
    disk_share      = optional(number, 0.8)
  })
  default = {}

  validation {
    condition     = alltrue([for limit in values(var.alert_limits) : limit >= 0]) && var.alert_limits.api_error_share < 1 && var.alert_limits.disk_share < 1
    error_message = "No limit may be below 0, and shares must be below 1."
  }
}

variable "billing_account" {
  description = "Billing account that pays for the project, for the budget; null for none."
  type        = string
  default     = null

  validation {
    condition     = var.billing_account == null || can(regex("^[0-9A-F]{6}-[0-9A-F]{6}-[0-9A-F]{6}$", var.billing_account))
    error_message = "billing_account must look like 012345-6789AB-CDEF01."
  }
}

variable "monthly_budget" {
  description = "Expected cost of a month, in whole units of the billing account's currency; by default that of var.size, for 10 or for 1,000 nodes, in docs/cost.md."
  type        = number
  default     = null

  validation {
    condition     = var.monthly_budget == null || try(var.monthly_budget >= 1 && floor(var.monthly_budget) == var.monthly_budget, false)
    error_message = "monthly_budget must be a whole number of 1 or more."
  }
}

variable "domain" {
  description = "Domain of your own at which the API answers too, behind a load balancer; null for none."
  type        = string
  default     = null

  validation {
    condition     = var.domain == null || can(regex("^([a-z0-9]([a-z0-9-]*[a-z0-9])?\\.)+[a-z]{2,}$", var.domain))
    error_message = "domain must be a domain name such as climate.example.com."
  }
}

variable "deletion_protection" {
  description = "Whether database, readings and API refuse to be deleted. Turned off, applied, only to tear the system down."
  type        = bool
  default     = true
}

variable "labels" {
  description = "Labels of everything that takes some."
  type        = map(string)
  default     = { system = "coldaisle" }

  validation {
    condition     = alltrue([for key, value in var.labels : can(regex("^[a-z][a-z0-9_-]{0,62}$", key)) && can(regex("^[a-z0-9_-]{0,63}$", value))])
    error_message = "Labels must be lower-case letters, digits, underscores and hyphens, 63 at most, keys beginning with a letter."
  }
}

variable "run_app_open" {
  description = "Whether the API answers at its address of Cloud Run beside domain: until the certificate is issued, and while gateways are enrolled at that address."
  type        = bool
  default     = false
}

variable "nightly" {
  description = "Repository of Cloud Build, by its full name, and its branch, on which .ci/nightly runs each night; null for never."
  type = object({
    repository = string
    branch     = optional(string, "main")
  })
  default = null

  validation {
    condition     = var.nightly == null || can(regex("^projects/[^/]+/locations/[^/]+/connections/[^/]+/repositories/[^/]+$", var.nightly.repository))
    error_message = "nightly.repository must look like projects/P/locations/R/connections/github/repositories/coldaisle."
  }
}
