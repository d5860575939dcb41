#!/bin/sh
# Keeps the program that is replaced, so that postinst can put it back.
set -e
program=$DPKG_ROOT/usr/bin/monitor-gateway
previous=$DPKG_ROOT/var/lib/monitor-gateway.previous
if [ "$1" = upgrade ] && [ -x "$program" ]; then
  mkdir -p "$previous"
  cp -p "$program" "$previous/"
fi
