#!/usr/bin/env bash
# Makes .venv with the exact versions of requirements.lock and Testudo itself (editable).
# Quick when nothing changed. Takes $PYTHON first where it is set. `--python` only prints the interpreter.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ROOT=$PWD
VENV=$ROOT/.venv
STAMP=$VENV/.testudo-stamp
unset PYTHONPATH PYTHONHOME  # a sourced system ROS sets the first

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

# A pyenv shim can be on PATH and fail: only running an interpreter tells.
works() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 12))' </dev/null >/dev/null 2>&1; }
can_make_venv() { have_uv || "$1" -c 'import ensurepip, venv' </dev/null >/dev/null 2>&1; }
have_uv() { uv --version </dev/null >/dev/null 2>&1; }

# Best first: versions that all wheels exist for, then newer ones.
candidates() {
    local version folder pyenv_root=${PYENV_ROOT:-${HOME:-}/.pyenv}
    for version in 3.12 3.13 3.14; do
        type -aP "python$version" || true
        for folder in "$pyenv_root/versions/$version".*/bin; do
            if [ -d "$folder" ]; then echo "$folder/python$version"; fi
        done
        if have_uv; then UV_PYTHON_DOWNLOADS=never uv python find --no-project "$version" 2>/dev/null || true; fi
    done
    type -aP python3 python || true
}

find_python() {
    local python lacks_venv=""
    if [ -n "${PYTHON:-}" ]; then
        python=$(command -v "$PYTHON") || fail "PYTHON=$PYTHON is no program"
        works "$python" || fail "PYTHON=$PYTHON does not run, or is older than Python 3.12"
        can_make_venv "$python" || fail "PYTHON=$PYTHON has no venv module, and uv is not on PATH"
        echo "$python"
        return
    fi
    while read -r python; do
        works "$python" || continue
        if can_make_venv "$python"; then
            echo "$python"
            return
        fi
        lacks_venv=${lacks_venv:-$python}
    done < <(candidates)
    if [ -n "$lacks_venv" ]; then
        fail "$lacks_venv has no venv module: run 'apt install $(basename "$lacks_venv")-venv', or install uv"
    fi
    fail "no working Python 3.12 or newer found (PATH, pyenv, uv):" \
        "install one ('apt install python3 python3-venv' on Ubuntu 24.04, 'uv python install 3.12'" \
        "or 'pyenv install 3.12' on Debian 12), or set PYTHON=/path/to/python3.12"
}

make_venv() {
    local python=$1
    say "making .venv with $python ($("$python" -V 2>&1))"
    rm -rf "$VENV"
    if "$python" -c 'import ensurepip, venv' </dev/null >/dev/null 2>&1; then
        "$python" -m venv "$VENV"
    else
        uv venv --quiet --seed --python "$python" "$VENV"
    fi
}

# uv is ten times faster, but it does not read pip's configuration: where it fails, pip may still succeed.
install_all() {
    local pip=("$VENV/bin/python" -m pip --disable-pip-version-check) uv=$VENV/bin/uv
    if ! "$uv" --version >/dev/null 2>&1; then
        "${pip[@]}" install --quiet "$(grep -o '^uv==[^ ;]*' requirements.lock)" \
            || say "uv cannot be installed here; going on with pip (slower)"
    fi
    say "installing the versions of requirements.lock (some minutes the first time)"
    if "$uv" --version >/dev/null 2>&1 && install_with "$uv" pip install --python "$VENV/bin/python"; then
        return
    fi
    say "installing with pip"
    install_with "${pip[@]}" install \
        || fail "the packages could not be installed (see above): is the package index reachable?"
}

install_with() {
    "$@" --quiet -r requirements.lock && "$@" --quiet --no-deps --no-build-isolation -e . -e tests/bench
}

fingerprint() {
    # the path belongs to it: a venv that was copied or moved does not work
    { echo "$ROOT"; cat tools/setup.sh pyproject.toml tests/bench/pyproject.toml requirements.lock; } | sha256sum
}

main() {
    if [ "${1:-}" = --python ]; then find_python; return; fi
    local wanted start=$SECONDS
    if command -v flock >/dev/null; then
        exec 9>.setup.lock
        flock 9  # two makes in one folder
    fi
    wanted=$(fingerprint)
    if [ "$(cat "$STAMP" 2>/dev/null)" = "$wanted" ] && works "$VENV/bin/python"; then return; fi
    if ! works "$VENV/bin/python" || [ "$(cat "$VENV/.testudo-root" 2>/dev/null)" != "$ROOT" ]; then
        local python
        python=$(find_python)
        make_venv "$python"
        echo "$ROOT" >"$VENV/.testudo-root"
    fi
    rm -f "$STAMP"
    install_all
    echo "$wanted" >"$STAMP"
    say "ready after $((SECONDS - start)) s; for the command by hand: . .venv/bin/activate"
}

main "$@"
