#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Builds the engine: Debian's source of Linux with fixes, hooks and overlay.
# Prints the path of the result; all else goes to standard error. What was
# built once from the same source, hooks, overlay, configuration and compiler
# is taken from the cache.
#
# usage: kernel/build.sh um|um-stock|um-smp|um-smp-stock|lab|debug|kcsan|deb|source [VERSION]
#
#   um        a User-Mode Linux kernel
#   um-stock  the same without fixes, hooks and overlay, to compare with
#   um-smp, um-smp-stock  these for several CPUs, which newer versions can have
#   lab       a kernel for the lab's machines
#   debug     the same, checking itself at every step; slow
#   kcsan     the same, looking for data races; slow
#   deb       a folder of Debian packages, to install; configured as the kernel
#             that runs, or as the file $CONFIG_FILE says
#   source    Debian's source alone: nothing is built
#
# VERSION is a folder of kernel/base; 6.12 by default.
set -euo pipefail
unset CDPATH

usage='usage: kernel/build.sh um|um-stock|um-smp|um-smp-stock|lab|debug|kcsan|deb|source [VERSION]'
config=${1:?$usage} linux=${2:-6.12}
kernel=$(cd "$(dirname "$0")" && pwd)
base=$kernel/base/$linux
fixes=$kernel/fixes/$linux
hooks=$kernel/hooks/$linux
package=linux-source-$linux
cache=$(realpath -m "${NUKSM_CACHE:-${XDG_CACHE_HOME:-${HOME:?is not set: set it, or NUKSM_CACHE}/.cache}/nuksm}")

unfinished=() # goes when this script ends
end_jobs() { # the shell knows of them from the moment they are forked
	local job
	for job in $(jobs -p); do
		kill -- "-$job" 2>/dev/null || true
	done
	wait
	rm -rf "${unfinished[@]}"
}
trap end_jobs EXIT
trap '' TTOU # who is in a process group of its own may write to a terminal
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

say() { echo "kernel: $*" >&2; }
die() { say "$*"; exit 1; }

[ -d "$base" ] || die "there is no Linux $linux here, only: $(cd "$kernel/base" && printf '%s ' */)"
arch=x86_64 target=bzImage image=arch/x86/boot/bzImage running=/dev/null
case $config in
um) parts=(um um-engine) arch=um target=linux image=linux ;;
um-stock) parts=(um) arch=um target=linux image=linux ;;
um-smp) parts=(um um-engine um-smp) arch=um target=linux image=linux ;;
um-smp-stock) parts=(um um-smp) arch=um target=linux image=linux ;;
lab) parts=(lab) ;;
debug) parts=(lab debug) ;;
kcsan) parts=(lab kcsan) ;;
deb)
	parts=(deb) target=bindeb-pkg
	running=${CONFIG_FILE:-/boot/config-$(uname -r)}
	[ -r "$running" ] || die "cannot read $running: say CONFIG_FILE=/path/to/configuration"
	;;
source) parts=() ;;
*) echo "$usage" >&2; exit 2 ;;
esac
# What all versions have in common, and what this one needs besides.
fragments=()
for part in "${parts[@]}"; do
	fragments+=("$kernel/base/$part.config")
	[ ! -e "$base/$part.config" ] || fragments+=("$base/$part.config")
done

compiler=gcc
if command -v ccache >/dev/null; then
	compiler='ccache gcc'
	export CCACHE_DIR=$cache/ccache
	# What a file includes the compiler lists itself: it is not preprocessed twice. Of
	# the host's headers, which User-Mode Linux needs, it lists none.
	[ "$arch" = um ] || export CCACHE_DEPEND=1
fi
# What make was told that runs this is not meant for the kernel's makefiles; nor is what
# whoever builds other kernels has set: it is not in the result's name.
unset MAKEFLAGS MFLAGS GNUMAKEFLAGS MAKEFILES CROSS_COMPILE LLVM KCFLAGS KCPPFLAGS KAFLAGS LOCALVERSION

lock() { # DESCRIPTOR: a signal is heard between two tries
	until flock -w 1 "$1"; do [ $? = 1 ] || exit 66; done
}

run() { # COMMAND…: in a process group of its own, which ends with this script
	set -m
	"$@" </dev/null &
	set +m
	wait "$!"
}

# Unpacked once per version.
fetch_source() { # DIRECTORY
	local tmp=$1.new
	rm -rf "$tmp" # of who was killed
	mkdir "$tmp"
	say "fetching $package $version (150 MB)"
	(cd "$tmp" && "$kernel/apt.sh" "$linux" download "$package=$version") >&2 ||
		die "cannot fetch $package: is this Debian 12, with current package lists?"
	dpkg -x "$tmp/$package"_*.deb "$tmp/package"
	say "unpacking it"
	mkdir "$tmp/source"
	tar -xf "$tmp/package/usr/src/$package".tar.* -C "$tmp/source" --strip-components=1
	mv "$tmp/source" "$1"
}

# The hooks are written for these files; other releases of the version have them, too.
check_pin() { # DIRECTORY
	(cd "$1" && grep -v '^#' "$base/pin" | sha256sum --check --quiet) >&2 ||
		die "Linux $version has changed files that the hooks change: see $base/pin"
}

