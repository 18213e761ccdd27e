#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Installs the built program, or removes it.
#
# usage: [PREFIX=/usr/local] [DESTDIR=] packaging/install.sh install|uninstall
#
# A configuration file that is there already, or was changed, is left alone.
# Nothing is started: docs/decisions/0008-installed-but-not-started.md.
set -euo pipefail
unset CDPATH

repository=$(cd "$(dirname "$0")/.." && pwd)
program=$repository/target/release/nuksm
prefix=${PREFIX:-/usr/local}
root=${DESTDIR:-}
base=$root$prefix
config=$root/etc/nuksm.toml
unit=$base/lib/systemd/system/nuksm.service
# Debian's zsh looks in another directory of /usr than zsh's own default.
declare -A completions=(
	[bash]=$base/share/bash-completion/completions/nuksm
	[zsh]=$base/share/zsh/${ZSH_DIR:-site-functions}/_nuksm
	[fish]=$base/share/fish/vendor_completions.d/nuksm.fish
)

systemd() { # COMMAND…: of this machine, when it is this machine that is changed
	[ -n "$root" ] || [ ! -d /run/systemd/system ] || systemctl "$@"
}

put() { # MODE SOURCE DESTINATION
	install -D -m "$1" "$2" "$3"
}

install_all() {
	local work page shell
	[ -x "$program" ] || { echo "there is no $program yet: make program" >&2; exit 1; }
	work=$(mktemp -d)
	put 755 "$program" "$base/bin/nuksm"
	"$program" generate man "$work"
	for page in "$work"/*.8; do
		put 644 "$page" "$base/share/man/man8/${page##*/}"
	done
	for shell in "${!completions[@]}"; do
		"$program" generate completions "$shell" >"$work/completions"
		put 644 "$work/completions" "${completions[$shell]}"
	done
	sed "s|@PREFIX@|$prefix|" "$repository/packaging/nuksm.service" >"$work/unit"
	put 644 "$work/unit" "$unit"
	[ -e "$config" ] || put 644 "$repository/packaging/nuksm.toml" "$config"
	rm -r "$work"
	systemd daemon-reload
}

uninstall_all() {
	[ ! -e "$unit" ] || systemd disable --now nuksm.service
	rm -f "$base/bin/nuksm" "$base"/share/man/man8/nuksm{,-*}.8 "${completions[@]}" "$unit"
	if cmp -s "$repository/packaging/nuksm.toml" "$config"; then
		rm "$config"
	fi
	systemd daemon-reload
}

case ${1:-} in
install) install_all ;;
uninstall) uninstall_all ;;
*) grep '^# usage:' "$0" >&2; exit 2 ;;
esac
