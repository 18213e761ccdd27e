# SPDX-License-Identifier: GPL-2.0-only
"""`nuksm report`, by the program that was built, read in a real browser."""

import os
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from nuksmlab import program, recordings

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PICTURES = (
    *("savings", "memory", "states", "ksmd", "cpu"),
    *("nodes", "local", "tenants", "remote"),
)
MERGING = [0, 1000, 2000, 3000, 4000]
NOTHING = [0, 0, 0, 0, 0]


class Page(HTMLParser):
    """What a report holds: its pictures, and its tables as lists of cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.sections: dict[str, int] = {}
        self.lines = 0
        self.rows: list[list[str]] = []
        self.items: list[str] = []
        self.words: list[str] = []
        self._section = ""
        self._into: list[str] | None = None
        self.feed(text)

    def handle_starttag(
        self, tag: str, attributes: list[tuple[str, str | None]]
    ) -> None:
        match tag:
            case "section":
                self._section = dict(attributes).get("id") or ""
            case "svg":
                count = self.sections.get(self._section, 0)
                self.sections[self._section] = count + 1
            case "polyline":
                self.lines += 1
            case "tr":
                self.rows.append([])
            case "td" | "th":
                self._into = self.rows[-1]
                self._into.append("")
            case "li":
                self._into = self.items
                self._into.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "li"):
            self._into = None

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if self._into is not None:
            self._into[-1] += data

    def row(self, name: str) -> list[str]:
        return next(row[1:] for row in self.rows if row and row[0] == name)


def browse(page: Path, *options: str) -> str:
    """Opens the page without a window; what the browser prints."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert browser, "no browser: scripts/setup.sh test installs one"
    command = [
        *(browser, "--headless", "--no-sandbox", "--disable-gpu"),
        *("--disable-dev-shm-usage", "--hide-scrollbars"),
        *(f"--user-data-dir={page.parent / 'profile'}", *options, page.as_uri()),
    ]
    environment = {**os.environ, "HOME": str(page.parent)}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, check=True
    )
    return done.stdout


def report(output: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return program.run("report", "--output", str(output), *map(str, arguments))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of one recording without merging and one with it."""
    folder = tmp_path_factory.mktemp("two")
    page = folder / "report.html"
    without = recordings.write(folder / "without.jsonl", NOTHING)
    merging = recordings.write(folder / "with.jsonl", MERGING)
    done = report(page, without, merging, "--png", folder / "png")
    assert done.returncode == 0, done.stderr
    return page


@pytest.fixture(scope="module")
def seen(two: Path) -> Page:
    return Page(browse(two, "--dump-dom"))


def test_browser_finds_every_picture_once_per_recording(seen: Page) -> None:
    assert seen.sections == dict.fromkeys(PICTURES, 2)
    assert seen.lines > 20


def test_browser_finds_the_figures(seen: Page) -> None:
    zeros = ["0", "0", "0"]
    assert seen.row("pages sharing") == [*zeros, "2,000", "0", "4,000", "2,000"]
    saved = ["7.7 MiB", "0.0 KiB", "15.4 MiB", "7.7 MiB"]
    assert seen.row("saved, net")[3:] == saved
    assert seen.row("CPU of ksmd, of one CPU")[:3] == ["5.0 %"] * 3
    assert seen.row("CPU of the host, of all CPUs")[:3] == ["10.0 %"] * 3
    assert seen.row("memory used")[-1] == "-7.8 MiB"
    assert seen.row("node 0: used locally")[3:6] == ["50.0 %"] * 3
    assert seen.row("vm-1: remote part of them")[3:6] == ["100.0 %"] * 3


def test_browser_finds_whose_recordings_they_are(seen: Page) -> None:
    times = ["2025-11-24 16:00:00", "2025-11-24 16:00:40"]
    for name in ("without", "with"):
        assert seen.row(name) == ["host-a", "Linux 6.12.117", *times, "5"]


@pytest.mark.parametrize("width", [400, 1200])
def test_page_is_drawn_and_not_blank(two: Path, tmp_path: Path, width: int) -> None:
    picture = tmp_path / "page.png"
    browse(two, f"--screenshot={picture}", f"--window-size={width},3000")
    pixels = matplotlib.image.imread(picture)[..., :3].reshape(3000, -1, 3)
    ground = pixels[0, 0]
    is_ink = np.abs(pixels - ground).max(axis=2) > 0.1
    # Something in each part of the page, and colours besides the text's.
    for part in np.array_split(is_ink, 10):
        assert part.mean() > 0.005
    colourful = pixels.max(axis=2) - pixels.min(axis=2) > 0.2
    assert colourful.sum() > 200


def test_pictures_alone_are_not_blank(two: Path) -> None:
    folder = two.parent / "png"
    names = {path.name for path in folder.iterdir()}
    assert names == {
        f"{name}-{recording}.png"
        for name in PICTURES
        for recording in ("1-without", "2-with")
    }
    for path in folder.iterdir():
        pixels = matplotlib.image.imread(path)[..., :3]
        assert pixels.shape[1] == 1120
        # Letters make most of the ink of an empty frame.
        assert (pixels.max(axis=2) < 0.5).mean() > 0.005, path.name


def test_torn_file_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    lines = recordings.lines(MERGING)
    lines[3] = lines[3][:200]
    torn = tmp_path / "torn.jsonl"
    torn.write_text("\n".join(lines)[:-100])
    page = tmp_path / "report.html"
    done = report(page, torn)
    assert done.returncode == 0
    assert "torn: line 4 is passed over" in done.stderr
    assert "torn: line 6 is passed over" in done.stderr
    seen = Page(page.read_text())
    assert seen.row("torn")[-1] == "3"
    assert [item.split(":")[1].split(" is")[0] for item in seen.items] == [
        " line 4",
        " line 6",
    ]


def test_empty_file_beside_a_good_one(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    good = recordings.write(tmp_path / "good.jsonl", MERGING)
    page = tmp_path / "report.html"
    assert report(page, empty, good).returncode == 0
    seen = Page(page.read_text())
    assert seen.items == ["empty: the file has no samples"]
    assert "nothing in this recording" in seen.words


def test_nothing_to_report_is_an_error_and_writes_nothing(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    page = tmp_path / "report.html"
    done = report(page, empty)
    assert done.returncode == 1
    assert "no file has a sample" in done.stderr
    assert not page.exists()


@pytest.mark.parametrize("text", ["host,kernel\nbig,6.12\n", "\x00\x01\n", "[]\n"])
def test_other_files_are_refused_by_name(tmp_path: Path, text: str) -> None:
    other = tmp_path / "other.csv"
    other.write_text(text)
    done = report(tmp_path / "report.html", other)
    assert done.returncode == 1
    assert "other.csv is no recording in JSON lines (line 1" in done.stderr


def test_mixed_kernels_are_told_apart(tmp_path: Path) -> None:
    lines = recordings.lines(MERGING)
    lines[4:] = [line.replace("6.12.117", "6.18.1") for line in lines[4:]]
    mixed = tmp_path / "mixed.jsonl"
    mixed.write_text("\n".join(lines))
    page = tmp_path / "report.html"
    assert report(page, mixed).returncode == 0
    kernels = [row[2] for row in Page(page.read_text()).rows if row[0] == "mixed"]
    assert kernels == ["Linux 6.12.117", "Linux 6.18.1"]
