variable "image" {
  type = string
}

variable "traffic" {
  type = string
}

variable "components" {
  type = list(string)
}

resource "terraform_data" "revision" {
  triggers_replace = [var.image, var.components, var.traffic]

  provisioner "local-exec" {
    command = "deploy api ${var.image} ${join(",", var.components)} ${var.traffic}"
  }
}
