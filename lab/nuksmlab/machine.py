# SPDX-License-Identifier: GPL-2.0-only
"""Boots a kernel on a machine of N nodes and runs one command in it.

The guest sees the host's files read-only, and one output directory read-write.
"""

import contextlib
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nuksmlab import guard, paths

REMOTE_DISTANCE = 21
# Latency in ns and bandwidth that firmware claims; emulation knows no difference.
FAST_MEMORY, SLOW_MEMORY = (100, "16G"), (1000, "1G")
CONSOLE = "console.txt"
SAID = "output.txt"
STARTED = "started"
CONSOLE_LINES = 20
HEARTBEAT_SECONDS = 5.0
RELAY_SECONDS = 0.2
# Of warnings there is one in every boot: all of QEMU's processors seem to share a
# cache, which on several nodes cannot be. A page that cannot leave memory
# which is to go offline is dumped, too, and is no fault.
FAULT = re.compile(
    r"BUG: |kernel BUG at|Oops: |general protection fault|KASAN: "
    r"|WARNING: (?!.* topology_sane)|possible circular locking|inconsistent lock state"
    r"|INFO: task .* blocked|rcu_\w+ (self-)?detected"
    r"|kmemleak: .* new suspected"
    r"|page dumped because: (?!unmovable|isolation|migration)"
)

# Of data races only the engine's, and KSM's own, count here.
RACE = re.compile(r"BUG: KCSAN: .* in (.*)")
OURS = re.compile(
    r"ksm|rmap_item|stable_(node|tree)|try_to_merge|cmp_and_merge|write_protect_page"
    r"|replace_page|calc_checksum|break_cow|get_mergeable|sharing_candidate"
    r"|\bchain\b|chain_prune|advisor|get_kpfn_nid|wait_while_offlining|scan_time"
    r"|\brun_store|(sleep_millisecs|pages_\w+|max_page_sharing|full_scans"
    r"|merge_across_nodes|use_zero_pages|smart_scan|general_profit)_(show|store)"
)
# Stock's, and harmless: counters of a process, which KSM changes, are shown.
ACCEPTED = re.compile(
    r"^(?!.*nuksm).*\b(proc_pid_ksm_stat|ksm_process_profit)\b"
    # It reads limits plainly, which stock, too, changes meanwhile by xchg().
    r"|\bpage_counter_try_charge\b"
)


class MachineError(Exception):
    """The machine did not do what it was started for."""


class BootError(MachineError):
    """The kernel did not get as far as to start the command."""


@dataclass(frozen=True)
class Machine:
    """One CPU per node, the same memory on each, all remote nodes equally far.

    With a slow tier there is one node more, of slow memory and without a CPU.
    """

    nodes: int
    node_mib: int
    slow_tier: bool = False

    def arguments(self) -> list[str]:
        every = self.nodes + self.slow_tier
        result = ["--cpus", str(self.nodes), "-m", f"{every * self.node_mib}M"]
        for node in range(self.nodes):
            result += ["--numa", f"{self.node_mib}M,cpus={node}"]
        if self.slow_tier:
            result += ["--numa", f"{self.node_mib}M,initiator=0"]
        for node in range(every):
            for other in range(node + 1, every):
                distance = f"{node},{other}={REMOTE_DISTANCE}"
                result += ["--numa-distance", distance]
        return result

    def tiers(self) -> str:
        """For QEMU: how fast each node's memory is, where that is not the same."""
        if not self.slow_tier:
            return ""
        result = ["-machine hmat=on"]
        for cpu in range(self.nodes):
            for node in range(self.nodes + 1):
                slow = node == self.nodes
                of = f"-numa hmat-lb,initiator={cpu},target={node},hierarchy=memory"
                nanoseconds, bandwidth = SLOW_MEMORY if slow else FAST_MEMORY
                result += [
                    f"{of},data-type=access-latency,latency={nanoseconds}",
                    f"{of},data-type=access-bandwidth,bandwidth={bandwidth}",
                ]
        return " ".join(result)


def tool(name: str) -> str:
    """A program from the same virtual environment as this one."""
    return str(Path(sys.executable).parent / name)


