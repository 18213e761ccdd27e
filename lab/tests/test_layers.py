# SPDX-License-Identifier: GPL-2.0-only
"""The check of who imports whom finds what it is there for."""

import importlib.util
import tomllib
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/layers.py"

SOUND = {
    "main.rs": "mod cli;\nmod commands;\nmod shared;\nuse cli::Cli;\n",
    "cli.rs": "use crate::commands::{place, tune::TuneArgs};\npub struct Cli;\n",
    "commands/mod.rs": "pub mod place;\npub mod tune;\n",
    "commands/place.rs": "use crate::shared::Stop;\n// use crate::cli::Cli;\n",
    "commands/tune.rs": "use crate::shared::stop;\nuse std::fs;\n",
    "shared/mod.rs": "pub mod stop;\npub use stop::Stop;\n",
    "shared/stop.rs": "mod tests {\n    use super::*;\n}\n",
}


def complaints(root: Path, changes: dict[str, str]) -> list[str]:
    spec = importlib.util.spec_from_file_location("layers", SCRIPT)
    assert spec and spec.loader
    layers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(layers)
    for name, text in (SOUND | changes).items():
        path = root / "nuksm/src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found: list[str] = layers.complaints_of(root)
    return found


def test_a_tree_in_order_is_left_in_peace(tmp_path: Path) -> None:
    assert complaints(tmp_path, {}) == []


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"commands/place.rs": "use super::tune;\n"},
            "commands::place imports commands::tune",
        ),
        (
            {"commands/tune.rs": "use crate::cli::Cli;\n"},
            "commands::tune imports cli",
        ),
        (
            {"shared/stop.rs": "use crate::commands::place::{run, Other};\n"},
            "shared::stop imports commands::place",
        ),
        (
            {"shared/stop.rs": "fn f() { crate::shared::g() }\n"},
            "a circle: shared::stop -> shared -> shared::stop",
        ),
        (
            {"shared/stop.rs": "mod tests {\n    use super::super::X;\n}\n"},
            "a circle: shared::stop -> shared -> shared::stop",
        ),
    ],
)
def test_each_mistake_is_named(
    tmp_path: Path, changes: dict[str, str], complaint: str
) -> None:
    found = complaints(tmp_path, changes)
    assert any(complaint in line for line in found), found


def test_packages_say_whose_they_are() -> None:
    manifests = sorted((SCRIPT.parents[1] / "crates").glob("*/Cargo.toml"))
    names = {
        path.parent.name: tomllib.loads(path.read_text())["package"]["name"]
        for path in manifests
    }
    assert names.pop("nuksm") == "nuksm"
    assert names == {directory: f"nuksm-{directory}" for directory in names}
    assert names
