#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Builds the engine: Debian's Linux 6.12 source with fixes, hooks and overlay.
# Prints the path of the result; all else goes to standard error. What was
# built once from the same source, hooks, overlay, configuration and compiler
# is taken from the cache.
#
# usage: kernel/build.sh um|um-stock|lab|debug|kcsan|deb|source
#
#   um        a User-Mode Linux kernel
#   um-stock  the same without fixes, hooks and overlay, to compare with
#   lab       a kernel for the lab's machines
#   debug     the same, checking itself at every step; slow
#   kcsan     the same, looking for data races; slow
#   deb       a folder of Debian packages, to install; configured as the kernel
#             that runs, or as the file $CONFIG_FILE says
#   source    Debian's source alone: nothing is built
set -euo pipefail

usage='usage: kernel/build.sh um|um-stock|lab|debug|kcsan|deb|source'
config=${1:?$usage}
kernel=$(cd "$(dirname "$0")" && pwd)
base=$kernel/base/6.12
fixes=$kernel/fixes/6.12
hooks=$kernel/hooks/6.12
cache=${NUKSM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/nuksm}

job=
trap '[ -z "$job" ] || kill -- "-$job" 2>/dev/null || true' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

say() { echo "kernel: $*" >&2; }
die() { say "$*"; exit 1; }

arch=x86_64 target=bzImage image=arch/x86/boot/bzImage running=/dev/null
case $config in
um) fragments=("$base/um.config" "$base/um-engine.config") arch=um target=linux image=linux ;;
um-stock) fragments=("$base/um.config") arch=um target=linux image=linux ;;
lab) fragments=("$base/lab.config") ;;
debug) fragments=("$base/lab.config" "$base/debug.config") ;;
kcsan) fragments=("$base/lab.config" "$base/kcsan.config") ;;
deb)
	fragments=("$base/deb.config") target=bindeb-pkg
	running=${CONFIG_FILE:-/boot/config-$(uname -r)}
	[ -r "$running" ] || die "cannot read $running: say CONFIG_FILE=/path/to/configuration"
	;;
source) fragments=() ;;
*) echo "$usage" >&2; exit 2 ;;
esac

compiler=gcc
if command -v ccache >/dev/null; then
	compiler='ccache gcc'
	export CCACHE_DIR=$cache/ccache
fi
# What make was told that runs this is not meant for the kernel's makefiles.
unset MAKEFLAGS MFLAGS

# Unpacked once per version; a half-done attempt leaves nothing behind.
fetch_source() ( # DIRECTORY
	mkdir -p "$(dirname "$1")"
	exec 8>"$1.lock"
	flock 8
	[ -d "$1" ] && return
	tmp=$(mktemp -d "$1.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	say "fetching linux-source-6.12 $version (150 MB)"
	(cd "$tmp" && apt-get download -qq -o APT::Sandbox::User=root "linux-source-6.12=$version") >&2 ||
		die "cannot fetch linux-source-6.12: is this Debian 12, with current package lists?"
	dpkg -x "$tmp"/linux-source-6.12_*.deb "$tmp/package"
	say "unpacking it"
	mkdir "$tmp/source"
	tar -xf "$tmp"/package/usr/src/linux-source-6.12.tar.* -C "$tmp/source" --strip-components=1
	mv "$tmp/source" "$1"
)

# The hooks are written for these files; other releases of 6.12 have them, too.
check_pin() { # DIRECTORY
	(cd "$1" && grep -v '^#' "$base/pin" | sha256sum --check --quiet) >&2 ||
		die "Linux $version has changed files that the hooks change: see $base/pin"
}

lay_out() { # SOURCE TREE: copies by hard links; patch and rm break these
	local patches=() patch
	[ "$arch" = um ] && patches+=("$base/um.patch")
	[ "$config" = um-stock ] || patches+=("$fixes"/*.patch "$hooks"/*.patch)
	cp -al "$1" "$2"
	for patch in "${patches[@]}"; do
		patch -s -p1 -d "$2" <"$patch" >&2
	done
	[ "$config" = um-stock ] || cp -r "$kernel"/files/. "$2"
}

# Kconfig drops what lacks a dependency, and says nothing.
check_config() { # WANTED CONFIG
	local lost
	lost=$(awk '
		/^CONFIG_/ { name = value = $0; sub(/=.*/, "", name); sub(/[^=]*=/, "", value) }
		/^# CONFIG_.* is not set$/ { name = $2; value = "" }
		value == "\"\"" { value = "" }
		name == "" { next }
		NR == FNR { wanted[name] = value }
		NR != FNR { made[name] = value }
		{ name = "" }
		END {
			for (name in wanted)
				if (wanted[name] != made[name])
					print name "=" (wanted[name] == "" ? "n" : wanted[name])
		}
	' "$1" "$2" | sort | tr '\n' ' ')
	[ -z "$lost" ] || die "asked for, but Linux's configuration says otherwise: $lost"
}

