# SPDX-License-Identifier: GPL-2.0-only
import array
import fcntl
import os
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from nuksmlab import guard, machine, uml, wait
from nuksmlab.alone import is_free


def test_each_node_has_memory_and_a_cpu_and_a_distance_to_the_others() -> None:
    arguments = " ".join(machine.Machine(3, 512).arguments())
    assert arguments == (
        "--cpus 3 -m 1536M"
        " --numa 512M,cpus=0 --numa 512M,cpus=1 --numa 512M,cpus=2"
        " --numa-distance 0,1=21 --numa-distance 0,2=21 --numa-distance 1,2=21"
    )


@pytest.mark.parametrize("kvm", [True, False])
def test_kvm_is_switched_off_where_it_does_not_work(kvm: bool) -> None:
    command = machine.vng_command(
        machine.Machine(1, 512), Path("/k/vmlinuz"), kvm, Path("/out")
    )
    assert ("--disable-kvm" in command) is not kvm


def test_guest_script_quotes_the_command(tmp_path: Path) -> None:
    script = machine.guest_script(["echo", "a b; exit 3"], tmp_path)
    assert "echo 'a b; exit 3'" in script


def write_result(output: Path, status: str, dmesg: str) -> None:
    (output / "status").write_text(status)
    (output / "dmesg.txt").write_text(dmesg)


def test_exit_status_is_passed_on(tmp_path: Path) -> None:
    write_result(tmp_path, "7\n", "all quiet\n")
    assert machine.result(tmp_path) == 7


def test_a_kernel_that_died_first_is_told_from_one_that_died_later(
    tmp_path: Path,
) -> None:
    (tmp_path / machine.CONSOLE).write_text("Kernel panic\n")
    with pytest.raises(machine.BootError):
        machine.result(tmp_path)
    (tmp_path / machine.STARTED).touch()
    with pytest.raises(machine.MachineError) as died:
        machine.result(tmp_path)
    assert not isinstance(died.value, machine.BootError)


def test_machine_that_died_is_an_error(tmp_path: Path) -> None:
    (tmp_path / machine.CONSOLE).write_text("Kernel panic - not syncing\n")
    with pytest.raises(machine.MachineError, match=r"ended before.*\nKernel panic"):
        machine.result(tmp_path)


def test_kernel_fault_is_an_error_whatever_the_command_says(tmp_path: Path) -> None:
    write_result(tmp_path, "0\n", "[ 1.0] BUG: unable to handle page fault\n")
    with pytest.raises(machine.MachineError, match="unable to handle"):
        machine.result(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        "[    0.0] WARNING: CPU: 1 PID: 0 at smpboot.c:350 topology_sane.isra.0+0x62",
        "[    9.0] page dumped because: unmovable page",
        "[    1.0] kmemleak: Kernel memory leak detector initialized",
    ],
)
def test_harmless_lines_are_no_faults(tmp_path: Path, line: str) -> None:
    write_result(tmp_path, "0\n", f"{line}\n")
    assert machine.result(tmp_path) == 0


@pytest.mark.parametrize(
    "line",
    [
        "WARNING: CPU: 1 PID: 31 at mm/ksm.c:1017 remove_rmap_item_from_tree",
        "WARNING: possible circular locking dependency detected",
        "BUG: KASAN: slab-use-after-free in ksm_scan_thread",
        "kmemleak: 2 new suspected memory leaks (see /sys/kernel/debug/kmemleak)",
        "INFO: task ksmd:31 blocked for more than 300 seconds.",
        "rcu: INFO: rcu_preempt self-detected stall on CPU",
        "page dumped because: VM_BUG_ON_FOLIO(!folio_test_ksm(folio))",
    ],
)
def test_reports_of_the_debug_kernel_are_faults(tmp_path: Path, line: str) -> None:
    write_result(tmp_path, "0\n", f"[ 1.0] {line}\n")
    with pytest.raises(machine.MachineError, match="the guest's kernel reports"):
        machine.result(tmp_path)


def test_kernel_arguments_are_appended() -> None:
    command = machine.vng_command(
        machine.Machine(1, 512),
        Path("/k/vmlinuz"),
        True,
        Path("/out"),
        append="a=1 b=2",
    )
    assert command[command.index("--append") + 1].endswith(" a=1 b=2")


@pytest.mark.parametrize("kvm", [True, False])
def test_watchdogs_of_guests_wait_for_minutes(kvm: bool) -> None:
    """A host that stalls for half a minute is no fault of theirs."""
    command = machine.vng_command(
        machine.Machine(1, 512), Path("/k/vmlinuz"), kvm, Path("/out")
    )
    arguments = dict(
        argument.rsplit("=", 1)
        for argument in command[command.index("--append") + 1].split()
        if "thresh" in argument or "timeout" in argument
    )
    assert arguments == {
        "rcupdate.rcu_cpu_stall_timeout": "300",
        "sysctl.kernel.hung_task_timeout_secs": "300",
        "watchdog_thresh": "60",
    }
    command = uml.command_line(uml.Guest(Path("/k"), 64), Path("/out"))
    assert "rcupdate.rcu_cpu_stall_timeout=300" in command


