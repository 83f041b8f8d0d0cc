#!/usr/bin/env bash
# Runs the appliance: sets it up first if needed, then `appliance ARGS` (without any: the demo). docs/install.md
set -euo pipefail
root=$(dirname -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")")
bash "$root/installer/setup.sh" run
venv=$(realpath -ms -- "${APPLIANCE_VENV:-$root/.venv}")
[[ $# -gt 0 ]] || set -- demo
exec "$venv/bin/appliance" "$@"
