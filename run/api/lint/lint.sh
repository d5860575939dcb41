#!/usr/bin/env bash
# Lints the committed OpenAPI documents with Redocly, at the version of package.json.
set -euo pipefail
cd "$(dirname "$0")"
[[ -d node_modules ]] || npm ci --silent --no-audit --no-fund
npm run --silent lint
