#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Writes the engine as a series of patches for `git am` into build/series/VERSION:
# first fixes of stock's, which need nothing of it; then the new files, which
# nothing builds yet; then the hooks, one by one; at last the lines in mm's Kconfig
# and Makefile that switch it on. So every step builds.
# With --check that is tried: the series is applied, and each step compiled.
#
# usage: kernel/series.sh [--check] [VERSION]
#
# VERSION is a folder of kernel/base; 6.12 by default.
set -euo pipefail
unset CDPATH

# Ended, it waits for what it has started: that works on what is removed at the end.
trap 'exit 143' TERM
trap 'exit 130' INT
trap 'exit 129' HUP

check=
if [ "${1:-}" = --check ]; then
	check=$1
	shift
fi
case $#${1:-} in
0 | 1[0-9]*) linux=${1:-6.12} ;;
*) echo 'usage: kernel/series.sh [--check] [VERSION]' >&2; exit 2 ;;
esac

kernel=$(cd "$(dirname "$0")" && pwd)
fixes=$kernel/fixes/$linux
hooks=$kernel/hooks/$linux
configs=("$kernel/base/lab.config" "$kernel/base/$linux/lab.config")
series=$(dirname "$kernel")/build/series/$linux
source=$("$kernel/build.sh" source "$linux")
# Beside the source, as its copy is made by hard links.
work=$(mktemp -d "$(dirname "$source")/series.XXXXXX")
trap 'rm -rf "$work"' EXIT
version=$(make -s -C "$source" kernelversion)
unset MAKEFLAGS MFLAGS

# The same series whoever makes it, wherever and whenever.
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME='nuksm developers' GIT_AUTHOR_EMAIL=developers@nuksm.invalid
GIT_AUTHOR_DATE=$(sed -n 's/^Date: //p' "$hooks"/*.patch | tail -n 1)
export GIT_COMMITTER_NAME=$GIT_AUTHOR_NAME GIT_COMMITTER_EMAIL=$GIT_AUTHOR_EMAIL GIT_AUTHOR_DATE

say() { echo "series: $*" >&2; }

start_repository() { # DIRECTORY: of the files that the hooks change, as they are before
	local file
	git init -q -b nuksm "$1"
	sed -n 's|^--- a/||p' "$fixes"/*.patch "$hooks"/*.patch | sort -u | while read -r file; do
		install -D -m 644 "$source/$file" "$1/$file"
	done
	git -C "$1" add -A
	git -C "$1" commit -q -m "Linux $version"
	git -C "$1" tag base
}

commit_overlay() {
	cp -r "$kernel/files/." .
	git add -A
	git commit -q -s -F - <<-END
		mm/nuksm: add the files of nuKSM

		NUMA-aware merging of equal pages, after "nuKSM" (PACT 2021). Nothing
		uses or builds these files yet.
	END
}

commit_patch() { # PATCH
	local info
	info=$(git mailinfo ../body ../patch <"$1")
	git apply ../patch
	git add -A -- . ':!mm/Kconfig' ':!mm/Makefile'
	git commit -q --author "$(sed -n 's/^Author: //p' <<<"$info") <$(sed -n 's/^Email: //p' <<<"$info")>" \
		--date "$(sed -n 's/^Date: //p' <<<"$info")" -F - <<-END
		$(sed -n 's/^Subject: //p' <<<"$info")

		$(cat ../body)
	END
}

commit_switch() {
	git add -A
	git commit -q -s -F - <<-END
		mm: let nuKSM be chosen

		Off by default; KSM is then as it was.
	END
}

write_series() {
	local patch
	start_repository "$work/made"
	cd "$work/made"
	for patch in "$fixes"/*.patch; do
		commit_patch "$patch"
	done
	commit_overlay
	for patch in "$hooks"/*.patch; do
		commit_patch "$patch"
	done
	commit_switch
	git config branch.nuksm.description "NUMA-aware merging of equal pages (nuKSM)

For Linux $version. Made from the overlay and the hooks of the nuksm project by
kernel/series.sh: change those, not these patches."
	rm -rf "$series"
	mkdir -p "$(dirname "$series")"
	git format-patch -q --cover-letter --cover-from-description=subject \
		--zero-commit --no-signature -o "$series" base
	cd - >/dev/null
}

compile() { # TREE OUTPUT on|off DIRECTORY…
	local tree=$1 output=$2 choice=$3
	shift 3
	say "  compiling with CONFIG_NUKSM $choice"
	mkdir -p "$output"
	if [ "$choice" = on ]; then
		cat "${configs[@]}" >"$output/wanted"
	else
		cat "${configs[@]}" | grep -v '^CONFIG_NUKSM' >"$output/wanted"
	fi
	make -s -C "$tree" O="$output" ARCH=x86_64 KCONFIG_ALLCONFIG="$output/wanted" allnoconfig >/dev/null
	make -s -C "$tree" O="$output" ARCH=x86_64 -j"$(nproc)" "$@" >&2
}

check_series() {
	local patch directories
	start_repository "$work/applied"
	cp -al "$source" "$work/tree"
	cd "$work/applied"
	directories=$(git ls-files '*.c' | xargs -r -n 1 dirname | sort -u | sed 's|$|/|')
	for patch in "$series"/*.patch; do
		[[ $patch != */0000-* ]] || continue
		say "applying $(basename "$patch")"
		git am -q "$patch"
		# Existing files are replaced, not written to: the source keeps its own.
		git archive HEAD | tar -x --touch -C "$work/tree"
		# shellcheck disable=SC2086 # several
		compile "$work/tree" "$work/off" off $directories
	done
	# shellcheck disable=SC2086 # several
	compile "$work/tree" "$work/on" on $directories
	if [ "$(git rev-parse 'HEAD^{tree}')" != "$(git -C "$work/made" rev-parse 'HEAD^{tree}')" ]; then
		say "the series makes something else of Linux than hooks and overlay do"
		exit 1
	fi
	cd - >/dev/null
}

write_series
[ -z "$check" ] || check_series
ls "$series"/*.patch
