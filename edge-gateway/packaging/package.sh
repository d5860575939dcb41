#!/usr/bin/env bash
# Packs the programs that build.sh has made in a folder, all or those named: a Debian package for each
# Linux machine, a tarball and install.sh for every other Linux, for each program its bill
# of materials in CycloneDX form, and the checksums of all.
#
#   SIGNING_KEY=FILE edge-gateway/packaging/package.sh DIR VERSION [amd64|arm64|armv7|armv6...]
#
# signs the checksums with a private key of ssh-keygen -t ed25519, which the release's
# owner keeps. Without one they are not signed, and install.sh refuses them.
set -euo pipefail

if [ $# -lt 2 ]; then
  echo "usage: $0 DIR VERSION [amd64|arm64|armv7|armv6...]" >&2
  exit 2
fi
dir=$(cd "$1" && pwd)
version=$2
shift 2
start=$PWD
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# nfpm's newer versions do not resolve from every module proxy.
nfpm=github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.0

# In a package the program is in /usr/bin.
for unit in monitor-gateway.service monitor-gateway-watch.service; do
  sed 's|^ExecStart=/usr/local/bin/|ExecStart=/usr/bin/|' "$unit" >"$work/$unit"
done
gzip -9n >"$work/changelog.gz" <<EOF
monitor-gateway (${version#v}) stable; urgency=medium

  * docs/CHANGELOG.md of Coldaisle ${version#v} lists the changes.

 -- Coldaisle maintainers <maintainers@coldaisle.example>  $(LC_ALL=C date -R)
EOF

export CGO_ENABLED=0 GOFLAGS=-trimpath # as build.sh: what both need is compiled once
go build -o "$work/image" ../../run/tools/release/image

# What build.sh calls it, Debian's name of the architecture, and the package's. Debian
# calls ARM 6 (Raspberry Pi 1, Zero) and 7 by one name.
for target in amd64:amd64:amd64 arm64:arm64:arm64 armv7:armhf:armhf armv6:armhf:armv6; do
  IFS=: read -r built architecture name <<<"$target"
  program=$dir/monitor-gateway-linux-$built
  (($# == 0)) || [[ " $* " == *" $built "* ]] || continue
  WORK=$work PROGRAM=$program ARCHITECTURE=$architecture VERSION=${version#v} \
    go run "$nfpm" package --config nfpm.yaml --packager deb --target "$dir/monitor-gateway_${version#v}_$name.deb" >&2
  unpacked=$work/monitor-gateway-$version-linux-$built
  mkdir "$unpacked"
  cp "$program" "$unpacked/monitor-gateway"
  cp monitor-gateway*.service monitor-gateway*.socket monitor-gateway-credentials.path monitor-gateway-watch.conf \
    environment.example ../watch/watch.example.yaml "$unpacked/"
  "$work/image" -bill "$program" >"$dir/monitor-gateway-$version-linux-$built.cdx.json"
  tar -C "$work" --owner=0 --group=0 -czf "$dir/$(basename "$unpacked").tar.gz" "$(basename "$unpacked")"
done
cp install.sh "$dir/"
key=${SIGNING_KEY:+$(cd "$start" && realpath "$SIGNING_KEY")}
cd "$dir"
sha256sum -- monitor-gateway* install.sh >SHA256SUMS
rm -f SHA256SUMS.sig
if [ -n "$key" ]; then
  ssh-keygen -q -Y sign -f "$key" -n monitor-gateway SHA256SUMS
fi
