"""Building on a real engine: what is told, what a failure says, and that nothing stays behind."""

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

from engine.conftest import PREFIX, containers_of
from tfdoctor.dockerfile.write import check_reference
from tfdoctor.engine import BuildEvent, BuildFailedError, BuildRequest, EngineError, build
from tfdoctor.engine.building import context_archive, make_unfinished_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tfdoctor.engine import ContainerEngine

TAG = f"{PREFIX}/built:1"
_FRESH = itertools.count()


@pytest.fixture
def tag(engine: ContainerEngine, nothing_left: None) -> Iterator[str]:
    """A name, whose image goes afterwards."""
    yield TAG
    engine.remove_image(TAG, force=True)


def request(small: str, *steps: str, tag: str = TAG, **files: str) -> BuildRequest:
    """Steps that no other test shares: what was built before is taken from the engine's cache."""
    fresh = f"RUN echo {os.getpid()} {next(_FRESH)} >/fresh"
    return BuildRequest(
        "\n".join((f"FROM {small}", fresh, *steps, "")),
        {name.replace("_", "."): text.encode() for name, text in files.items()},
        tag,
    )


def finish(events: Iterator[BuildEvent]) -> list[BuildEvent]:
    return list(events)


def test_steps_output_and_the_image(engine: ContainerEngine, small: str, tag: str) -> None:
    asked = request(
        small, "COPY note.txt /note", "RUN cat /note; printf '\\033[31mred\\033[0m\\n'", note_txt="kept\n"
    )
    events = finish(build(engine, asked))
    steps = [(event.number, event.total) for event in events if event.kind == "step"]
    assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]
    said = [event.text for event in events if event.kind == "output"]
    assert said[:1] == ["kept"]
    assert all("\033" not in line for line in said)
    assert events[-1].kind == "image"
    image = engine.image(tag)
    assert image is not None
    assert image.id == events[-1].text
    assert image.tags == (tag,)


def test_a_failing_step_and_its_last_lines(engine: ContainerEngine, small: str, nothing_left: None) -> None:
    script = (
        "i=0; while [ $i -lt 90 ]; do i=$((i+1)); echo line $i; done; sleep 0.5; echo it broke >&2; exit 7"
    )
    with pytest.raises(BuildFailedError) as caught:
        finish(build(engine, request(small, f"RUN {script}", "RUN echo never")))
    failure = caught.value
    assert failure.step.startswith("RUN i=0")
    assert failure.output[-1] == "it broke"
    assert failure.output[0] == "line 52"
    assert len(failure.output) == 40
    assert "returned a non-zero code: 7" in failure.message
    assert engine.image(TAG) is None


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
def test_what_a_step_said_gives_the_hint(
    engine: ContainerEngine, small: str, nothing_left: None, said: str, hint: str
) -> None:
    script = "RUN cat /said; exit 1"
    with pytest.raises(BuildFailedError) as caught:
        finish(build(engine, request(small, "COPY said /said", script, said=said + "\n")))
    assert hint in caught.value.hint


@pytest.mark.parametrize("dockerfile", ["", "FROM", "NONSENSE x\n", "FROM a b c d\n"])
def test_what_is_no_dockerfile(engine: ContainerEngine, nothing_left: None, dockerfile: str) -> None:
    with pytest.raises(EngineError):
        finish(build(engine, BuildRequest(dockerfile, {}, TAG)))


def test_a_base_that_cannot_be_had(engine: ContainerEngine, nothing_left: None) -> None:
    with pytest.raises(EngineError, match="localhost:1/none"):
        finish(build(engine, BuildRequest("FROM localhost:1/none:1\nRUN true\n", {}, TAG)))


def test_closing_the_iterator_stops_the_build(
    engine: ContainerEngine, small: str, nothing_left: None
) -> None:
    events = build(engine, request(small, "RUN echo started; sleep 100", "RUN echo never"))
    for event in events:
        if event.text == "started":
            break
    assert containers_of(engine, small)
    began = time.monotonic()
    events.close()
    wait_until_gone(engine, small)
    assert time.monotonic() - began < 30
    assert engine.image(TAG) is None


