#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# What the kernel's own tools say of the engine: checkpatch --strict, kernel-doc
# and sparse find nothing that stock's files do not have; and without
# CONFIG_NUKSM the files that the hooks change compile to the code that stock's
# compile to, with the same fixes.
#
# usage: kernel/check.sh [VERSION]
#
# VERSION is a folder of kernel/base; 6.12 by default.
set -euo pipefail
unset CDPATH

# Ended, it waits for what it has started: that works on what is removed at the end.
trap 'exit 143' TERM
trap 'exit 130' INT
trap 'exit 129' HUP

[ $# -le 1 ] || { echo 'usage: kernel/check.sh [VERSION]' >&2; exit 2; }
linux=${1:-6.12}
kernel=$(cd "$(dirname "$0")" && pwd)
fixes=$kernel/fixes/$linux
hooks=$kernel/hooks/$linux
configs=("$kernel/base/lab.config" "$kernel/base/$linux/lab.config")
source=$("$kernel/build.sh" source "$linux")
# Beside the source, as its copies are made by hard links.
work=$(mktemp -d "$(dirname "$source")/check.XXXXXX")
trap 'rm -rf "$work"' EXIT
objects=(mm/ksm.o mm/huge_memory.o mm/memory.o mm/mempolicy.o fs/proc/base.o)
unset MAKEFLAGS MFLAGS
compiler=gcc
if command -v ccache >/dev/null; then
	compiler='ccache gcc'
	CCACHE_DIR=$(dirname "$(dirname "$source")")/ccache
	export CCACHE_DIR
fi

say() { echo "kernel: $*" >&2; }
die() { say "$*"; exit 1; }

check_style() { # the hooks' #: context lines are not ours to change
	local files patch said
	# Tracepoints are written in a form of their own, which it does not know.
	mapfile -t files < <(cd "$kernel/files" && find . -name '*.[ch]' ! -path './include/trace/*')
	# From inside the tree, as in a repository of another kind it asks git.
	cd "$work/ours"
	# Of several versions of Linux no tree has code, and so no use for the number.
	scripts/checkpatch.pl --strict --terse --no-summary --ignore LINUX_VERSION_CODE \
		-f "${files[@]}" ||
		die 'checkpatch complains of the overlay'
	for patch in "$fixes"/*.patch "$hooks"/*.patch; do
		scripts/checkpatch.pl --strict --terse --no-summary "$patch" ||
			die "checkpatch complains of $(basename "$patch")"
	done
	# It tells by its messages, not by its status.
	said=$(scripts/kernel-doc -none "${files[@]}" 2>&1) || true
	[ -z "$said" ] || { echo "$said" >&2; die 'kernel-doc complains of the overlay'; }
	cd - >/dev/null
}

make_in() { # TREE OUTPUT ARGUMENT…
	local tree=$1 output=$2
	shift 2
	make -s -C "$tree" O="$output" ARCH=x86_64 CC="$compiler" HOSTCC="$compiler" \
		-j"$(nproc)" "$@" >&2
}

configure() { # TREE OUTPUT FILTER: lines of the configuration to leave out
	mkdir "$2"
	cat "${configs[@]}" | grep -v "$3" >"$2/wanted"
	make_in "$1" "$2" KCONFIG_ALLCONFIG="$2/wanted" allnoconfig >/dev/null
}

# Without addresses of the file itself; lines of the source do not show in it.
code() { # OBJECT
	objdump -dr --no-show-raw-insn --no-addresses "$1" | tail -n +4
}

compare_code() {
	local tree object
	for tree in stock ours; do
		say "compiling ${objects[*]} without CONFIG_NUKSM ($tree)"
		configure "$work/$tree" "$work/$tree-off" '^CONFIG_NUKSM'
		make_in "$work/$tree" "$work/$tree-off" "${objects[@]}"
	done
	for object in "${objects[@]}"; do
		code "$work/stock-off/$object" >"$work/stock.code"
		[ -s "$work/stock.code" ] || die "no code in $object"
		code "$work/ours-off/$object" | cmp -s - "$work/stock.code" ||
			die "without CONFIG_NUKSM $object is not what stock's source makes"
	done
}

# What sparse says, without the place of the tree and the numbers of lines.
sparse_says() { # TREE OUTPUT TARGET…
	local tree=$1 output=$2
	shift 2
	make_in "$tree" "$output" C=2 "$@" >"$output.log" 2>&1 || {
		cat "$output.log" >&2
		die 'the compiler stopped'
	}
	sed -n "s|^.*$(basename "$tree")/\([^:]*\):[0-9]*:[0-9]*: |\1: |p" "$output.log" | sort
}

check_types() {
	say 'compiling with CONFIG_NUKSM, and sparse'
	sparse_says "$work/stock" "$work/stock-off" "${objects[@]}" >"$work/stock.said"
	configure "$work/ours" "$work/ours-on" '^$'
	sparse_says "$work/ours" "$work/ours-on" "${objects[@]}" mm/nuksm/ |
		comm -13 "$work/stock.said" - >"$work/said"
	[ ! -s "$work/said" ] || { cat "$work/said" >&2; die 'sparse complains'; }
}

cp -al "$source" "$work/stock"
cp -al "$source" "$work/ours"
for patch in "$fixes"/*.patch; do
	patch -s -p1 -d "$work/stock" <"$patch" >&2
	patch -s -p1 -d "$work/ours" <"$patch" >&2
done
for patch in "$hooks"/*.patch; do
	patch -s -p1 -d "$work/ours" <"$patch" >&2
done
cp -r "$kernel/files/." "$work/ours"
check_style
compare_code
check_types
added=$(git apply --numstat "$hooks"/*.patch | awk '{ lines += $1 } END { print lines }')
say "Linux $linux: clean; without CONFIG_NUKSM ${objects[*]} are stock's with the fixes; the hooks add $added lines"
