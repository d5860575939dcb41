#!/bin/sh
# A removal leaves settings, key and outbox; a purge removes them.
set -e
case "$1" in
remove | purge)
  rm -rf "$DPKG_ROOT/var/lib/monitor-gateway.previous"
  if [ -d "$DPKG_ROOT/run/systemd/system" ]; then systemctl daemon-reload; fi
  ;;
esac
if [ "$1" = purge ]; then
  # systemd's DynamicUser= has the folder in private, and a link to it.
  rm -rf "$DPKG_ROOT/var/lib/private/monitor-gateway" "$DPKG_ROOT/var/lib/monitor-gateway" "$DPKG_ROOT/var/lib/monitor-gateway-watch" "$DPKG_ROOT/etc/monitor-gateway"
fi
