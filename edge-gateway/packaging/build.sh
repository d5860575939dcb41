#!/usr/bin/env bash
# Builds monitor-gateway for every machine it runs on, or for those named, as static binaries.
#
#   edge-gateway/packaging/build.sh OUTDIR VERSION [linux/ARCHITECTURE...]
set -euo pipefail

if [ $# -lt 2 ]; then
  echo "usage: $0 OUTDIR VERSION [linux/ARCHITECTURE...]" >&2
  exit 2
fi
mkdir -p "$1"
out=$(cd "$1" && pwd)
version=$2
shift 2
cd "$(dirname "$0")/.."

# System, architecture, and for 32-bit ARM its version: 7 is a Raspberry Pi 2 or
# later with a 32-bit system, 6 a Raspberry Pi 1 or Zero.
(($#)) || set -- linux/amd64 linux/arm64 linux/arm/7 linux/arm/6
for target; do
  IFS=/ read -r os arch arm <<<"$target"
  name=monitor-gateway-$os-$arch${arm:+v$arm}
  CGO_ENABLED=0 GOOS=$os GOARCH=$arch GOARM=${arm:-} \
    go build -trimpath -ldflags "-s -w -X main.version=$version" -o "$out/$name" .
  echo "$out/$name"
done
