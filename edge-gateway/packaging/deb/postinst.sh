#!/bin/sh
# Starts the gateway, or replaces a running one: systemd holds the port meanwhile, and
# outbox and settings stay. A new program that does not run well within a minute is
# replaced by the one before it.
set -e
[ "$1" = configure ] || exit 0
command -v systemctl >/dev/null || exit 0
[ -d "$DPKG_ROOT/run/systemd/system" ] || exit 0

previous=$DPKG_ROOT/var/lib/monitor-gateway.previous/monitor-gateway
program=$DPKG_ROOT/usr/bin/monitor-gateway
enrolment=$DPKG_ROOT/var/lib/monitor-gateway/outbox/enrolment.json
settings=$DPKG_ROOT/etc/monitor-gateway/environment

systemctl daemon-reload
systemctl enable --quiet monitor-gateway.socket monitor-gateway.service monitor-gateway-credentials.path
if ! grep -q '^PROJECT_ID=.' "$settings" && [ ! -s "$enrolment" ]; then
  echo "monitor-gateway: sudo monitor-gateway enrol CODE --api URL, or set PROJECT_ID in /etc/monitor-gateway/environment;"
  echo "then: sudo systemctl start monitor-gateway"
  exit 0
fi
systemctl start monitor-gateway-credentials.path
# The service's type is notify: the command returns when the gateway serves, or fails.
if timeout 60 systemctl restart monitor-gateway.service && "$program" healthy; then
  rm -f "$previous"
  exit 0
fi
if [ -n "$2" ] && [ -x "$previous" ]; then
  echo "monitor-gateway: the new version does not run; the one before it is put back" >&2
  mv -f "$previous" "$program"
  systemctl restart monitor-gateway.service
fi
exit 1
