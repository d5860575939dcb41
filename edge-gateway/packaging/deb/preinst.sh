#!/bin/sh
# Keeps the program that is replaced, so that postinst can put it back.
set -e
if [ "$1" = upgrade ] && [ -x /usr/bin/monitor-gateway ]; then
  mkdir -p /var/lib/monitor-gateway.previous
  cp -p /usr/bin/monitor-gateway /var/lib/monitor-gateway.previous/monitor-gateway
fi