def environment() -> dict[str, str]:
    """The tools of the virtual environment first; sbin, which users' PATH lacks."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin:/sbin"
    return {**os.environ, "PATH": path}


# As vng has it, and what was read stays in memory: nothing in the host's files that
# the guest reads changes meanwhile. pytest starts in half the time.
ROOT_FLAGS = (
    "rootflags=version=9p2000.L,trans=virtio,access=any,msize=524288,cache=loose"
)
# QEMU 7.2 translates guest code without locking the page it is on. When another
# virtual CPU patches that code at this moment, as the kernel's static keys do,
# a stale translation can stay, which would explain the guest kernel's deaths seen
# twice while four-node machines booted. With all virtual CPUs on one thread they
# cannot race; a boot takes no longer (14.4 s, and 14.3 s with a thread for each).
# A plain CPU: with all that QEMU can emulate the same work took 1.16 to 1.24 times as
# long (in turn, three times each), as the kernel and C's library use what there is.
EMULATION = "-accel tcg,thread=single -cpu qemu64"
# Not where KVM guests run inside: on one thread 4 of 7 hung, spinning with interrupts
# off, on a thread each 0 of 16. By its source, QEMU 7.2 may deliver an interrupt that
# KVM injects twice, if it leaves its loop before the guest exits. On either, guests
# lose their timers: nothing in them may wait for time to pass.
NESTING = "-accel tcg,thread=multi"
# Where races are looked for, they have to be possible.
PARALLEL = "-accel tcg,thread=multi -cpu qemu64"
# The kernel counts ticks for a moment, and gives up if there are too few, which on a
# busy host is so: "IO-APIC + timer doesn't work!", seen with a load of 9 on 2 CPUs.
NO_TIMER_CHECK = "no_timer_check"
# A host that stalls for half a minute is no fault of the guest's kernel: its watchdogs
# wait for minutes, as the debug kernel's do. RCU's takes no more.
RCU_WAITS = "rcupdate.rcu_cpu_stall_timeout=300"
WATCHDOGS_WAIT = (
    RCU_WAITS,
    "watchdog_thresh=60",  # twice that, of one that has the CPU
    "sysctl.kernel.hung_task_timeout_secs=300",
)
BEFORE_GUESTS = (sys.executable, "-m", "nuksmlab.nested")


def vng_command(  # noqa: PLR0913 (as for boot)
    machine: Machine,
    kernel: Path,
    kvm: bool,
    output: Path,
    *,
    append: str = "",
    qemu_options: str = "",
    nested: bool = False,
    parallel: bool = False,
) -> list[str]:
    emulation = NESTING if nested else PARALLEL if parallel else EMULATION
    options = " ".join(
        filter(None, ["" if kvm else emulation, machine.tiers(), qemu_options])
    )
    kernel_arguments = [
        ROOT_FLAGS,
        *WATCHDOGS_WAIT,
        *([] if kvm else [NO_TIMER_CHECK]),
        *(["maxcpus=1"] if nested else []),
        append,
    ]
    return [
        tool("vng"),
        "-r",
        str(kernel),
        *(() if kvm else ("--disable-kvm",)),
        *((f"--qemu-opts={options}",) if options else ()),
        *machine.arguments(),
        *("--append", " ".join(filter(None, kernel_arguments))),
        *("--verbose", "--user", "root", "--rwdir", str(output), "--"),
        f"sh {shlex.quote(str(output / 'guest.sh'))}",
    ]


def guest_script(command: Sequence[str], output: Path) -> str:
    """The exit status goes through a file: it then also tells a crash from an end.

    So does what the command says: how vng passes that on depends on whether the
    host has udev.
    """
    place = shlex.quote(str(output))
    return f"""#!/bin/sh
