variable "name" {
  type = string
}

variable "image" {
  type = string
}

resource "terraform_data" "component" {
  input = var.name

  provisioner "local-exec" {
    when    = destroy
    command = "deploy ${self.input}"
  }
}

resource "terraform_data" "revision" {
  triggers_replace = var.image

  provisioner "local-exec" {
    command = "deploy ${var.name} ${var.image}"
  }
}

output "name" {
  value = var.name

  depends_on = [terraform_data.revision]
}
