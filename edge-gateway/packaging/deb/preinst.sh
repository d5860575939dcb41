#!/bin/sh
# Saves the program and the units that are replaced, so that postinst can put them back.
set -e
units=$DPKG_ROOT/usr/lib/systemd/system
program=$DPKG_ROOT/usr/bin/monitor-gateway
saved=$DPKG_ROOT/var/lib/monitor-gateway.previous
case "$1" in
install | upgrade)
  rm -rf "$saved"
  mkdir -p "$saved/before"
  ;;
esac
if [ "$1" = install ]; then
  : >"$saved/new"
elif [ "$1" = upgrade ] && [ -x "$program" ]; then
  cp -p "$program" "$units"/monitor-gateway* "$saved/before/"
fi