lay_out() { # SOURCE TREE: copies by hard links; patch and rm break these
	local patches=() patch
	[ "$arch" != um ] || [ ! -e "$base/um.patch" ] || patches+=("$base/um.patch")
	[[ $config = um*-stock ]] || patches+=("$fixes"/*.patch "$hooks"/*.patch)
	cp -al "$1" "$2"
	for patch in "${patches[@]}"; do
		patch -s -p1 -d "$2" <"$patch" >&2
	done
	[[ $config = um*-stock ]] || cp -r --remove-destination "$kernel"/files/. "$2"
	# What is not the source's has no other link.
	(cd "$2" && find . -type f -links 1 -print) >"$2.files"
	mv "$2.files" "$2/nuksm-files"
}

# What is the same as it was has its time, too; what is not has a new one: make goes by
# these. That is asked of all that was ever another one than the source's, as objects
# may be as old.
take_place_of() { # TREE NEW-TREE
	local file
	touch "$1/nuksm-files"
	sort -u -o "$2/nuksm-files" {"$1","$2"}/nuksm-files
	while read -r file; do
		if cmp -s "$1/$file" "$2/$file"; then
			ln -f "$1/$file" "$2/$file"
		elif [ -e "$2/$file" ]; then
			cp "$2/$file" "$2/nuksm-file"
			mv "$2/nuksm-file" "$2/$file"
		fi
	done <"$2/nuksm-files"
	rm -rf "$1"
	mv "$2" "$1"
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
	say "building ($linux, $config; log: $3)"
	run steps "$3" "${make[@]}" -j"$(nproc)" "$target" || failed "$3"
}

steps() { # LOG COMMAND…: makes a kernel, and says how far it is
	"${@:2}" 2>&1 | tee -a "$1" |
		awk '/^  [A-Z]/ && ++n % 100 == 0 { print "kernel:   " n " steps"; fflush() }' >&2
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

# Sets version to the newest there is, source to where it goes, and result to
# what is built from it.
look_up() {
	local key
	version=$("$kernel/apt.sh" "$linux" show "$package" 2>/dev/null | sed -n '0,/^Version: /s/^Version: //p') || true
	source=$cache/source/linux-$linux-$version
	if [ "$config" = source ]; then
		result=$source
		return
	fi
	key=$({
		echo "$version $config"
		gcc --version
		ld --version
		cat "${fragments[@]}" "$running"
		cd "$kernel"
		find build.sh files/mm files/include "fixes/$linux" "hooks/$linux" "base/$linux" -type f -print0 |
			LC_ALL=C sort -z | xargs -0 sha256sum
	} | sha256sum | cut -c1-16)
	result=$cache/kernels/nuksm-$linux-$config-$key
}

# Builds it, unless somebody else just did.
make_result() {
	local work=$cache/work/$linux-$config output wanted made_by
	output=$work/output
	[ "$config" != deb ] || output=$work/packages/output # packages are put beside it
	mkdir -p "$work" "$cache/kernels"
	exec 9>"$work/lock"
	flock -n 9 || {
		say "waiting for another build of $linux-$config"
		lock 9
	}
	[ -e "$result" ] && return
	rm -f "$cache/kernels/nuksm-$linux-$config-"*.new # of who was killed
	touch "$work/lock"
	unfinished=("$work"/{made-by,tree,tree.new,output,packages} "$result.new")
	made_by=$(echo "$source" && gcc --version && ld --version)
	# Of who was killed, of another Linux or compiler, or by a clock that went back since.
	if [ "$(cat "$work/made-by" 2>/dev/null)" != "$made_by" ] ||
		[ "$work/made-by" -nt "$work/lock" ]; then
		rm -rf "${unfinished[@]}"
	fi
	rm -f "$work/made-by"
	lay_out "$source" "$work/tree.new"
	mkdir -p "$work/tree" "$output"
	take_place_of "$work/tree" "$work/tree.new"
	wanted=$result
	look_up
	[ "$result" = "$wanted" ] || die "hooks or overlay changed while they were copied: run this again"
	build "$work/tree" "$output" "$work/build.log"
	keep "$output" "$result.new"
	mv "$result.new" "$result"
	if [ "$config" != deb ]; then # the next one makes what has changed since
		echo "$made_by" >"$work/made-by"
		unfinished=()
	fi
	say "built in $SECONDS s"
}

look_up
if [ ! -e "$result" ]; then
	# The archive keeps only the newest version: old lists name one that is gone.
	run "$kernel/apt.sh" "$linux" update >&2 || true
	look_up
	[ -n "$version" ] || die "apt knows no $package: Debian's archive has it"
	mkdir -p "$(dirname "$source")"
	exec 8>"$source.lock"
	lock 8
	if [ ! -d "$source" ]; then
		unfinished=("$source.new")
		run fetch_source "$source"
		rm -rf "$source.new"
	fi
	exec 8>&-
	check_pin "$source"
	[ "$config" = source ] || make_result
fi
if [ "$config" = deb ]; then
	say "to install: sudo apt install $result/linux-image-*.deb, then reboot"
	say "to go back: choose another kernel in the boot menu, then sudo apt remove 'linux-image-*-nuksm'"
	say "nobody signed it: Secure Boot has to be off"
fi
echo "$result"