def test_an_exception_stops_the_build(engine: ContainerEngine, small: str, nothing_left: None) -> None:
    def raise_interrupt() -> None:
        for event in build(engine, request(small, "RUN echo started; sleep 100")):
            if event.text == "started":
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        raise_interrupt()
    wait_until_gone(engine, small)


def wait_until_gone(engine: ContainerEngine, image: str, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while containers_of(engine, image) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert containers_of(engine, image) == []


# ---------------------------------------------------------------- what a build leaves that did not end


def list_dangling(engine: ContainerEngine) -> set[str]:
    return {one["Id"] for one in engine.client.api.images(filters={"dangling": True})}


@pytest.fixture
def unfinished(engine: ContainerEngine) -> Iterator[str]:
    name = make_unfinished_name(TAG)
    engine.remove_image(name, force=True)
    yield name
    engine.remove_image(name, force=True)


def test_a_failed_build_leaves_a_name_and_the_next_goes_on_from_there(
    engine: ContainerEngine, small: str, tag: str, unfinished: str
) -> None:
    before = list_dangling(engine)
    first = request(small, "RUN echo dear", "RUN exit 1")
    for _ in range(2):  # the second time from the cache
        with pytest.raises(BuildFailedError):
            finish(build(engine, first))
        kept = engine.image(unfinished)
        assert kept is not None
        assert list_dangling(engine) == before, "no <none>"
    longer = BuildRequest(first.dockerfile.replace("RUN exit 1", "RUN echo more\nRUN exit 1"), {}, TAG)
    with pytest.raises(BuildFailedError):
        finish(build(engine, longer))
    assert engine.image(unfinished) != kept
    assert list_dangling(engine) == before
    other = request(small, "RUN exit 1")  # nothing of it is of the one before: that goes
    with pytest.raises(BuildFailedError):
        finish(build(engine, other))
    assert list_dangling(engine) == before
    with pytest.raises(BuildFailedError):
        finish(build(engine, first))
    right = BuildRequest(first.dockerfile.replace("RUN exit 1", "RUN echo right"), {}, TAG)
    events = finish(build(engine, right))
    assert [event.number for event in events if event.kind == "cached"] == [2, 3]
    assert list_dangling(engine) == before


def test_an_interrupted_build_leaves_a_name(
    engine: ContainerEngine, small: str, unfinished: str, nothing_left: None
) -> None:
    before = list_dangling(engine)
    events = build(engine, request(small, "RUN echo started; sleep 100"))
    for event in events:
        if event.text == "started":
            break
    events.close()
    wait_until_gone(engine, small)
    assert engine.image(unfinished) is not None
    assert list_dangling(engine) == before


def test_where_no_step_ended_nothing_is_named(engine: ContainerEngine, small: str, unfinished: str) -> None:
    with pytest.raises(BuildFailedError):
        finish(build(engine, BuildRequest(f"FROM {small}\nRUN exit {next(_FRESH) % 250 + 1}\n", {}, TAG)))
    assert engine.image(unfinished) is None
    assert engine.image(small) is not None


@pytest.mark.parametrize("tag", ["a/b:1", "HOST:5000/a_b/c:x", "x" * 300, "...", "-a"])
def test_the_name_of_what_is_unfinished_is_one(tag: str) -> None:
    assert check_reference(make_unfinished_name(tag).rpartition(":")[0])
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", make_unfinished_name(tag).rpartition(":")[2])


def test_two_builds_at_once(engine: ContainerEngine, small: str, nothing_left: None) -> None:
    tags = [f"{PREFIX}/twin:{number}" for number in (1, 2)]
    ended: dict[str, str] = {}

    def work(name: str) -> None:
        asked = request(small, f"RUN sleep 1; echo {name} >/name", tag=name)
        ended[name] = finish(build(engine, asked))[-1].text

    threads = [threading.Thread(target=work, args=(name,)) for name in tags]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    images = [engine.image(name) for name in tags]
    for name in tags:
        engine.remove_image(name, force=True)
    assert [image.id if image else None for image in images] == [ended.get(name) for name in tags]
    assert len(set(ended.values())) == 2


def test_a_changed_line_keeps_what_was_before_it(engine: ContainerEngine, small: str, tag: str) -> None:
    first = request(
        small, "RUN echo dear", "COPY requirements.txt /r.txt", "RUN cat /r.txt", requirements_txt="six\n"
    )
    finish(build(engine, first))
    second = BuildRequest(first.dockerfile, {"requirements.txt": b"six\nsix\n"}, TAG)
    events = finish(build(engine, second))
    cached = [event.number for event in events if event.kind == "cached"]
    assert cached == [2, 3]
    again = finish(build(engine, second))
    assert [event.number for event in again if event.kind == "cached"] == [2, 3, 4, 5]
    assert again[-1].text == events[-1].text


def test_the_same_files_give_the_same_context() -> None:
    files = {"b": b"2", "a": b"1"}
    assert context_archive("FROM x", files) == context_archive("FROM x", dict(sorted(files.items())))
    assert context_archive("FROM x", files) != context_archive("FROM x", {**files, "a": b"0"})


# ---------------------------------------------------------------- the command itself


def command(engine: ContainerEngine, folder: Path, *words: str) -> subprocess.Popen[str]:
    """`tfdoctor build`, planned for any machine, with a folder for its temporary files."""
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    options = ("--tf", "2.20", "--python", "3.11", "--anywhere", "--no-verify", "--tag", TAG)
    return subprocess.Popen(
        [sys.executable, "-m", "tfdoctor", "build", *options, *words],
        env={**os.environ, "DOCKER_HOST": engine.url, "TMPDIR": str(scratch), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def assert_nothing_there(engine: ContainerEngine, image: str, folder: Path) -> None:
    wait_until_gone(engine, image)
    assert engine.image(TAG) is None
    assert list((folder / "scratch").iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
@pytest.mark.parametrize("where", ["--no-install-recommends", "python=$v"], ids=["step", "look"])
def test_a_signal_in_the_middle_of_a_real_build(
    engine: ContainerEngine,
    small: str,
    slow_base: str,
    nothing_left: None,
    tmp_path: Path,
    where: str,
    number: signal.Signals,
) -> None:
    """In a step that the engine runs, and while the base is looked into, its container perhaps not made yet."""
    with command(engine, tmp_path, "--base", slow_base, "-v") as process:
        deadline = time.monotonic() + 100
        while not any(where in one for one in containers_of(engine, small)):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert "Traceback" not in said
    assert_nothing_there(engine, small, tmp_path)


def test_a_step_that_fails_in_a_real_build(
    engine: ContainerEngine, small: str, slow_base: str, nothing_left: None, tmp_path: Path
) -> None:
    failing = f"{PREFIX}/failing:1"
    finish(build(engine, BuildRequest(f"FROM {slow_base}\nRUN echo >/etc/apt-fails\n", {}, failing)))
    try:
        with command(engine, tmp_path, "--base", failing) as process:
            out, said = process.communicate(timeout=120)
    finally:
        engine.remove_image(failing, force=True)
    assert process.returncode == 3
    assert out == ""
    assert "apt-get" in said
    assert "| line 60" in said
    assert "E: No space left on device" in said
    assert "docker builder prune" in said
    assert "Traceback" not in said
    assert_nothing_there(engine, small, tmp_path)


@pytest.mark.parametrize(
    "words",
    [
        ("--tag", "a b"),
        ("--tag", "x:1; rm -rf /"),
        ("--tag", "$(id)"),
        ("--base", "debian\nRUN id"),
        ("--package", "six; touch /x"),
        ("--package", "--index-url=http://evil"),
        ("--index", "http://user:secret@host/simple"),
        ("--platform", "linux/amd64; id"),
        ("-r", "hostile.txt"),
        ("-r", "missing.txt"),
    ],
    ids=range(10),
)
def test_a_hostile_request_is_refused_before_anything_is_done(
    words: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hostile.txt").write_text('six\n--extra-index-url $(id)\n"; RUN rm -rf /\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "tfdoctor", "build", "--tf", "2.20", "--anywhere", *words],
        env={**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/none.sock"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stderr
