#!/usr/bin/env bash
# Walks an API by the journey and judges its answers by the OpenAPI document:
#   respect.sh http://127.0.0.1:8080 [arguments of redocly respect]
set -euo pipefail
cd "$(dirname "$0")"
[[ -d node_modules ]] || npm ci --silent --no-audit --no-fund
exec npm run --silent respect -- --server "api=$1" "${@:2}"
