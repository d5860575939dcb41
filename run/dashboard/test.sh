#!/usr/bin/env bash
# Tests the dashboard: types and logic, then in a real Chromium over the whole
# local system. Without Chromium the second half is skipped, except in CI.
set -euo pipefail
cd "$(dirname "$0")"

make --no-print-directory -C ../.. run/api/pages/site/built/redoc.standalone.js
[ -d node_modules ] || npm ci
npm run build
npm test

CHROMIUM=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)}
if [ -z "$CHROMIUM" ]; then
  echo "browser tests need Chromium: apt-get install chromium, or set CHROMIUM to its path" >&2
  [ "${CI:-}" = true ] && exit 1
  echo "program chromium" >> "${NOT_TRIED:-/dev/null}"
  exit 0
fi
shell=$(command -v chromium-headless-shell || true)
CHROMIUM=$CHROMIUM HEADLESS_SHELL=${HEADLESS_SHELL:-${shell:-$CHROMIUM}} npm run test:browser
