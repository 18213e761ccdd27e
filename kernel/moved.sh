#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# For whoever brings the engine to another version of Linux: how large is it? Tells
# what has become of the files that fixes and hooks change, which of their hunks
# still apply, and which of the kernel's functions that the engine calls are gone.
#
# usage: kernel/moved.sh FROM TO
#
# FROM is a folder of kernel/hooks; TO a folder of kernel/base, of which `suite` is
# enough, or a directory with the source of Linux.
set -euo pipefail
unset CDPATH

# Ended, it waits for what it has started: that works on what is removed at the end.
trap 'exit 143' TERM
trap 'exit 130' INT
trap 'exit 129' HUP

[ $# = 2 ] || { echo 'usage: kernel/moved.sh FROM TO' >&2; exit 2; }
kernel=$(cd "$(dirname "$0")" && pwd)
patches=("$kernel/fixes/$1"/*.patch "$kernel/hooks/$1"/*.patch)
from=$("$kernel/build.sh" source "$1")
if [ -f "$2/Kbuild" ]; then
	to=$(cd "$2" && pwd)
else
	to=$("$kernel/build.sh" source "$2")
fi
# Beside the sources, as copies are made by hard links; or else where there is room.
work=$(mktemp -d "$(dirname "$from")/moved.XXXXXX")
trap 'rm -rf "$work"' EXIT

files() { sed -n 's|^--- a/||p' "${patches[@]}" | sort -u; }

tell_files() {
	local file
	echo 'Lines of the files that fixes and hooks change, as they were, new and gone:'
	while read -r file; do
		if [ ! -e "$to/$file" ]; then
			printf '  %-40s gone\n' "$file"
		else
			git diff --no-index --numstat "$from/$file" "$to/$file" |
				awk -v file="$file" -v lines="$(wc -l <"$from/$file")" \
					'{ printf "  %-40s %5d  +%d -%d\n", file, lines, $1, $2 }' || true
		fi
	done < <(files)
}

# Each patch is applied as far as it goes, as the next one builds on it. What applies
# with fuzz may have come to the wrong place.
tell_hunks() {
	local file patch
	echo 'Hunks:'
	while read -r file; do
		[ ! -e "$to/$file" ] || install -D -m 644 "$to/$file" "$work/tree/$file"
	done < <(files)
	for patch in "${patches[@]}"; do
		printf '  %s/%s\n' "$(basename "$(dirname "$(dirname "$patch")")")" "$(basename "$patch")"
		patch -f -p1 -d "$work/tree" --no-backup-if-mismatch -r "$work/rejected" --verbose <"$patch" |
			awk '/^patching file/ { file = $3 }
				/^Hunk .* (FAILED|with fuzz)/ { print "    " file ": " $0; next }
				/^Hunk .* succeeded/ { well++ }
				END { print "    " well+0 " as they are" }' || true
		[ ! -s "$work/rejected" ] || sed 's/^/      /' "$work/rejected"
		rm -f "$work/rejected"
	done
}

calls() { # FILE…: names that something is called by
	grep -hoE '\b[a-zA-Z_][a-zA-Z0-9_]+\(' "$@" | tr -d '(' | sort -u
}

calls_below() { # SOURCE
	grep -rhoE --include='*.[ch]' '\b[a-zA-Z_][a-zA-Z0-9_]+\b' \
		"$1"/include/linux "$1"/include/asm-generic "$1"/mm "$1"/arch/x86/include "$1"/lib "$1"/fs/proc | sort -u
}

tell_names() {
	echo 'Called by the engine, and gone:'
	sed -n 's/^+//p' "${patches[@]}" >"$work/added.c"
	calls_below "$from" >"$work/were"
	calls_below "$to" >"$work/are"
	calls "$work/added.c" "$kernel"/files/mm/nuksm/*.[ch] |
		comm -12 - "$work/were" | comm -23 - "$work/are" |
		while read -r name; do
			grep -qE "^[a-z].*[ *]$name\(.*[^;]$" "$kernel"/files/mm/nuksm/*.[ch] || echo "  $name"
		done
	echo '(What is still there may take other arguments: the compiler tells.)'
}

tell_files
tell_hunks
tell_names
