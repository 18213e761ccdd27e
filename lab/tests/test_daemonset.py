# SPDX-License-Identifier: GPL-2.0-only
"""The DaemonSet: does Kubernetes accept it, do its parts fit together?"""

import tomllib

import kubernetes_validate
import pytest

from nuksmlab import daemonset

# The first one that knows all of its fields, and the newest there is a schema of.
VERSIONS = ("1.30", kubernetes_validate.latest_version())


def validate(text: str, version: str) -> None:
    for resource in daemonset.resources(text).values():
        kubernetes_validate.validate(resource, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_knows_every_field(version: str) -> None:
    text = daemonset.FILE.read_text()
    validate(text, version)
    with pytest.raises(kubernetes_validate.ValidationError, match="hostPid"):
        validate(text.replace("hostPID", "hostPid"), version)


def test_what_belongs_together_has_one_name() -> None:
    resources = daemonset.resources()
    spec = resources["DaemonSet"]["spec"]
    pod, container = daemonset.pod(), daemonset.container()
    name = resources["Namespace"]["metadata"]["name"]
    for kind in ("ConfigMap", "DaemonSet"):
        assert resources[kind]["metadata"]["namespace"] == name
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= labels.items()

    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert set(mounts.values()) == set(volumes)
    path, _, key = container["args"][-1].rpartition("/")
    config = resources["ConfigMap"]
    assert volumes[mounts[path]]["configMap"]["name"] == config["metadata"]["name"]
    for path in ("/sys/kernel/mm/ksm", "/run/nuksm"):
        assert volumes[mounts[path]]["hostPath"]["path"] == path

    listen = tomllib.loads(config["data"][key])["serve"]["listen"]
    [port] = container["ports"]
    annotations = spec["template"]["metadata"]["annotations"]
    assert listen == f"0.0.0.0:{port['containerPort']}"
    assert annotations["prometheus.io/port"] == str(port["containerPort"])
    assert container["readinessProbe"]["httpGet"]["port"] == port["name"]


def test_the_program_in_the_image_is_the_entry_point() -> None:
    lines = (daemonset.FILE.parents[1] / "Dockerfile").read_text().splitlines()
    assert 'ENTRYPOINT ["/usr/local/bin/nuksm"]' in lines
    assert "command" not in daemonset.container()
