#!/bin/sh
# Installs or upgrades the gateway on a Linux system with systemd that takes no Debian
# package. Run as root, in the folder with the tarball of this machine, SHA256SUMS,
# SHA256SUMS.sig and the signer's public key:
#
#   install.sh monitor-gateway-VERSION-linux-ARCH.tar.gz monitor-gateway.pub
#
# An upgrade keeps outbox, settings and key, and puts the version before it back when the
# new one does not serve within a minute.
set -eu

fail() {
  echo "install.sh: $1" >&2
  exit 1
}
if [ $# -ne 2 ]; then
  echo "usage: $0 TARBALL PUBLIC-KEY" >&2
  exit 2
fi
tarball=$1
key=$2
root=${MONITOR_GATEWAY_TEST:-}
program=$root/usr/local/bin/monitor-gateway
units=$root/etc/systemd/system
settings=$root/etc/monitor-gateway
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Who has signed the checksums is checked first, then the tarball by them.
folder=$(dirname "$tarball")
name=$(basename "$tarball")
printf 'monitor-gateway %s\n' "$(cat "$key")" >"$work/signers"
ssh-keygen -Y verify -q -f "$work/signers" -I monitor-gateway -n monitor-gateway \
  -s "$folder/SHA256SUMS.sig" <"$folder/SHA256SUMS" || fail "SHA256SUMS is not signed by $key"
awk -v name="$name" '$2 == name' "$folder/SHA256SUMS" >"$work/sum"
[ -s "$work/sum" ] || fail "SHA256SUMS has no $name"
sum="$work/sum"
(cd "$folder" && sha256sum --check --quiet "$sum") || fail "$name is not what was signed"

tar -xzf "$tarball" -C "$work" --no-same-owner
new=$work/$(basename "$name" .tar.gz)
"$new/monitor-gateway" version || fail "the program of $name does not run on this machine"

mkdir -p "$(dirname "$program")" "$units" "$settings"
# What was there before, to be put back.
mkdir "$work/before"
for file in "$program" "$units"/monitor-gateway*; do
  if [ -f "$file" ]; then cp -p "$file" "$work/before/"; fi
done

# put FOLDER makes what is in a folder the installed version. The program is replaced in
# one step: it may be running.
put() {
  cp "$1/monitor-gateway" "$program.new"
  chmod 755 "$program.new"
  mv -f "$program.new" "$program"
  for unit in "$1"/monitor-gateway*.service "$1"/monitor-gateway*.socket "$1"/monitor-gateway*.path; do
    if [ -f "$unit" ]; then
      cp "$unit" "$units/"
      chmod 644 "$units/$(basename "$unit")"
    fi
  done
  systemctl daemon-reload
}

put "$new"
if [ ! -e "$settings/environment" ]; then
  cp "$new/environment.example" "$settings/environment"
  chmod 644 "$settings/environment"
fi
systemctl enable --quiet monitor-gateway.socket monitor-gateway.service monitor-gateway-credentials.path
enrolment=$root/var/lib/monitor-gateway/outbox/enrolment.json
if [ ! -s "$enrolment" ] && ! grep -q '^PROJECT_ID=.' "$settings/environment"; then
  echo "sudo monitor-gateway enrol CODE --api URL, or set PROJECT_ID in /etc/monitor-gateway/environment, then: sudo systemctl start monitor-gateway"
  exit 0
fi
systemctl start monitor-gateway-credentials.path
# The service's type is notify: the command returns when the gateway serves, or fails.
if timeout 60 systemctl restart monitor-gateway.service && "$program" healthy; then
  exit 0
fi
[ -x "$work/before/monitor-gateway" ] || fail "the gateway does not run: journalctl -u monitor-gateway"
echo "install.sh: the new version does not run; the one before it is put back" >&2
put "$work/before"
systemctl restart monitor-gateway.service
exit 1
