#!/bin/sh
# Fetches the real servers and tools that tests run against into a folder: servers.sh FOLDER
#
# Debian's packages are unpacked and not installed: nothing is started, nothing outside of the folder changes, and no
# root is needed. Without apt, or without a package, the tests that need it are skipped and say so.
set -eu
exec 1>&2

folder=$1
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
touch "$folder/.complete"

if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
    echo "hotbay: no apt-get here: tests against docker-registry and Prometheus are skipped"
    exit 0
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
for package in docker-registry prometheus; do
    # The lists of a fresh machine may be empty; only root can fill them.
    if ! apt-get download -qq "$package" 2>/dev/null && [ "$(id -u)" = 0 ]; then
        apt-get update -qq || true
        apt-get download -qq "$package" 2>/dev/null || true
    fi
    found=$(find . -name "${package}_*.deb" | head -n 1)
    if [ -n "$found" ]; then
        dpkg-deb --fsys-tarfile "$found" | tar -x -C "$folder" ./usr/bin
    else
        echo "hotbay: Debian's $package cannot be had (apt-get download): tests that need it are skipped"
    fi
done
