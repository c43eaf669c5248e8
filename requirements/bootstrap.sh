#!/bin/sh
# Makes or refreshes the development environment: bootstrap.sh VENV
#
# Needs a Python of at least 3.11 and a package index, nothing else. Everything installed is pinned by hash in the
# two exports beside this file; the workspace's own packages are installed editable, without dependencies.
# Everything goes to standard error, so that the standard output of `make demo ARGS=--json` stays machine-readable.
set -eu
exec 1>&2

here=$(dirname "$0")
root=$here/..
venv=$1

fail() {
    printf 'hotbay: %s\n' "$1" >&2
    exit 1
}

# A candidate has to run and to say 3.11 or later: version managers leave shims on PATH for versions not installed.
find_python() {
    for name in ${PYTHON:-} python3.11 python3.12 python3.13 python3.14 python3 python; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    fail "no Python of at least 3.11 on PATH (looked for python3.11 to python3.14 and python3). Install one, or name it: make PYTHON=/path/to/python3.11 ..."
}

# Debian ships venv's pip bundle in a package of its own.
ensure_venv_module() {
    if "$1" -c 'import ensurepip, venv' 2>/dev/null; then
        return
    fi
    package=$("$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -qq
        apt-get install -y -qq --no-install-recommends "$package"
    else
        fail "$1 cannot create virtual environments. Install its venv module (Debian: apt-get install $package) and run make again."
    fi
}

python=$(find_python)
if ! "$venv/bin/python" -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    ensure_venv_module "$python"
    echo "hotbay: creating $venv with $python"
    rm -rf "$venv"
    "$python" -m venv "$venv"
fi
if ! "$venv/bin/uv" --version 2>/dev/null | grep -qF "$(sed -n 's/^uv==\([^ ]*\).*/uv \1/p' "$here/uv.txt")"; then
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: --require-hashes \
        --requirement "$here/uv.txt"
fi
"$venv/bin/uv" pip sync --quiet --python "$venv/bin/python" --require-hashes "$here/dev.txt"
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --no-deps --no-build-isolation \
    --editable "$root/sdk" --editable "$root/host"