def test_a_kernel_in_user_mode_notes_its_number_where_files_are_removed(
    tmp_path: Path,
) -> None:
    kernel = tmp_path / "kernel"
    kernel.write_text('#!/bin/sh\necho "$1 $2 ${TMPDIR-none}"\n')
    kernel.chmod(0o755)
    command = uml.command_line(uml.Guest(kernel, 64), tmp_path)
    known = {**os.environ, "TMPDIR": "/temporary"}
    said = subprocess.run(command, env=known, capture_output=True, check=True)
    assert said.stdout == b"uml_dir=/temporary/ mem=64M none\n"


def test_machines_for_guests_boot_with_one_cpu_and_a_thread_for_each() -> None:
    command = " ".join(
        machine.vng_command(
            *(machine.Machine(2, 512), Path("/k/vmlinuz"), False, Path("/out")),
            nested=True,
        )
    )
    assert "maxcpus=1" in command
    assert "--cpus 2" in command
    assert "thread=multi" in command


@pytest.mark.parametrize("parallel", [False, True])
def test_emulated_cpus_take_turns_unless_races_are_looked_for(parallel: bool) -> None:
    command = machine.vng_command(
        *(machine.Machine(2, 512), Path("/k/vmlinuz"), False, Path("/out")),
        parallel=parallel,
    )
    assert f"thread={'multi' if parallel else 'single'}" in " ".join(command)


def start(code: str) -> subprocess.Popen[bytes]:
    return guard.start([sys.executable, "-c", code], grace=0)


def test_deadline_ends_a_machine_that_hangs(tmp_path: Path) -> None:
    machine.prepare(["true"], tmp_path)
    process = start("import signal; signal.pause()")
    with pytest.raises(machine.MachineError, match="said nothing for"):
        machine.relay(process, tmp_path, 0.5, quiet=False)
    guard.end(process)
    assert process.returncode is not None


def test_a_machine_that_boots_says_so(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(machine, "HEARTBEAT_SECONDS", 0.0)
    machine.prepare(["true"], tmp_path)
    process = start("import time; time.sleep(1)")
    machine.relay(process, tmp_path, wait.HANG_SECONDS, quiet=False)
    assert "booting" in capfd.readouterr().out


def test_a_machine_that_has_ended_does_not_hang(tmp_path: Path) -> None:
    machine.prepare(["true"], tmp_path)
    process = start("")
    process.wait()
    machine.relay(process, tmp_path, 0, quiet=True)


@pytest.mark.parametrize("quiet", [False, True])
def test_all_that_the_guest_says_is_passed_on(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, quiet: bool
) -> None:
    machine.prepare(["true"], tmp_path)
    code = f"open({str(tmp_path / machine.SAID)!r}, 'a').write('the last word')"
    machine.relay(start(code), tmp_path, 60, quiet)
    assert ("the last word" in capfd.readouterr().out) is not quiet


def room(pipe: int) -> int:
    held = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, held)
    return fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) - held[0]


def test_nothing_is_lost_on_a_slow_reader_who_wants_not_to_be_waited_for(
    tmp_path: Path,
) -> None:
    machine.prepare(["true"], tmp_path)
    (tmp_path / machine.SAID).write_bytes(b"word\n" * 100_000)
    code = f"""
import sys
from pathlib import Path
from nuksmlab import guard, machine, uml, wait
process = guard.start(["true"], grace=0)
machine.relay(process, Path({str(tmp_path)!r}), 60, quiet=False)
"""
    reader, writer = os.pipe2(os.O_NONBLOCK)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=writer)
    os.close(writer)
    wait.until(
        lambda: process.poll() is not None or not room(reader), lambda: "a full pipe"
    )
    os.set_blocking(reader, True)
    with os.fdopen(reader, "rb") as said:
        assert said.read() == b"word\n" * 100_000
    assert process.wait() == 0


ALONE = """
import sys
from pathlib import Path
from nuksmlab.alone import alone
with alone(Path(sys.argv[1])):
    print("alone", flush=True)
    sys.stdin.read()
"""


def test_one_at_a_time_has_a_directory_even_if_it_is_made_anew(tmp_path: Path) -> None:
    """Else what one ends with would be taken for what the other did."""
    output = tmp_path / "build" / "out"

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", ALONE, output],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    with start() as first:
        assert first.stdout
        assert first.stdout.readline() == "alone\n"
        output.mkdir()
        with start() as second:
            assert second.stdout
            waits = f"waiting for who else writes to {output}\n"
            assert second.stdout.readline() == waits
            output.rmdir()
            first.communicate()
            assert second.communicate()[0] == "alone\n"


def test_a_directory_is_the_machines_until_all_of_it_has_gone(tmp_path: Path) -> None:
    """Though who has started it was killed."""
    kernel, pid, output = (tmp_path / name for name in ("kernel", "pid", "out"))
    kernel.write_text(
        f"#!/bin/sh\necho $PPID >{pid}.new; mv {pid}.new {pid}; exec sleep 1000\n"
    )
    kernel.chmod(0o755)
    to_boot = ["uml", "--kernel", str(kernel), "--output", str(output), "--", "true"]
    process = subprocess.Popen([sys.executable, "-m", "nuksmlab", *to_boot])
    wait.until(pid.exists, lambda: "the guest")
    its_guard = int(pid.read_text())
    os.kill(its_guard, signal.SIGSTOP)
    process.kill()
    process.wait()
    with output.with_name(".out.lock").open("w") as lock:
        assert not is_free(lock)
        os.kill(its_guard, signal.SIGCONT)
        wait.until(lambda: is_free(lock), lambda: "the end of all")
