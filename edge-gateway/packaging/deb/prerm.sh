#!/bin/sh
# An upgrade leaves the gateway running: postinst replaces it.
set -e
if [ "$1" = remove ] && [ -d "$DPKG_ROOT/run/systemd/system" ]; then
  systemctl disable --quiet --now monitor-gateway-watch.service monitor-gateway-live.socket monitor-gateway-credentials.path monitor-gateway.service monitor-gateway.socket
fi
