"""Tests of a container as a `System`: it answers like the machine itself; failures are reported and cleaned up."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab.small import SITE
from tfdoctor import payload
from tfdoctor.compat import Compat
from tfdoctor.diagnosis.collect import run_probes
from tfdoctor.images.engine import BuildRequest, EngineError, GpuAccess, RunRequest, build, run
from tfdoctor.images.engine.system import ContainerEndedError, ContainerSystem, StartError
from tfdoctor.system import Failure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.images.engine import ContainerEngine

pytestmark = pytest.mark.usefixtures("nothing_left")
FLATTEN = """
import dataclasses, enum
def plain(value, at=""):
    # [(place, value)] of all that is in it: sets have no order, and machines no memory addresses
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from plain(getattr(value, field.name), at + "." + field.name)
        yield at, type(value).__name__
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            yield from plain(value[key], at + "[%s]" % (key,))
    elif isinstance(value, (set, frozenset)):
        yield at, sorted(map(str, value))
    elif isinstance(value, (tuple, list)):
        for index, one in enumerate(value):
            yield from plain(one, at + "[%d]" % index)
    else:
        yield at, value.value if isinstance(value, enum.Enum) else value
"""
PRINT_FACTS = f"""
import json, sys
sys.path.insert(0, {SITE!r})
from tfdoctor.compat import Compat
from tfdoctor.diagnosis.collect import run_probes
from tfdoctor.system import LiveSystem
{FLATTEN}
print("FACTS " + json.dumps(list(plain(run_probes(LiveSystem(), Compat.load(), timeout=60)))))
"""
TRANSIENT = re.compile(r"seconds|HOSTNAME|memory|pid|uptime|load|inode")
"""Matches the paths of facts that differ between two moments or two containers."""


@pytest.fixture
def system(engine: ContainerEngine, small: str, nothing_left: None) -> Iterator[ContainerSystem]:
    with ContainerSystem(engine, RunRequest(small, (), environment={"WORD": "naïve ☃"})) as container:
        yield container


def test_files_and_folders_are_read(system: ContainerSystem) -> None:
    assert system.read_text("/etc/os-release") == "ID=debian\nVERSION_ID=12\n"
    assert system.read_bytes("/etc/os-release", limit=3) == b"ID="
    assert system.exists("/etc/passwd")
    assert not system.exists("/etc/none")
    assert system.is_dir("/etc")
    assert not system.is_dir("/etc/passwd")
    assert "os-release" in system.listdir("/etc")
    assert system.realpath("/bin/sh") == "/usr/bin/sh"
    assert system.which("sh") in ("/bin/sh", "/usr/bin/sh")
    assert system.which("no-such-program") is None
    for path, kind in (
        ("/none", FileNotFoundError),
        ("/etc", IsADirectoryError),
        ("/etc/passwd/x", NotADirectoryError),
    ):
        with pytest.raises(kind):
            system.read_bytes(path)
    with pytest.raises(FileNotFoundError):
        system.listdir("/none")


def test_undecodable_names_are_read(system: ContainerSystem) -> None:
    assert system.env["WORD"] == "naïve ☃"
    script = (
        "import os; os.mkdir(b'/tmp/n'); open(b'/tmp/n/\\xff', 'w').close(); "
        "open('/tmp/n/\\u2603'.encode(), 'w').write('s')"
    )
    assert system.run(["python3", "-c", script], timeout=20).ok
    assert sorted(system.listdir("/tmp/n")) == ["☃", "\udcff"]
    assert system.read_text("/tmp/n/☃") == "s"
    assert system.exists("/tmp/n/\udcff")


def test_a_fifo_does_not_hang(system: ContainerSystem) -> None:
    assert system.run(["python3", "-c", "import os; os.mkfifo('/tmp/fifo')"], timeout=20).ok
    start = time.monotonic()
    assert system.read_bytes("/tmp/fifo") == b""
    assert time.monotonic() - start < 10


def test_elf_library_is_read(system: ContainerSystem) -> None:
    name = next(name for name in system.listdir("/usr/lib/x86_64-linux-gnu") if name.startswith("libc.so"))
    elf = system.read_elf(f"/usr/lib/x86_64-linux-gnu/{name}")
    assert elf.soname == "libc.so.6"
    assert any("ld-linux" in needed for needed in elf.needed)


def test_commands_are_run(system: ContainerSystem) -> None:
    result = system.run(
        ["sh", "-c", 'echo "$A-$WORD"; echo e >&2; exit 4'], timeout=20, env={"A": "b"}, unset=["WORD"]
    )
    assert (result.returncode, result.stdout, result.stderr) == (4, "b-\n", "e\n")
    assert system.run(["no-such-program"], timeout=20).failure is Failure.NOT_FOUND
    assert system.run(["/etc/passwd"], timeout=20).failure is Failure.PERMISSION
    start = time.monotonic()
    timed_out = system.run(["sh", "-c", "echo early; sleep 100"], timeout=0.5)
    assert timed_out.failure is Failure.TIMEOUT
    assert timed_out.stdout == "early\n"
    assert time.monotonic() - start < 15
    assert system.run(["sh", "-c", "kill -9 $$"], timeout=20).returncode == -signal.SIGKILL


def test_long_outputs_are_read_in_parallel(system: ContainerSystem) -> None:
    sizes: list[int] = []

    def read() -> None:
        result = system.run(["python3", "-c", "print('x' * 3_000_000)"], timeout=60)
        sizes.append(len(result.stdout))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sizes == [3_000_001] * 4


def test_payload_script_is_put_into_the_container(system: ContainerSystem) -> None:
    script = Path(payload.__file__).with_name("agent.py")
    result = system.run(["python3", str(script)], timeout=20)
    assert result.returncode == 0


def test_survey_from_outside_equals_survey_inside(engine: ContainerEngine, small: str) -> None:
    """Run the same probes over the pipe and by tfdoctor itself in such a container."""
    result = run(engine, RunRequest(small, ("python3", "-B", "-c", PRINT_FACTS), timeout_s=100))
    assert result.status == 0, result.stderr
    facts_line = next(line for line in result.stdout.splitlines() if line.startswith("FACTS "))[6:]
    with ContainerSystem(engine, RunRequest(small, ())) as system:
        facts = run_probes(system, Compat.load(), timeout=60)
    scope: dict[str, Any] = {}
    exec(FLATTEN, scope)  # noqa: S102 - the text above
    outside = dict(json.loads(json.dumps(list(scope["plain"](facts)))))
    inside = dict(json.loads(facts_line))
    differing = {
        path: (inside.get(path), outside.get(path))
        for path in {*inside, *outside}
        if inside.get(path) != outside.get(path) and not TRANSIENT.search(path)
    }
    assert differing == {}
    assert len(inside) > 60
    assert len(inside) == len(outside)


# ---------------------------------------------------------------- failures


def test_killed_container_is_reported(engine: ContainerEngine, small: str) -> None:
    with ContainerSystem(engine, RunRequest(small, ())) as system:
        results: list[Any] = []

        def work() -> None:
            results.append(system.run(["sleep", "50"], timeout=60))

        thread = threading.Thread(target=work)
        thread.start()
        time.sleep(0.5)
        start = time.monotonic()
        engine.client.api.kill(system._container)
        thread.join(30)
        assert time.monotonic() - start < 15
        assert results[0].failure is Failure.OS_ERROR
        assert "the container ended" in results[0].detail
        with pytest.raises(EngineError, match="the container ended"):
            system.read_text("/etc/passwd")


def test_command_out_of_memory_fails(engine: ContainerEngine, small: str) -> None:
    with ContainerSystem(engine, RunRequest(small, (), memory_bytes=96 << 20)) as system:
        result = system.run(["python3", "-c", "x = bytearray(500 << 20)"], timeout=60)
        assert not result.ok


def test_closed_system_raises(engine: ContainerEngine, small: str) -> None:
    system = ContainerSystem(engine, RunRequest(small, ()))
    system.close()
    system.close()
    with pytest.raises(EngineError):
        system.exists("/")
    assert system.get_state() == {}


def test_missing_image_raises(engine: ContainerEngine) -> None:
    with pytest.raises(EngineError, match="is not here"):
        ContainerSystem(engine, RunRequest("tfdoctor-test/none:1", ()))


@pytest.mark.parametrize(
    "dockerfile",
    ["FROM scratch\nCOPY hi /hi\n", "FROM {small}\nRUN rm -f /usr/bin/python3* {python}\n"],
    ids=["nothing", "a shell and no Python"],
)
def test_image_without_python_is_reported(engine: ContainerEngine, small: str, dockerfile: str) -> None:
    name = "tfdoctor-test-no-python:1"
    text = dockerfile.format(small=small, python=Path(sys.executable).resolve())
    list(build(engine, BuildRequest(text, {"hi": b"hi"}, name)))
    try:
        with pytest.raises(ContainerEndedError) as caught:
            ContainerSystem(engine, RunRequest(name, ()))
    finally:
        engine.remove_image(name, force=True)
    assert caught.value.has_no_python


def test_image_without_a_shell_is_inspected(engine: ContainerEngine, small: str) -> None:
    name = "tfdoctor-test-no-shell:1"
    script = "import os; [os.remove(f'/usr/bin/{n}') for n in ('sh',)]"
    text = f'FROM {small}\nRUN ["python3", "-c", "{script}"]\n'
    list(build(engine, BuildRequest(text, {}, name)))
    try:
        with ContainerSystem(engine, RunRequest(name, ())) as system:
            assert system.run(["python3", "-c", "print(1)"], timeout=30).stdout == "1\n"
    finally:
        engine.remove_image(name, force=True)


def test_environment_set_by_sitecustomize_is_ignored(engine: ContainerEngine, small: str) -> None:
    name = "tfdoctor-test-sets:1"
    text = f"FROM {small}\nENV PYTHONPATH=/own\nCOPY sitecustomize.py json.py /own/\n"
    files = {"sitecustomize.py": b"import os; os.environ['CUDA_VISIBLE_DEVICES'] = '-1'", "json.py": b"1 / 0"}
    list(build(engine, BuildRequest(text, files, name)))
    try:
        with ContainerSystem(engine, RunRequest(name, ())) as system:
            assert "CUDA_VISIBLE_DEVICES" not in system.env
            assert system.env["PYTHONPATH"] == "/own"
    finally:
        engine.remove_image(name, force=True)


def test_unavailable_gpus_are_reported(engine: ContainerEngine, small: str) -> None:
    if "nvidia" in engine.runtimes:
        pytest.skip("this engine has the runtime")
    with pytest.raises(StartError) as caught:
        ContainerSystem(engine, RunRequest(small, (), gpus=GpuAccess("runtime")))
    assert "nvidia" in caught.value.message


def test_interrupt_at_the_start_removes_the_container(
    engine: ContainerEngine, small: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ContainerSystem, "_ask", interrupt)
    with pytest.raises(KeyboardInterrupt):
        ContainerSystem(engine, RunRequest(small, ()))


# ---------------------------------------------------------------- untrusted answers

HOSTILE_SCRIPTS = {
    "ends": "exit 0",
    "says why": "echo 'ImportError: no json' >&2; exit 1",
    "text": "echo hello; echo tfdoctor-payload:; cat >/dev/null",
    "no object": "echo 'tfdoctor-payload:[1]'; echo 'tfdoctor-payload:\"x\"'; exit 1",
    "deep": "head -c 200000 /dev/zero | tr '\\0' '['; exit 1",
    "no env": "read l; echo 'tfdoctor-payload:{\"id\": 1}'; cat >/dev/null",
    "wrong kinds": 'read l; echo \'tfdoctor-payload:{"id": 1, "env": 5, "cwd": [], "platform": "x"}\'; cat',
    "an error": 'read l; echo \'tfdoctor-payload:{"id": 1, "errno": 13, "strerror": "no"}\'; cat',
    "error that is none": 'read l; echo \'tfdoctor-payload:{"id": 1, "errno": "x"}\'; cat',
}


@pytest.fixture(scope="session")
def liar(engine: ContainerEngine, small: str) -> str:
    """Return the name of an image whose python3 runs the variable LIE as a shell script."""
    name = "tfdoctor-test/liar:1"
    script = b'#!/bin/sh\neval "$LIE"\n'
    steps = (
        "COPY liar /usr/bin/liar\n"
        "RUN python3 -c \"import os; os.chmod('/usr/bin/liar', 0o755); "
        "os.rename('/usr/bin/liar', '/usr/bin/python3')\"\n"
    )
    list(build(engine, BuildRequest(f"FROM {small}\n{steps}", {"liar": script}, name)))
    return name


@pytest.mark.parametrize("lie", HOSTILE_SCRIPTS.values(), ids=HOSTILE_SCRIPTS)
def test_invalid_start_raises_and_cleans_up(
    engine: ContainerEngine, liar: str, lie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfdoctor.images.engine.system.START_TIMEOUT_S", 1.5)
    with pytest.raises(EngineError) as caught:
        ContainerSystem(engine, RunRequest(liar, (), environment={"LIE": lie}))
    if "ImportError" in lie:
        assert "ImportError: no json" in caught.value.message


INVALID_REPLIES = (
    {},
    {"data": 5},
    {"data": "%%%", "size": 1, "device": 1, "inode": 1},
    {"errno": 2},
    {"names": {}},
    {"path": 5},
)


@pytest.mark.parametrize("reply", INVALID_REPLIES, ids=range(len(INVALID_REPLIES)))
def test_invalid_later_replies_are_os_errors(
    engine: ContainerEngine, liar: str, reply: dict[str, Any]
) -> None:
    """After a valid start, every request gets the same answer."""
    hello = {"id": 1, "env": {}, "cwd": "/", "platform": {"machine": "x86_64"}}
    answer = json.dumps({"id": 0, **reply}).replace('"id": 0', '"id": $n')
    lie = (
        f"read l; echo 'tfdoctor-payload:{json.dumps(hello)}'; n=1; "
        f"while read l; do n=$((n+1)); cat <<END\ntfdoctor-payload:{answer}\nEND\ndone"
    )
    with ContainerSystem(engine, RunRequest(liar, (), environment={"LIE": lie})) as system:
        for request in (system.read_text, system.read_elf, system.exists, system.listdir, system.realpath):
            with pytest.raises(OSError):  # noqa: PT011 - any of them is what probes expect
                request("/etc/passwd")
        result = system.run(["true"], timeout=5)
        assert result.failure in (Failure.OS_ERROR, Failure.NOT_FOUND)


def test_output_between_the_replies_is_ignored(engine: ContainerEngine, small: str) -> None:
    """Some images have a sitecustomize that prints."""
    noisy = "import sys; sys.stdout.write('noise\\n' * 1000); sys.stderr.write('more\\n')"
    files = {"/tmp/sitecustomize.py": noisy.encode()}
    request = RunRequest(small, (), environment={"PYTHONPATH": "/tmp"}, files=files)
    with ContainerSystem(engine, request) as system:
        assert system.exists("/etc")
        assert os.environ is not system.env
