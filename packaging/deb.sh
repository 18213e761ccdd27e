#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Makes a Debian package of the built program in build/deb and says where it is.
#
# usage: packaging/deb.sh [SUFFIX]    of the version, which Cargo.toml has
set -euo pipefail
unset CDPATH

# Ended, it waits for what it has started, which works in build/deb.
trap 'exit 143' TERM
trap 'exit 130' INT
trap 'exit 129' HUP

cd "$(dirname "$0")/.."
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)${1:-}
stage=build/deb/nuksm-$version

rm -rf "$stage"
mkdir -p "$stage"
cp -r packaging/debian "$stage"
cat >"$stage/debian/changelog" <<END
nuksm ($version) unstable; urgency=medium

  * CHANGELOG.md tells what is new.

 -- $(sed -n 's/^Maintainer: //p' packaging/debian/control)  $(date -R)
END
if ! (cd "$stage" && DEB_BUILD_OPTIONS=noautodbgsym dpkg-buildpackage -b -us -uc) >"$stage.log" 2>&1; then
	tail -20 "$stage.log" >&2
	exit 1
fi
rm -rf "$stage"
echo "$PWD/build/deb/nuksm_${version}_$(dpkg --print-architecture).deb"
