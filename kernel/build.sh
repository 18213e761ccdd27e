#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Builds the engine: Debian's Linux 6.12 source with the hooks and the overlay.
# Prints the path of the kernel; all else goes to standard error. What was
# built once from the same source, hooks, overlay, configuration and compiler
# is taken from the cache.
#
# usage: kernel/build.sh um
set -euo pipefail

config=${1:?usage: kernel/build.sh um}
kernel=$(cd "$(dirname "$0")" && pwd)
base=$kernel/base/6.12
hooks=$kernel/hooks/6.12
cache=${NUKSM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/nuksm}
export PATH=/usr/lib/ccache:$PATH CCACHE_DIR=$cache/ccache

say() { echo "kernel: $*" >&2; }
die() { say "$*"; exit 1; }

[ -f "$base/$config.config" ] || die "there is no configuration $base/$config.config"

# Unpacked once per version; a half-done attempt leaves nothing behind.
fetch_source() { # DIRECTORY
	local tmp
	[ -d "$1" ] && return
	mkdir -p "$(dirname "$1")"
	tmp=$(mktemp -d "$1.XXXXXX")
	say "fetching linux-source-6.12 $version (150 MB)"
	(cd "$tmp" && apt-get download -qq -o APT::Sandbox::User=root "linux-source-6.12=$version") >&2 ||
		die "cannot fetch linux-source-6.12: is this Debian 12, with current package lists?"
	dpkg -x "$tmp"/linux-source-6.12_*.deb "$tmp/package"
	say "unpacking it"
	mkdir "$tmp/source"
	tar -xf "$tmp"/package/usr/src/linux-source-6.12.tar.* -C "$tmp/source" --strip-components=1
	mv "$tmp/source" "$1"
	rm -rf "$tmp"
}

# The hooks are written for these files; other releases of 6.12 have them, too.
check_pin() { # DIRECTORY
	(cd "$1" && grep -v '^#' "$base/pin" | sha256sum --check --quiet) >&2 ||
		die "Linux $version has changed files that the hooks change: see $base/pin"
}

lay_out() { # SOURCE TREE: copies by hard links; patch and rm break these
	local hook
	cp -al "$1" "$2"
	for hook in "$hooks"/*.patch; do
		patch -s -p1 -d "$2" <"$hook" >&2
	done
	cp -r "$kernel"/files/. "$2"
}

build_um() { # TREE OUTPUT
	make -s -C "$1" O="$2" ARCH=um tinyconfig >/dev/null
	(cd "$2" && "$1/scripts/kconfig/merge_config.sh" -m -O . .config "$base/um.config") >/dev/null
	make -s -C "$2" ARCH=um olddefconfig >&2
	make -s -C "$2" ARCH=um -j"$(nproc)" linux >&2
	echo "$2/linux"
}

# As root, or by a sudo that asks nothing; else the lists stay as they are.
update_package_lists() {
	if [ "$(id -u)" = 0 ]; then
		apt-get update -qq >&2 || true
	else
		sudo -n apt-get update -qq >&2 || true
	fi
}

# Sets version to the newest there is, and result to what is built from it.
look_up() {
	local key
	version=$(apt-cache show linux-source-6.12 2>/dev/null | sed -n '0,/^Version: /s/^Version: //p') || true
	key=$({
		echo "$version $config"
		cc --version
		cd "$kernel"
		find build.sh files hooks/6.12 base/6.12/pin "base/6.12/$config.config" -type f -print0 |
			LC_ALL=C sort -z | xargs -0 sha256sum
	} | sha256sum | cut -c1-16)
	result=$cache/kernels/nuksm-$config-$key
}

look_up
if [ ! -x "$result" ]; then
	# The archive keeps only the newest version: old lists name one that is gone.
	update_package_lists
	look_up
	[ -n "$version" ] || die "apt knows no linux-source-6.12: Debian 12's archive has it"
fi
if [ ! -x "$result" ]; then
	source=$cache/source/linux-6.12-$version
	work=$cache/work/$config
	fetch_source "$source"
	check_pin "$source"
	rm -rf "$work"
	mkdir -p "$work/output" "$cache/kernels"
	lay_out "$source" "$work/tree"
	say "building ($config, log: $work/build.log)"
	built=$(build_um "$work/tree" "$work/output" 2>"$work/build.log") || {
		tail -n 30 "$work/build.log" >&2
		die "the build failed"
	}
	cp "$built" "$result.$$"
	mv "$result.$$" "$result"
	rm -rf "$work/tree" "$work/output"
fi
echo "$result"
