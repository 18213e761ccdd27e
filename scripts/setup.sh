#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# Installs what the purposes need, as far as it is missing: system packages by
# apt, Python packages into build/venv.
#
# usage: scripts/setup.sh demo|test|deb|kernel|kernel-deb…
#
#   demo        the program, the demo
#   test        the tests; they build kernels, too
#   deb         a package of the program
#   kernel      kernels of our own for the lab
#   kernel-deb  kernel packages to install
set -euo pipefail
unset CDPATH

purposes=" $* "
[[ $purposes =~ ^(\ (demo|test|deb|kernel|kernel-deb))+\ $ ]] || { grep '^# usage:' "$0" >&2; exit 2; }

repository=$(cd "$(dirname "$0")/.." && pwd -P)

refuse_path() { # PATH WHAT-TO-DO: makefiles, shells and QEMU read it
	local special
	special=$(printf %s "$1" | tr -d 'A-Za-z0-9_./+@~\200-\377-' && echo .) # a newline, too
	if [ "$special" != . ]; then
		echo "'$1' has '${special:0:1}' in it, which makefiles and machines cannot have: $2" >&2
		exit 1
	fi
}

refuse_path "$repository" "move it"
cache=$(realpath -m "${NUKSM_CACHE:-${XDG_CACHE_HOME:-${HOME:?is not set: set it, or NUKSM_CACHE}/.cache}/nuksm}")
refuse_path "$cache" "kernels are kept there; set NUKSM_CACHE to another place"
venv=$repository/build/venv
PATH=$PATH:/usr/sbin:/sbin
missing=()

wants() { # PURPOSE…: any of them
	local purpose
	for purpose in "$@"; do
		[[ $purposes = *" $purpose "* ]] && return
	done
	return 1
}

has() { command -v "$1" >/dev/null; }

need() { # PACKAGE CHECK…: the package is missing when the check fails
	local package=$1
	shift
	if [[ $half_done = *" $package "* ]] || ! "$@" >/dev/null 2>&1; then
		missing+=("$package")
	fi
}

# What apt was interrupted at: unpacked programs are there, but not configured.
half_done_packages() {
	! has dpkg-query || dpkg-query -W -f ' ${db:Status-Status} ${Package} \n' |
		sed -nE 's/^ (unpacked|half-(installed|configured))//p' | tr -d '\n'
}

has_header() { echo "#include <$1>" | cc -E -; }
static_busybox() { has busybox && ! ldd "$(command -v busybox)"; }
has_browser() { has chromium || has chromium-browser || has google-chrome; }
has_font() { [ -e /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf ]; }
python_is_new_enough() { python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; }
python_makes_venvs() { python3 -c 'import ensurepip, venv'; }
ca_certificates() { [ -s /etc/ssl/certs/ca-certificates.crt ]; }

rust_is_new_enough() {
	local version
	version=$(cargo --version 2>/dev/null | cut -d' ' -f2) || return 1
	[ "$(printf '%s\n' 1.85 "$version" | sort -V | head -1)" = 1.85 ]
}

# Debian keeps a current Rust under another name for its browsers' builds.
rust_packages() {
	local suffix=
	if apt-cache show cargo-web >/dev/null 2>&1; then
		suffix=-web
	fi
	if ! rust_is_new_enough; then
		missing+=("cargo$suffix" "rustc$suffix")
	fi
	if wants test; then
		need "rustfmt$suffix" cargo fmt --version
		need "rust${suffix}-clippy" cargo clippy --version
	fi
}

find_missing() {
	missing=()
	half_done=$(half_done_packages)
	need gcc has cc
	need libc6-dev has_header stdio.h
	if wants demo test; then
		need qemu-system-x86 has qemu-system-x86_64
		need busybox-static static_busybox
		need kmod has depmod
		need file has file
		need python3 has python3
		need python3-venv python_makes_venvs
		need ca-certificates ca_certificates
	fi
	if wants demo test deb; then
		rust_packages
	fi
	if wants test; then
		need shellcheck has shellcheck
		need sparse has sparse
		need chromium has_browser
		need fonts-dejavu-core has_font
		need mariadb-server-core has mariadbd
		need mariadb-client-core has mariadb
		need sysbench has sysbench
		need linux-perf has perf
		need debootstrap has debootstrap
		need squashfs-tools has mksquashfs
		need python3-minimal dpkg -s python3-minimal # for guests to share
	fi
	if wants test kernel kernel-deb; then
		need flex has flex
		need bison has bison
		need bc has bc
		need patch has patch
		need git has git
		need xz-utils has xz
		need libelf-dev has_header gelf.h
		need ccache has ccache
	fi
	if wants test deb kernel-deb; then
		need dpkg-dev has dpkg-buildpackage
		need debhelper has dh
	fi
	if wants kernel-deb; then
		need libssl-dev has_header openssl/ssl.h
		need cpio has cpio
		need kmod has depmod
		need rsync has rsync
	fi
}

