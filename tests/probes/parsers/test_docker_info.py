"""The output of `docker info`, as text and as JSON."""

from __future__ import annotations

import pytest

from tfdoctor.probes.parsers.docker_info import parse_docker_info


@pytest.mark.parametrize(
    ("text", "runtimes", "default", "server"),
    [
        (" Server Version: 99.0.1\n Runtimes: io.containerd.runc.v2 nvidia runc\n Default Runtime: runc\n",
         ("io.containerd.runc.v2", "nvidia", "runc"), "runc", "99.0.1"),
        ('{"Runtimes": {"nvidia": {"path": "x"}, "runc": {}}, "DefaultRuntime": "nvidia", "x": 1}',
         ("nvidia", "runc"), "nvidia", None),
        ("map[io.containerd.runc.v2:{runc [] <nil>} nvidia:{nvidia-container-runtime [] <nil>}]",
         ("io.containerd.runc.v2", "nvidia"), None, None),
        ("Cannot connect to the Docker daemon", (), None, None),
    ],
)  # fmt: skip
def test_docker_info(text: str, runtimes: tuple[str, ...], default: str | None, server: str | None) -> None:
    parsed = parse_docker_info(text)
    assert (parsed.runtimes, parsed.default_runtime, parsed.server_version) == (runtimes, default, server)
    assert parsed.nvidia_runtime == ("nvidia" in runtimes)
