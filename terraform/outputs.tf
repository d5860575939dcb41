output "api_uri" {
  description = "Address of the API and the dashboard; null before there is an image."
  value       = local.closed ? "https://${var.domain}" : module.api.uri
}

output "api_next_uri" {
  description = "Address at which the header X-Coldaisle-Release: next leads to the API's newest revision, whether or not it gets other requests."
  value       = local.closed ? "https://${var.domain}" : module.api.next_uri
}

output "takes_open_readings" {
  description = "Whether readings of gateways that are not enrolled are taken."
  value       = !var.require_enrolled_gateways
}

output "domain_address" {
  description = "IPv4 address that the domain's A record must name; null without a domain."
  value       = one(module.domain[*].address)
}

output "archives" {
  description = "Archives that are deployed, as FUNCTION/HASH.zip, separated by spaces."
  value       = join(" ", [for function in module.function : function.archive])
}

output "billing" {
  description = "How functions are to be billed, as FUNCTION=request or FUNCTION=instance, separated by spaces."
  value       = join(" ", [for name in ["ingest", "detect"] : "${name}=${var.functions_billing}"])
}