failed() { # LOG
	tail -n 30 "$1" >&2
	die "the build failed"
}

build() { # TREE OUTPUT LOG
	local make=(make -C "$1" O="$2" ARCH="$arch" CC="$compiler" HOSTCC="$compiler")
	cat "${fragments[@]}" >"$2/wanted"
	if [ "$config" = deb ]; then
		cat "$running" "$2/wanted" >"$2/.config"
		"${make[@]}" olddefconfig >"$3" 2>&1 || failed "$3"
	else
		# Everything that is not asked for is off.
		"${make[@]}" KCONFIG_ALLCONFIG="$2/wanted" allnoconfig >"$3" 2>&1 || failed "$3"
	fi
	check_config "$2/wanted" "$2/.config"
	say "building ($config, log: $3)"
	# In a process group of its own, which ends with this script.
	set -m
	{
		"${make[@]}" -j"$(nproc)" "$target" 2>&1 | tee -a "$3" |
			awk '/^  [A-Z]/ && ++n % 100 == 0 { print "kernel:   " n " steps"; fflush() }' >&2
	} </dev/null &
	job=$!
	set +m
	wait "$job" || failed "$3"
	job=
}

# A kernel, or for `deb` the folder of packages, which Linux puts beside OUTPUT.
keep() { # OUTPUT RESULT
	if [ "$config" = deb ]; then
		mkdir "$2"
		mv "$(dirname "$1")"/linux-*.deb "$2"
	else
		cp "$1/$image" "$2"
	fi
}

# As root, or by a sudo that asks nothing; else the lists stay as they are.
update_package_lists() (
	mkdir -p "$cache"
	exec 7>"$cache/apt.lock"
	flock 7
	if [ "$(id -u)" = 0 ]; then
		apt-get update -qq >&2 || true
	else
		sudo -n apt-get update -qq >&2 || true
	fi
)

# Sets version to the newest there is, source to where it goes, and result to
# what is built from it.
look_up() {
	local key
	version=$(apt-cache show linux-source-6.12 2>/dev/null | sed -n '0,/^Version: /s/^Version: //p') || true
	source=$cache/source/linux-6.12-$version
	if [ "$config" = source ]; then
		result=$source
		return
	fi
	key=$({
		echo "$version $config"
		gcc --version
		cat "${fragments[@]}" "$running"
		cd "$kernel"
		find build.sh files/mm files/include fixes/6.12 hooks/6.12 base/6.12/pin base/6.12/um.patch -type f -print0 |
			LC_ALL=C sort -z | xargs -0 sha256sum
	} | sha256sum | cut -c1-16)
	result=$cache/kernels/nuksm-$config-$key
}

# Builds it, unless somebody else just did.
make_result() {
	local work=$cache/work/$config wanted
	mkdir -p "$work" "$cache/kernels"
	exec 9>"$work/lock"
	flock -n 9 || { say "waiting for another build of $config"; flock 9; }
	[ -e "$result" ] && return
	rm -rf "$work/tree" "$work/output" "$work"/linux-*
	mkdir "$work/output"
	lay_out "$source" "$work/tree"
	wanted=$result
	look_up
	[ "$result" = "$wanted" ] || die "hooks or overlay changed while they were copied: run this again"
	build "$work/tree" "$work/output" "$work/build.log"
	keep "$work/output" "$result.$$"
	mv "$result.$$" "$result"
	rm -rf "$work/tree" "$work/output"
	say "built in $SECONDS s"
}

look_up
if [ ! -e "$result" ]; then
	# The archive keeps only the newest version: old lists name one that is gone.
	update_package_lists
	look_up
	[ -n "$version" ] || die "apt knows no linux-source-6.12: Debian 12's archive has it"
	fetch_source "$source"
	check_pin "$source"
	[ "$config" = source ] || make_result
fi
if [ "$config" = deb ]; then
	say "to install: sudo apt install $result/linux-image-*.deb, then reboot"
	say "to go back: choose another kernel in the boot menu, then sudo apt remove 'linux-image-*-nuksm'"
	say "nobody signed it: Secure Boot has to be off"
fi
echo "$result"
