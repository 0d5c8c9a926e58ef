#!/usr/bin/env bash
# From a fresh clone to a clickable rationale and a memory: installs into .venv, then runs `evigen demo` and `stam demo` on the shipped sample.
# usage: bash launch/demo.sh [--out DIR] [any other flag of `evigen demo`]
source "$(dirname "$0")/venv.sh" ""
OUT=runs/demo
for ((i = 1; i <= $#; i++)); do
  case "${!i}" in
    -h | --help) exec .venv/bin/evigen demo --help ;;
    --out=*) OUT="${!i#--out=}" ;;
    --out) next=$((i + 1)); OUT="${!next:-$OUT}" ;;
  esac
done
.venv/bin/evigen demo "$@"
exec .venv/bin/stam demo --out "$OUT/memory" --input evigen_jax/sample/planted/patients.jsonl.gz
