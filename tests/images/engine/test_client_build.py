"""Tests of builds through Docker's own client, which a script stands in for."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from images.engine.fake_engine import FakeApi, make_engine
from tfdoctor.images.engine import BuildFailedError, BuildRequest, EngineError
from tfdoctor.images.engine.client_build import build_with_client, find_buildkit_client

if TYPE_CHECKING:
    from pathlib import Path

    from tfdoctor.images.engine import BuildEvent, ContainerEngine

ID = "sha256:" + "b" * 64
REQUEST = BuildRequest(
    "FROM x\n",
    {"app/a.py": b"pass\n"},
    "t:1",
    arguments={"A": "1"},
    network="host",
    secrets={"pip.conf": b"sesame"},
)
PROGRESS = """\
#1 [internal] load build definition from Dockerfile
#1 transferring dockerfile: 99B done
#1 DONE 0.0s

#4 [stage-0 1/3] FROM docker.io/library/x
#4 sha256:925b78df487b88de70a3e24177a4c47f38930b1fd00608eff5dc009bbee05372
#4 CACHED

#5 [2/3] RUN pip install a
#5 0.320 Collecting a
#5 1.500 Collecting b

#5 [2/3] RUN pip install a
"""


@pytest.fixture
def engine() -> ContainerEngine:
    return dataclasses.replace(make_engine(FakeApi()), api_version=(1, 41), url="unix:///s")


def make_client(folder: Path, script: str) -> tuple[str, ...]:
    path = folder / "docker"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return (str(path), "build")


def build(engine: ContainerEngine, folder: Path, script: str) -> tuple[str, list[BuildEvent]]:
    events: list[BuildEvent] = []
    return build_with_client(engine, make_client(folder, script), REQUEST, events.append), events


def test_secret_is_a_private_file_and_progress_is_reported(engine: ContainerEngine, tmp_path: Path) -> None:
    script = f"""
    echo "$@" >{tmp_path}/arguments; echo "$DOCKER_HOST" >{tmp_path}/host
    while [ $# -gt 1 ]; do
      case $1 in --iidfile) echo {ID} >$2;; --secret) f=${{2#*src=}}; cat $f; stat -c %a $(dirname $f);; esac; shift
    done >{tmp_path}/seen
    cat $1/Dockerfile $1/app/a.py >>{tmp_path}/seen
    cat >&2 <<'E'
{PROGRESS}E"""
    image, events = build(engine, tmp_path, script)
    assert image == ID
    assert (tmp_path / "seen").read_text() == "sesame700\nFROM x\npass\n"
    assert (tmp_path / "host").read_text() == "unix:///s\n"
    arguments = (tmp_path / "arguments").read_text()
    assert "sesame" not in arguments
    assert "--network host" in arguments
    assert "--build-arg A=1" in arguments
    assert [(event.kind, event.text, event.step_number, event.step_count) for event in events] == [
        ("step", "FROM docker.io/library/x", 1, 3),
        ("cached", "FROM docker.io/library/x", 1, 3),
        ("step", "RUN pip install a", 2, 3),
        ("output", "Collecting a", 2, 3),
        ("output", "Collecting b", 2, 3),
    ]


def test_failed_step_is_named_with_its_output(engine: ContainerEngine, tmp_path: Path) -> None:
    end = (
        "#5 2.0 ERROR: No matching distribution found for b\\n#5 ERROR: executor failed running: exit code: 1"
    )
    script = f"cat >&2 <<'E'\n{PROGRESS}E\nprintf '{end}' >&2\nexit 1"
    with pytest.raises(BuildFailedError) as failure:
        build(engine, tmp_path, script)
    error = failure.value
    assert error.step == "RUN pip install a"
    assert error.output[-1] == "ERROR: No matching distribution found for b"
    assert "executor failed" in error.message
    assert "index does not have it" in error.hint


@pytest.mark.parametrize("script", ["echo 'ERROR: no buildx' >&2; exit 1", "kill -9 $$"])
def test_client_that_fails_is_an_engine_error(engine: ContainerEngine, tmp_path: Path, script: str) -> None:
    with pytest.raises(EngineError) as failure:
        build(engine, tmp_path, script)
    assert "could not build" in failure.value.message
    assert not isinstance(failure.value, BuildFailedError)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ('[ "$1" = buildx ] && exit 0', ["buildx", "build", "--load"]),
        ('[ "$1" = --version ] && echo "Docker version 20.10.24+dfsg1, build 5d6db84"', ["build"]),
        ('[ "$1" = --version ] && echo "Docker version 28.2.2, build e6534b4"', None),
        ('[ "$1" = --version ] && echo "Docker version 19.03.1, build x"', None),
        ('[ "$1" = --version ] && echo "podman version 4.3.1"', None),
    ],
)
def test_buildkit_needs_a_client_that_has_it(
    engine: ContainerEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    expected: list[str] | None,
) -> None:
    docker, _ = make_client(tmp_path, script)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert find_buildkit_client(engine) is None  # DOCKER_BUILDKIT=0
    monkeypatch.delenv("DOCKER_BUILDKIT")
    assert find_buildkit_client(engine) == (None if expected is None else (docker, *expected))
    assert find_buildkit_client(dataclasses.replace(engine, name="podman")) is None
    assert find_buildkit_client(dataclasses.replace(engine, api_version=(1, 40))) is None
