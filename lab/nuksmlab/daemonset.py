# SPDX-License-Identifier: GPL-2.0-only
"""The manifest that operators give to Kubernetes, taken apart."""

from typing import Any

import yaml

from nuksmlab import paths

FILE = paths.REPOSITORY / "packaging" / "kubernetes" / "daemonset.yaml"

Resource = dict[str, Any]


def resources(text: str | None = None) -> dict[str, Resource]:
    """By kind; there is one of each."""
    documents = list(yaml.safe_load_all(FILE.read_text() if text is None else text))
    result = {document["kind"]: document for document in documents}
    assert len(result) == len(documents)
    return result


def pod() -> Resource:
    spec = resources()["DaemonSet"]["spec"]["template"]["spec"]
    assert isinstance(spec, dict)
    return spec


def container() -> Resource:
    [only] = pod()["containers"]
    assert isinstance(only, dict)
    return only
