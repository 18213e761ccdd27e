#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# The first process of a guest with a database. Its arguments: the number of its marks,
# and how many rows its table has. Obeys the first serial line as a workload does; see
# lab/workloads/main.c. Nothing here waits for time to pass: a guest that is nested in an
# emulated machine may lose its timer.
export PATH=/usr/sbin:/usr/bin
number=$1 rows=$2
mkdir -p /data /dev /tmp
mknod /dev/null c 1 3
mknod /dev/urandom c 1 9
mknod /dev/ttyS0 c 4 64
exec </dev/ttyS0 >/dev/ttyS0 2>&1

ask() {
	mariadb --no-defaults -uroot -S/socket -NB -e "$1"
}

checksum() {
	local answer
	answer=$(ask 'CHECKSUM TABLE sbtest.sbtest1')
	echo "${answer##*[[:space:]]}"
}

mapfile -t server </server
echo 'CREATE DATABASE sbtest;' >/first.sql
/bound - - "${server[@]}" --datadir=/data --socket=/socket --pid-file=/pid \
	--init-file=/first.sql &>/log &
until ask '' &>/dev/null; do
	kill -0 $! || { cat /log; exit; }
done
ask "$(</table.sql)"
echo "{\"pid\": $!, \"pages\": 0, \"at\": 0}"
while read -r command operations; do
	case $command in
	warm)
		checksum >/dev/null
		echo '{"pages": 0}'
		;;
	run)
		began=${EPOCHREALTIME/./}
		/bound - "$number" sysbench oltp_read_only --db-driver=mysql --threads=1 \
			--mysql-socket=/socket --mysql-user=root --mysql-db=sbtest \
			--table_size="$rows" --skip_trx=on --rand-seed=42 --time=0 \
			--events="$operations" run &>/log.sysbench || cat /log.sysbench
		took=$((${EPOCHREALTIME/./} - began))
		printf '{"operations": %d, "operation": "transaction", "checksum": "%s", ' \
			"$operations" "$(checksum)"
		printf '"seconds": %d.%06d}\n' $((took / 1000000)) $((took % 1000000))
		;;
	*)
		exit
		;;
	esac
done
