#!/usr/bin/env bash
# From a fresh clone to a clickable rationale: installs into .venv, then runs `evigen demo` on the shipped sample.
# usage: bash launch/demo.sh [--out DIR] [any other flag of `evigen demo`]
source "$(dirname "$0")/venv.sh" ""
exec .venv/bin/evigen demo "$@"
