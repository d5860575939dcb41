#!/bin/sh
# Installs or upgrades the gateway, and puts the version before it back when the new one
# does not serve well within a minute. Outbox, settings and key stay as they are.
#
# On a Linux system with systemd that takes no Debian package, run it as root in the folder
# with the tarball of this machine, SHA256SUMS, SHA256SUMS.sig and the signer's public key:
#
#   install.sh monitor-gateway-VERSION-linux-ARCH.tar.gz monitor-gateway.pub
#
# In the Debian package it is postinst, for which dpkg has already replaced the files.
set -eu

if [ "${1:-}" = configure ]; then
  packaged=yes
  root=${DPKG_ROOT:-}
  program=$root/usr/bin/monitor-gateway
  units=$root/usr/lib/systemd/system
elif [ $# -eq 2 ] && [ "${1%.tar.gz}" != "$1" ]; then
  packaged=
  root=${MONITOR_GATEWAY_TEST:-}
  program=$root/usr/local/bin/monitor-gateway
  units=$root/etc/systemd/system
else
  case "${1:-}" in abort-*) exit 0 ;; esac
  echo "usage: $0 TARBALL PUBLIC-KEY" >&2
  exit 2
fi
settings=$root/etc/monitor-gateway
enrolment=$root/var/lib/monitor-gateway/outbox/enrolment.json
# The files that were replaced (before), those of a package that did not serve (refused),
# and a mark of a first installation (new).
saved=$root/var/lib/monitor-gateway.previous

fail() {
  echo "monitor-gateway: $1" >&2
  exit 1
}

# save FOLDER copies the installed program and units.
save() {
  rm -rf "$1"
  mkdir -p "$1"
  for file in "$program" "$units"/monitor-gateway*; do
    if [ -f "$file" ]; then cp -p "$file" "$1/"; fi
  done
}

# put FOLDER installs a program and units. The program is replaced in one step: it may be
# running.
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
}

if [ -z "$packaged" ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  # Who has signed the checksums is checked first, then the tarball by them.
  folder=$(dirname "$1")
  name=$(basename "$1")
  printf 'monitor-gateway %s\n' "$(cat "$2")" >"$work/signers"
  ssh-keygen -Y verify -q -f "$work/signers" -I monitor-gateway -n monitor-gateway \
    -s "$folder/SHA256SUMS.sig" <"$folder/SHA256SUMS" || fail "SHA256SUMS is not signed by $2"
  awk -v name="$name" '$2 == name' "$folder/SHA256SUMS" >"$work/sum"
  [ -s "$work/sum" ] || fail "SHA256SUMS has no $name"
  sum="$work/sum"
  (cd "$folder" && sha256sum --check --quiet "$sum") || fail "$name is not what was signed"
  tar -xzf "$1" -C "$work" --no-same-owner
  new=$work/${name%.tar.gz}
  "$new/monitor-gateway" version || fail "the program of $name does not run on this machine"
  mkdir -p "$(dirname "$program")" "$units" "$settings" "$root/etc/sysusers.d"
  if [ -f "$new/monitor-gateway-watch.conf" ]; then cp "$new/monitor-gateway-watch.conf" "$root/etc/sysusers.d/"; fi
  save "$saved/before"
  if [ ! -x "$program" ]; then : >"$saved/new"; fi
  put "$new"
  if [ ! -e "$settings/environment" ]; then
    cp "$new/environment.example" "$settings/environment"
    chmod 644 "$settings/environment"
  fi
elif [ -x "$saved/refused/monitor-gateway" ]; then
  # This package has not served, and the version before it runs: it is tried once more.
  put "$saved/refused"
fi

command -v systemctl >/dev/null || exit 0
# The watch's user, on this machine alone.
if [ -z "$root" ]; then systemd-sysusers monitor-gateway-watch.conf || true; fi
[ -z "$packaged" ] || [ -d "$root/run/systemd/system" ] || exit 0
systemctl daemon-reload
if [ -e "$saved/new" ]; then
  systemctl enable --quiet monitor-gateway.socket monitor-gateway-live.socket monitor-gateway.service monitor-gateway-credentials.path
  # Set up before a removal, which has switched it off: it wakes people again.
  if [ -s "$settings/watch.yaml" ]; then systemctl enable --quiet --now monitor-gateway-watch.service; fi
fi
# A gateway that was switched off stays off.
if ! systemctl is-enabled --quiet monitor-gateway.service && ! systemctl is-active --quiet monitor-gateway.service; then
  rm -rf "$saved"
  exit 0
fi
if systemctl is-enabled --quiet monitor-gateway-credentials.path; then
  systemctl start monitor-gateway-credentials.path
fi
if [ ! -s "$enrolment" ] && ! grep -q '^PROJECT_ID=.' "$settings/environment"; then
  echo "sudo monitor-gateway enrol CODE --api URL, or set PROJECT_ID in /etc/monitor-gateway/environment, then: sudo systemctl start monitor-gateway"
  rm -rf "$saved"
  exit 0
fi
# The service's type is notify: the command returns when the gateway serves, or fails.
if timeout 60 systemctl restart monitor-gateway.service && "$program" healthy; then
  rm -rf "$saved"
  systemctl try-restart monitor-gateway-watch.service
  exit 0
fi
[ -x "$saved/before/monitor-gateway" ] || fail "the gateway does not run: journalctl -u monitor-gateway"
echo "monitor-gateway: the new version does not run; the one before it is put back" >&2
if [ -n "$packaged" ]; then save "$saved/refused"; fi
put "$saved/before"
systemctl daemon-reload
systemctl restart monitor-gateway.service
exit 1
