# A system of the tests, of the modules' names that the release looks for. Its
# provisioners call the test's cloud, where the real configuration calls Google's.
variable "project_id" {
  type = string
}

variable "region" {
  type = string
}

variable "api_image" {
  type = string
}

variable "api_traffic" {
  type = map(number)
}

module "function" {
  source   = "./modules/function"
  for_each = jsondecode(file("${path.root}/functions.json")) # image by name

  name  = each.key
  image = each.value
}

module "api" {
  source = "./modules/api"

  image   = var.api_image
  traffic = join(",", [for revision, percent in var.api_traffic : "${revision}=${percent}"])

  components = concat(["api"], [for function in module.function : function.name])
}

output "api_uri" {
  value = file("${path.root}/uri")
}

output "api_next_uri" {
  value = "${file("${path.root}/uri")}/next"
}

output "takes_open_readings" {
  value = true
}

output "billing" {
  value = "ingest=request"
}
