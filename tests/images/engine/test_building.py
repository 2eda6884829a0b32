"""Tests of building on a real engine: events, errors and cleanup."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

from images.engine.conftest import PREFIX, containers_of
from tfdoctor.images.engine import BuildEvent, BuildFailedError, BuildRequest, EngineError, build
from tfdoctor.images.engine.building import make_unfinished_image_name
from tfdoctor.images.write import validate_reference

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tfdoctor.images.engine import ContainerEngine

TAG = f"{PREFIX}/built:1"
_SERIAL = itertools.count()


@pytest.fixture
def tag(engine: ContainerEngine, nothing_left: None) -> Iterator[str]:
    """Yield an image name and remove the image afterwards."""
    yield TAG
    engine.remove_image(TAG, force=True)


def request(small: str, *steps: str, tag: str = TAG, **files: str) -> BuildRequest:
    """Return a build request whose first step is unique, so that the engine's cache has none of its steps."""
    unique_step = f"RUN echo {os.getpid()} {next(_SERIAL)} >/fresh"
    return BuildRequest(
        "\n".join((f"FROM {small}", unique_step, *steps, "")),
        {name.replace("_", "."): text.encode() for name, text in files.items()},
        tag,
    )


def collect_events(events: Iterator[BuildEvent]) -> list[BuildEvent]:
    return list(events)


def test_build_reports_steps_output_and_image(engine: ContainerEngine, small: str, tag: str) -> None:
    build_request = request(
        small, "COPY note.txt /note", "RUN cat /note; printf '\\033[31mred\\033[0m\\n'", note_txt="kept\n"
    )
    events = collect_events(build(engine, build_request))
    steps = [(event.step_number, event.step_count) for event in events if event.kind == "step"]
    assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]
    output = [event.text for event in events if event.kind == "output"]
    assert output[:1] == ["kept"]
    assert all("\033" not in line for line in output)
    assert events[-1].kind == "image"
    image = engine.find_image(tag)
    assert image is not None
    assert image.id == events[-1].text
    assert image.tags == (tag,)


def test_failing_step_reports_its_last_lines(engine: ContainerEngine, small: str, nothing_left: None) -> None:
    script = (
        "i=0; while [ $i -lt 90 ]; do i=$((i+1)); echo line $i; done; sleep 0.5; echo it broke >&2; exit 7"
    )
    with pytest.raises(BuildFailedError) as caught:
        collect_events(build(engine, request(small, f"RUN {script}", "RUN echo never")))
    failure = caught.value
    assert failure.step.startswith("RUN i=0")
    assert failure.output[-1] == "it broke"
    assert failure.output[0] == "line 52"
    assert len(failure.output) == 40
    assert "returned a non-zero code: 7" in failure.message
    assert engine.find_image(TAG) is None


NO_NETWORK = (
    "WARNING: Retrying after connection broken by 'NewConnectionError(': Failed to establish a new connection: "
    "[Errno -3] Temporary failure in name resolution')': /simple/x/\nERROR: Could not find a version that satisfies "
    "the requirement x (from versions: none)\nERROR: No matching distribution found for x"
)


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("dd: error writing '/x': No space left on device", "disk is full"),
        ("SSLError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed')", "--ca-cert"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE", "--index"),
        ("Temporary failure resolving 'packages.example'", "--proxy"),
        ("ERROR: Cannot install x because these package versions have conflicting dependencies.", "loosen"),
        ("ERROR: No matching distribution found for nothing==9", "--index"),
        (NO_NETWORK, "--proxy"),
    ],
)
def test_output_of_a_failing_step_gives_the_hint(
    engine: ContainerEngine, small: str, nothing_left: None, said: str, hint: str
) -> None:
    script = "RUN cat /said; exit 1"
    with pytest.raises(BuildFailedError) as caught:
        collect_events(build(engine, request(small, "COPY said /said", script, said=said + "\n")))
    assert hint in caught.value.hint


@pytest.mark.parametrize("dockerfile", ["", "FROM", "NONSENSE x\n", "FROM a b c d\n"])
def test_invalid_dockerfile_raises(engine: ContainerEngine, nothing_left: None, dockerfile: str) -> None:
    with pytest.raises(EngineError):
        collect_events(build(engine, BuildRequest(dockerfile, {}, TAG)))