as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	else
		sudo "$@"
	fi
}

may_install() { # sudo -v may want a password of who needs none
	[ "$(id -u)" = 0 ] || { has sudo && { sudo -n true 2>/dev/null || sudo -v; }; }
}

as_soon_as_unlocked() { # WHAT-IS-SAID-IF-LOCKED COMMAND…: as root
	local locked=$1 said=$repository/build/.apt-said status=1
	shift
	while [ $status != 0 ]; do
		status=0
		rm -f "$said"
		: >"$said" || return 100
		# Nothing that is started keeps the lock; or a pipe, whose end would not come.
		as_root env LC_ALL=C DEBIAN_FRONTEND=noninteractive "$@" 2>"$said" </dev/null 9>&- || status=$?
		cat "$said" >&2
		[ $status = 0 ] || grep -qF "$locked" "$said" || return 100
		[ $status = 0 ] || sleep 5
	done
}

update_lists() { # apt waits for dpkg's lock only, and apt-daily has this one at times
	as_soon_as_unlocked 'Could not get lock' apt-get update -qq
}

# An interruption left something half-done; or somebody is just installing: waits for him.
configure_the_rest() {
	# What it would ask, about changed configuration files, nobody would see: they stay.
	as_soon_as_unlocked 'lock was locked' dpkg --force-confdef --force-confold --configure -a
}

install_missing() {
	local before="${missing[*]}"
	if ! has apt-get; then
		echo "this system has no apt-get; what Debian has in these packages is needed: $before" >&2
		exit 1
	fi
	echo "to be installed by apt: $before"
	if ! may_install; then
		echo "installing these packages needs root or sudo: $before" >&2
		exit 1
	fi
	update_lists || echo "not all package lists could be updated: with those that are there" >&2
	if [ -n "$(dpkg --audit)" ]; then
		echo "to be configured by dpkg, as an installation was interrupted:$(half_done_packages)"
		configure_the_rest
	fi
	find_missing # the package lists may have been empty
	[ ${#missing[@]} -gt 0 ] || return 0
	[ "${missing[*]}" = "$before" ] || echo "to be installed, after all: ${missing[*]}"
	# It waits for dpkg's lock itself, but not for who is fetching packages.
	as_soon_as_unlocked 'Could not get lock' apt-get install -y -qq \
		-o DPkg::Lock::Timeout=-1 --no-install-recommends "${missing[@]}"
}

# By the name of what it is made of: what runs from another one goes on. Where the checkout
# is belongs to it, too, as what is run is what pip has noted as its place.
set_up_python() {
	local made_of own
	made_of=$(python3 --version && echo "$repository" && cat "$repository/lab/pyproject.toml")
	own=$repository/build/.venv-$(sha256sum <<<"$made_of" | cut -c 1-16)
	if [ ! -e "$own/.installed" ]; then
		echo "to be installed into build/venv: what lab/pyproject.toml names"
		rm -rf "$own" # what pip was interrupted at it would take for done
		python3 -m venv "$own"
		# In a process group of its own, which ends with this script. It has the lock,
		# too: who comes after a script that was killed waits until it is gone.
		set -m
		setpriv --pdeathsig TERM "$own/bin/pip" install --quiet --disable-pip-version-check \
			--editable "$repository/lab[dev]" </dev/null &
		set +m
		wait "$!"
		touch "$own/.installed"
	fi
	[ -L "$venv" ] || rm -rf "$venv"
	ln -sfn "$own" "$venv"
}

# Ended, it waits for apt, which is not to be left half-way; pip begins anew.
end_pip() { # the shell knows of it from the moment it is forked
	local job
	for job in $(jobs -p); do
		kill -- "-$job" 2>/dev/null || true
	done
	wait
}
trap end_pip EXIT
trap '' TTOU # who is in a process group of its own may write to a terminal
trap 'exit 143' TERM
trap 'exit 130' INT
trap 'exit 129' HUP

# One at a time; who comes second finds nothing missing.
mkdir -p "$repository/build"
exec 9>"$repository/build/.setup.lock"
flock -n 9 || {
	echo "waiting for another set-up"
	until flock -w 1 9; do [ $? = 1 ] || exit 66; done # a signal is heard between two tries
}

find_missing
if [ ${#missing[@]} -gt 0 ]; then
	install_missing
	find_missing
fi
if [ ${#missing[@]} -gt 0 ]; then
	echo "Still missing after the installation: ${missing[*]}" >&2
	exit 1
fi
wants demo test || exit 0
if ! python_is_new_enough; then
	echo "Python 3.11 or newer is needed; this is $(python3 --version)" >&2
	exit 1
fi
set_up_python