exec >{place}/{SAID} 2>&1
echo >{place}/{STARTED}
export PATH={shlex.quote(environment()["PATH"])}
export PYTHONPATH={shlex.quote(str(paths.REPOSITORY / "lab"))}
export PYTHONDONTWRITEBYTECODE=1 NUKSM_OUTPUT={place}
cd {shlex.quote(str(paths.REPOSITORY))} || exit 1
{shlex.join(command)}
status=$?
dmesg >{place}/dmesg.txt && echo $status >{place}/status
"""


def relay(
    process: subprocess.Popen[bytes], output: Path, seconds: float, quiet: bool
) -> None:
    """Passes on what the guest says, line by line; tells that it boots until then.

    Whole lines, as another machine may be saying something at the same time. A guest
    that says nothing for so many seconds hangs.
    """
    with contextlib.suppress(OSError):  # there may be none
        os.set_blocking(1, True)  # else what a slow reader has no room for is an error
    start = silent_since = time.monotonic()
    beat = start + HEARTBEAT_SECONDS
    ended, booting, begun = False, True, b""
    with (output / SAID).open("rb") as said:
        while not ended:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(RELAY_SECONDS)
                ended = True
            lines, newline, begun = (begun + said.read()).rpartition(b"\n")
            data = lines + newline + (begun if ended else b"")
            now = time.monotonic()
            if data:
                silent_since = now
            elif not ended and now - silent_since > seconds:
                raise MachineError(f"the machine said nothing for {seconds:.0f} s")
            if quiet:
                continue
            if data:
                booting = False
                sys.stdout.buffer.write(data)
                sys.stdout.flush()
            elif booting and now > beat:
                beat += HEARTBEAT_SECONDS
                print(f"  booting, {now - start:.0f} s", flush=True)


def faults(log: str) -> list[str]:
    """The lines by which a kernel reports that it did something wrong."""

    def ours(line: str) -> bool:
        race = RACE.search(line)
        if not race:
            return True
        return bool(OURS.search(race[1])) and not ACCEPTED.search(race[1])

    return [line for line in log.splitlines() if FAULT.search(line) and ours(line)]


def result(output: Path) -> int:
    """The command's exit status, if the guest's kernel got that far unharmed."""
    status = output / "status"
    if not status.is_file():
        console = (output / CONSOLE).read_text(errors="replace").splitlines()
        last = "\n".join(console[-CONSOLE_LINES:])
        error = MachineError if (output / STARTED).exists() else BootError
        raise error(f"the machine ended before its command did:\n{last}")
    found = faults((output / "dmesg.txt").read_text(errors="replace"))
    if found:
        raise MachineError("the guest's kernel reports: " + "; ".join(found))
    return int(status.read_text())


def prepare(command: Sequence[str], output: Path) -> None:
    """Puts the guest's script into the output directory, and nothing older."""
    output.mkdir(parents=True, exist_ok=True)
    for name in (STARTED, "status", "dmesg.txt"):
        (output / name).unlink(missing_ok=True)
    (output / SAID).write_bytes(b"")
    (output / "guest.sh").write_text(guest_script(command, output))


def run(  # noqa: PLR0913 (as for boot)
    command_line: Sequence[str],
    command: Sequence[str],
    output: Path,
    seconds: float,
    *,
    quiet: bool = False,
    held: Sequence[int] = (),
) -> int:
    """Runs the command in the guest that `command_line` starts; returns its status.

    `held` as of guard.start.
    """
    prepare(command, output)
    (output / CONSOLE).write_bytes(b"")
    # QEMU writes to it by an offset of its own; what else is said goes to its end.
    with (output / CONSOLE).open("ab") as console:
        process = guard.start(
            command_line,
            grace=0,
            stdout=console,
            stderr=console,
            environment=environment(),
            held=held,
        )
    try:
        relay(process, output, seconds, quiet)
    finally:
        guard.end(process)
    return result(output)


def boot(  # noqa: PLR0913 (each says another thing about the run)
    machine: Machine,
    kernel: Path,
    command: Sequence[str],
    output: Path,
    *,
    kvm: bool,
    seconds: float,
    quiet: bool = False,
    append: str = "",
    qemu_options: str = "",
    nested: bool = False,
    parallel: bool = False,
    held: Sequence[int] = (),
) -> int:
    """Runs the command in the machine; returns its exit status.

    If `nested`, guests by KVM can run inside; if `parallel`, emulated CPUs run at the
    same time. (A machine by KVM is left to its host.) `held` as of guard.start.
    """
    output, nested = output.absolute(), nested and not kvm
    command_line = vng_command(
        machine,
        kernel,
        kvm,
        output,
        append=append,
        qemu_options=qemu_options,
        nested=nested,
        parallel=parallel,
    )
    inside = [*BEFORE_GUESTS, *command] if nested else command
    return run(command_line, inside, output, seconds, quiet=quiet, held=held)


def boot_for_guests(  # noqa: PLR0913 (each says another thing about the run)
    machine: Machine,
    kernel: Path,
    module: str,
    arguments: Sequence[Path],
    output: Path,
    *,
    seconds: float,
) -> None:
    """Runs a module of the lab in an emulated machine, for guests by KVM inside.

    Raises MachineError if it fails.
    """
    command = [sys.executable, "-m", module, *map(str, arguments)]
    status = boot(
        machine, kernel, command, output, kvm=False, nested=True, seconds=seconds
    )
    if status != 0:
        raise MachineError(f"{output.name} ended with status {status}")