def test_unavailable_base_raises(engine: ContainerEngine, nothing_left: None) -> None:
    with pytest.raises(EngineError, match="localhost:1/none"):
        collect_events(build(engine, BuildRequest("FROM localhost:1/none:1\nRUN true\n", {}, TAG)))


def test_closing_the_iterator_stops_the_build(
    engine: ContainerEngine, small: str, nothing_left: None
) -> None:
    events = build(engine, request(small, "RUN echo started; sleep 100", "RUN echo never"))
    for event in events:
        if event.text == "started":
            break
    assert containers_of(engine, small)
    start = time.monotonic()
    events.close()
    wait_for_removal(engine, small)
    assert time.monotonic() - start < 30
    assert engine.find_image(TAG) is None


def test_an_exception_stops_the_build(engine: ContainerEngine, small: str, nothing_left: None) -> None:
    def raise_interrupt() -> None:
        for event in build(engine, request(small, "RUN echo started; sleep 100")):
            if event.text == "started":
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        raise_interrupt()
    wait_for_removal(engine, small)


def wait_for_removal(engine: ContainerEngine, image: str, seconds: float = 30) -> None:
    """Wait until no container of the image is left; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while containers_of(engine, image) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert containers_of(engine, image) == []


# ---------------------------------------------------------------- unfinished builds


def list_dangling(engine: ContainerEngine) -> set[str]:
    return {image["Id"] for image in engine.client.api.images(filters={"dangling": True})}


@pytest.fixture
def unfinished(engine: ContainerEngine) -> Iterator[str]:
    """Yield the name that an unfinished build gives to its image."""
    name = make_unfinished_image_name(TAG)
    engine.remove_image(name, force=True)
    yield name
    engine.remove_image(name, force=True)


def test_next_build_continues_from_a_failed_one(
    engine: ContainerEngine, small: str, tag: str, unfinished: str
) -> None:
    before = list_dangling(engine)
    first = request(small, "RUN echo dear", "RUN exit 1")
    for _ in range(2):  # the second build comes from the cache
        with pytest.raises(BuildFailedError):
            collect_events(build(engine, first))
        partial_image = engine.find_image(unfinished)
        assert partial_image is not None
        assert list_dangling(engine) == before, "no <none>"
    longer = BuildRequest(first.dockerfile.replace("RUN exit 1", "RUN echo more\nRUN exit 1"), {}, TAG)
    with pytest.raises(BuildFailedError):
        collect_events(build(engine, longer))
    assert engine.find_image(unfinished) != partial_image
    assert list_dangling(engine) == before
    other = request(small, "RUN exit 1")  # shares no step with the build before, whose image is removed
    with pytest.raises(BuildFailedError):
        collect_events(build(engine, other))
    assert list_dangling(engine) == before
    with pytest.raises(BuildFailedError):
        collect_events(build(engine, first))
    corrected = BuildRequest(first.dockerfile.replace("RUN exit 1", "RUN echo right"), {}, TAG)
    events = collect_events(build(engine, corrected))
    assert [event.step_number for event in events if event.kind == "cached"] == [2, 3]
    assert list_dangling(engine) == before


def test_interrupted_build_leaves_a_named_image(
    engine: ContainerEngine, small: str, unfinished: str, nothing_left: None
) -> None:
    before = list_dangling(engine)
    events = build(engine, request(small, "RUN echo started; sleep 100"))
    for event in events:
        if event.text == "started":
            break
    events.close()
    wait_for_removal(engine, small)
    assert engine.find_image(unfinished) is not None
    assert list_dangling(engine) == before


def test_build_without_a_finished_step_leaves_no_name(
    engine: ContainerEngine, small: str, unfinished: str
) -> None:
    with pytest.raises(BuildFailedError):
        collect_events(
            build(engine, BuildRequest(f"FROM {small}\nRUN exit {next(_SERIAL) % 250 + 1}\n", {}, TAG))
        )
    assert engine.find_image(unfinished) is None
    assert engine.find_image(small) is not None


@pytest.mark.parametrize("tag", ["a/b:1", "HOST:5000/a_b/c:x", "x" * 300, "...", "-a"])
def test_name_of_an_unfinished_image_is_valid(tag: str) -> None:
    assert validate_reference(make_unfinished_image_name(tag).rpartition(":")[0])
    assert re.fullmatch(
        r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", make_unfinished_image_name(tag).rpartition(":")[2]
    )


def test_two_builds_run_at_once(engine: ContainerEngine, small: str, nothing_left: None) -> None:
    tags = [f"{PREFIX}/twin:{number}" for number in (1, 2)]
    image_ids: dict[str, str] = {}

    def run_build(name: str) -> None:
        build_request = request(small, f"RUN sleep 1; echo {name} >/name", tag=name)
        image_ids[name] = collect_events(build(engine, build_request))[-1].text

    threads = [threading.Thread(target=run_build, args=(name,)) for name in tags]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    images = [engine.find_image(name) for name in tags]
    for name in tags:
        engine.remove_image(name, force=True)
    assert [image.id if image else None for image in images] == [image_ids.get(name) for name in tags]
    assert len(set(image_ids.values())) == 2


def test_steps_before_a_changed_file_are_cached(engine: ContainerEngine, small: str, tag: str) -> None:
    first = request(
        small, "RUN echo dear", "COPY requirements.txt /r.txt", "RUN cat /r.txt", requirements_txt="six\n"
    )
    collect_events(build(engine, first))
    second = BuildRequest(first.dockerfile, {"requirements.txt": b"six\nsix\n"}, TAG)
    events = collect_events(build(engine, second))
    cached = [event.step_number for event in events if event.kind == "cached"]
    assert cached == [2, 3]
    repeated_events = collect_events(build(engine, second))
    assert [event.step_number for event in repeated_events if event.kind == "cached"] == [2, 3, 4, 5]
    assert repeated_events[-1].text == events[-1].text


# ---------------------------------------------------------------- the build command


def start_build(engine: ContainerEngine, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start `tfdoctor build`, planned for any machine, with a temporary folder of its own."""
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    options = ("--tf", "2.20", "--python-version", "3.11", "--anywhere", "--no-verify", "--tag", TAG)
    return subprocess.Popen(
        [sys.executable, "-m", "tfdoctor", "build", *options, *arguments],
        env={**os.environ, "DOCKER_HOST": engine.url, "TMPDIR": str(scratch), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def assert_nothing_left(engine: ContainerEngine, image: str, folder: Path) -> None:
    wait_for_removal(engine, image)
    assert engine.find_image(TAG) is None
    assert list((folder / "scratch").iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
@pytest.mark.parametrize("where", ["--no-install-recommends", "python=$v"], ids=["step", "look"])
def test_signal_stops_a_build_and_cleans_up(
    engine: ContainerEngine,
    small: str,
    slow_base: str,
    nothing_left: None,
    tmp_path: Path,
    where: str,
    number: signal.Signals,
) -> None:
    """Send the signal during a step and while the base is probed, perhaps before its container exists."""
    with start_build(engine, tmp_path, "--base", slow_base, "-v") as process:
        deadline = time.monotonic() + 100
        while not any(where in container for container in containers_of(engine, small)):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert "Traceback" not in stderr
    assert_nothing_left(engine, small, tmp_path)


def test_build_command_reports_a_failing_step(
    engine: ContainerEngine, small: str, slow_base: str, nothing_left: None, tmp_path: Path
) -> None:
    failing = f"{PREFIX}/failing:1"
    collect_events(build(engine, BuildRequest(f"FROM {slow_base}\nRUN echo >/etc/apt-fails\n", {}, failing)))
    try:
        with start_build(engine, tmp_path, "--base", failing) as process:
            stdout, stderr = process.communicate(timeout=120)
    finally:
        engine.remove_image(failing, force=True)
    assert process.returncode == 3
    assert stdout == ""
    assert "apt-get" in stderr
    assert "| line 60" in stderr
    assert "E: No space left on device" in stderr
    assert "docker builder prune" in stderr
    assert "Traceback" not in stderr
    assert_nothing_left(engine, small, tmp_path)
