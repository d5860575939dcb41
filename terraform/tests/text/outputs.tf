# The text of the configuration, for tests of what no plan shows: what must not
# be written at all.
locals {
  top = "${path.module}/../.."
}

output "files" {
  description = "Content of every file of the configuration, tests aside, by its name."
  value       = { for name in fileset(local.top, "**/*.tf") : name => file("${local.top}/${name}") if !startswith(name, "tests/") }
}
