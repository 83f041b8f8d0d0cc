#!/usr/bin/env bash
# Checks the appliance: sets it up first if needed (with the tools for testing), then ruff, mypy and every test.
# Arguments go to pytest. All checks run even when one fails; pytest is last, so its summary is the last line.
set -euo pipefail
root=$(dirname -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")")
venv=$(realpath -ms -- "${APPLIANCE_VENV:-$root/.venv}")
bash "$root/installer/setup.sh" test
cd -- "$root"
status=0
"$venv/bin/python" -m ruff format --check . || status=1
"$venv/bin/python" -m ruff check . || status=1
"$venv/bin/python" -m mypy || status=1
# Apart: installer/models.py would pass for the package of that name.
"$venv/bin/python" -m mypy --explicit-package-bases installer/*.py || status=1
[[ $status -eq 0 ]] || echo "test: ruff or mypy failed (above); the tests run all the same" >&2
"$venv/bin/python" -m pytest "$@" || status=$?
exit "$status"
