#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Runs apt for the packages of one of the kernels that the engine is made for. Those
# of this machine's release come from its own lists. Where base/VERSION/suite names
# another suite of Debian's, it is looked up in lists of their own, in the cache:
# this machine's package sources stay as they are.
#
# usage: kernel/apt.sh VERSION update|show|search|download [ARGUMENT…]
set -euo pipefail
unset CDPATH

usage='usage: kernel/apt.sh VERSION update|show|search|download [ARGUMENT…]'
version=${1:?$usage} what=${2:?$usage}
shift 2
kernel=$(cd "$(dirname "$0")" && pwd)
cache=$(realpath -m "${NUKSM_CACHE:-${XDG_CACHE_HOME:-${HOME:?is not set: set it, or NUKSM_CACHE}/.cache}/nuksm}")
suite=$kernel/base/$version/suite
options=(-qq -o APT::Sandbox::User=root)

# shellcheck disable=SC2016 # apt's own names
mirror() { # that this machine's own packages come from
	apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(SUITE)' 'Created-By: Packages' 2>/dev/null |
		awk '$1 == "Debian" && $3 !~ /security/ && !uri { uri = $2 } END { print uri }'
}

lists_of_their_own() {
	local lists name uri
	name=$(cat "$suite")
	lists=$cache/apt/$name
	mkdir -p "$lists/lists/partial" "$lists/archives/partial"
	if [ ! -s "$lists/sources.list" ]; then
		uri=$(mirror || true)
		echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
			"${uri:-http://deb.debian.org/debian} $name main" >"$lists/sources.list"
	fi
	options+=(
		-o Dir::Etc::sourcelist="$lists/sources.list" -o Dir::Etc::sourceparts=-
		-o Dir::State::lists="$lists/lists" -o Dir::Cache="$lists"
	)
}

update() {
	exec 7>"$cache/apt.lock"
	until flock -w 1 7; do [ $? = 1 ] || exit 66; done # a signal is heard between two tries
	if [ -r "$suite" ] || [ "$(id -u)" = 0 ]; then
		exec apt-get "${options[@]}" update
	else
		exec sudo -n apt-get "${options[@]}" update
	fi
}

mkdir -p "$cache"
[ ! -r "$suite" ] || lists_of_their_own
case $what in
update) update ;;
show | search) exec apt-cache "${options[@]}" "$what" "$@" ;;
download) exec apt-get "${options[@]}" download "$@" ;;
*) echo "$usage" >&2; exit 2 ;;
esac
