#!/usr/bin/env bash
# Runs the test suite in .venv, two processes side by side. usage: bash launch/test.sh [--all] [pytest arguments]
#   default: everything that is not marked slow or device; --all: those too.
# Where CI=true it also installs libtpu (Linux, 690 MB), for the ahead-of-time tests, and Chromium, for the pages' tests.
EXTRAS=dev,parity,serve,api,mcp
if [ "${CI:-}" = true ] && [ "$(uname -s)" = Linux ]; then EXTRAS=$EXTRAS,tpu; fi
source "$(dirname "$0")/venv.sh" "$EXTRAS"
if [ "${CI:-}" = true ] && ! command -v chromium >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing Chromium for the pages' tests" >&2
  { apt-get update && apt-get install -y --no-install-recommends chromium fonts-dejavu-core; } >/dev/null 2>&1 \
    || echo "Chromium could not be installed; its tests will say that they are skipped" >&2
fi
MARK=(-m "not slow and not device")
if [ "${1:-}" = --all ]; then MARK=(-m "not device"); shift; fi
exec .venv/bin/python -m pytest -n 2 --dist loadfile "${MARK[@]}" "$@"
