"""A container as a `System`: it answers as the machine itself would, and whatever breaks is told and gone."""

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
from tfdoctor.engine import BuildRequest, EngineError, GpuAccess, RunRequest, build, run
from tfdoctor.engine.system import ContainerEndedError, ContainerSystem, StartError
from tfdoctor.examine.collect import survey
from tfdoctor.system import Failure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.engine import ContainerEngine

pytestmark = pytest.mark.usefixtures("nothing_left")
PLAIN = """
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
OWN = f"""
import json, sys
sys.path.insert(0, {SITE!r})
from tfdoctor.compat import Compat
from tfdoctor.examine.collect import survey
from tfdoctor.system import LiveSystem
{PLAIN}
print("FACTS " + json.dumps(list(plain(survey(LiveSystem(), Compat.load(), timeout=60)))))
"""
TRANSIENT = re.compile(r"seconds|HOSTNAME|memory|pid|uptime|load|inode")
"""Places of what differs between two moments and two containers."""


@pytest.fixture
def system(engine: ContainerEngine, small: str, nothing_left: None) -> Iterator[ContainerSystem]:
    with ContainerSystem(engine, RunRequest(small, (), environment={"WORD": "naïve ☃"})) as one:
        yield one


def test_files_and_folders(system: ContainerSystem) -> None:
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


def test_names_that_no_locale_knows(system: ContainerSystem) -> None:
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
    began = time.monotonic()
    assert system.read_bytes("/tmp/fifo") == b""
    assert time.monotonic() - began < 10


def test_a_library_is_read_as_the_machine_reads_it(system: ContainerSystem) -> None:
    name = next(name for name in system.listdir("/usr/lib/x86_64-linux-gnu") if name.startswith("libc.so"))
    elf = system.read_elf(f"/usr/lib/x86_64-linux-gnu/{name}")
    assert elf.soname == "libc.so.6"
    assert any("ld-linux" in needed for needed in elf.needed)


def test_commands(system: ContainerSystem) -> None:
    result = system.run(
        ["sh", "-c", 'echo "$A-$WORD"; echo e >&2; exit 4'], timeout=20, env={"A": "b"}, unset=["WORD"]
    )
    assert (result.returncode, result.stdout, result.stderr) == (4, "b-\n", "e\n")
    assert system.run(["no-such-program"], timeout=20).failure is Failure.NOT_FOUND
    assert system.run(["/etc/passwd"], timeout=20).failure is Failure.PERMISSION
    began = time.monotonic()
    late = system.run(["sh", "-c", "echo early; sleep 100"], timeout=0.5)
    assert late.failure is Failure.TIMEOUT
    assert late.stdout == "early\n"
    assert time.monotonic() - began < 15
    assert system.run(["sh", "-c", "kill -9 $$"], timeout=20).returncode == -signal.SIGKILL


def test_a_megabyte_and_many_at_once(system: ContainerSystem) -> None:
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


def test_our_own_payload_is_put_into_the_container(system: ContainerSystem) -> None:
    script = Path(payload.__file__).with_name("agent.py")
    result = system.run(["python3", str(script)], timeout=20)
    assert result.returncode == 0


def test_a_survey_from_outside_equals_one_from_inside(engine: ContainerEngine, small: str) -> None:
    """The same probes, in the same root: over the pipe, and by tfdoctor itself in such a container."""
    inside = run(engine, RunRequest(small, ("python3", "-B", "-c", OWN), timeout=100))
    assert inside.status == 0, inside.stderr
    own = next(line for line in inside.stdout.splitlines() if line.startswith("FACTS "))[6:]
    with ContainerSystem(engine, RunRequest(small, ())) as system:
        facts = survey(system, Compat.load(), timeout=60)
    scope: dict[str, Any] = {}
    exec(PLAIN, scope)  # noqa: S102 - the text above
    there = dict(json.loads(json.dumps(list(scope["plain"](facts)))))
    here = dict(json.loads(own))
    differing = {
        place: (here.get(place), there.get(place))
        for place in {*here, *there}
        if here.get(place) != there.get(place) and not TRANSIENT.search(place)
    }
    assert differing == {}
    assert len(here) > 60
    assert len(here) == len(there)


# ---------------------------------------------------------------- what breaks


def test_the_container_is_killed_in_the_middle(engine: ContainerEngine, small: str) -> None:
    with ContainerSystem(engine, RunRequest(small, ())) as system:
        results: list[Any] = []

        def work() -> None:
            results.append(system.run(["sleep", "50"], timeout=60))

        thread = threading.Thread(target=work)
        thread.start()
        time.sleep(0.5)
        began = time.monotonic()
        engine.client.api.kill(system._container)
        thread.join(30)
        assert time.monotonic() - began < 15
        assert results[0].failure is Failure.OS_ERROR
        assert "the container ended" in results[0].detail
        with pytest.raises(EngineError, match="the container ended"):
            system.read_text("/etc/passwd")


def test_memory_is_used_up_inside(engine: ContainerEngine, small: str) -> None:
    with ContainerSystem(engine, RunRequest(small, (), memory=96 << 20)) as system:
        result = system.run(["python3", "-c", "x = bytearray(500 << 20)"], timeout=60)
        assert not result.ok


def test_closed_twice_and_asked_afterwards(engine: ContainerEngine, small: str) -> None:
    system = ContainerSystem(engine, RunRequest(small, ()))
    system.close()
    system.close()
    with pytest.raises(EngineError):
        system.exists("/")
    assert system.state() == {}


def test_an_image_that_is_not_there(engine: ContainerEngine) -> None:
    with pytest.raises(EngineError, match="is not here"):
        ContainerSystem(engine, RunRequest("tfdoctor-test/none:1", ()))


@pytest.mark.parametrize(
    "dockerfile",
    ["FROM scratch\nCOPY hi /hi\n", "FROM {small}\nRUN rm -f /usr/bin/python3* {python}\n"],
    ids=["nothing", "a shell and no Python"],
)
def test_an_image_without_python(engine: ContainerEngine, small: str, dockerfile: str) -> None:
    name = "tfdoctor-test-no-python:1"
    text = dockerfile.format(small=small, python=Path(sys.executable).resolve())
    list(build(engine, BuildRequest(text, {"hi": b"hi"}, name)))
    try:
        with pytest.raises(ContainerEndedError) as caught:
            ContainerSystem(engine, RunRequest(name, ()))
    finally:
        engine.remove_image(name, force=True)
    assert caught.value.no_python


def test_an_image_without_a_shell_is_looked_into(engine: ContainerEngine, small: str) -> None:
    name = "tfdoctor-test-no-shell:1"
    script = "import os; [os.remove(f'/usr/bin/{n}') for n in ('sh',)]"
    text = f'FROM {small}\nRUN ["python3", "-c", "{script}"]\n'
    list(build(engine, BuildRequest(text, {}, name)))
    try:
        with ContainerSystem(engine, RunRequest(name, ())) as system:
            assert system.run(["python3", "-c", "print(1)"], timeout=30).stdout == "1\n"
    finally:
        engine.remove_image(name, force=True)


def test_what_an_images_python_sets_for_itself_is_not_the_containers(
    engine: ContainerEngine, small: str
) -> None:
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


def test_gpus_that_the_engine_cannot_give(engine: ContainerEngine, small: str) -> None:
    if "nvidia" in engine.runtimes:
        pytest.skip("this engine has the runtime")
    with pytest.raises(StartError) as caught:
        ContainerSystem(engine, RunRequest(small, (), gpus=GpuAccess("runtime")))
    assert "nvidia" in caught.value.said


def test_interrupted_while_it_starts(
    engine: ContainerEngine, small: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ContainerSystem, "_ask", interrupt)
    with pytest.raises(KeyboardInterrupt):
        ContainerSystem(engine, RunRequest(small, ()))


# ---------------------------------------------------------------- who answers is not to be trusted

HOSTILE = {
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
    """An image whose python3 does what the variable LIE says."""
    name = "tfdoctor-test/liar:1"
    script = b'#!/bin/sh\neval "$LIE"\n'
    steps = (
        "COPY liar /usr/bin/liar\n"
        "RUN python3 -c \"import os; os.chmod('/usr/bin/liar', 0o755); "
        "os.rename('/usr/bin/liar', '/usr/bin/python3')\"\n"
    )
    list(build(engine, BuildRequest(f"FROM {small}\n{steps}", {"liar": script}, name)))
    return name


@pytest.mark.parametrize("lie", HOSTILE.values(), ids=HOSTILE)
def test_garbage_is_an_error_and_leaves_nothing(
    engine: ContainerEngine, liar: str, lie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfdoctor.engine.system.START_TIMEOUT_S", 1.5)
    with pytest.raises(EngineError) as caught:
        ContainerSystem(engine, RunRequest(liar, (), environment={"LIE": lie}))
    if "ImportError" in lie:
        assert "ImportError: no json" in caught.value.message


NONSENSE = (
    {},
    {"data": 5},
    {"data": "%%%", "size": 1, "device": 1, "inode": 1},
    {"errno": 2},
    {"names": {}},
    {"path": 5},
)


@pytest.mark.parametrize("reply", NONSENSE, ids=range(len(NONSENSE)))
def test_later_answers_that_make_no_sense(engine: ContainerEngine, liar: str, reply: dict[str, Any]) -> None:
    """After a proper beginning: every question is answered with the same."""
    hello = {"id": 1, "env": {}, "cwd": "/", "platform": {"machine": "x86_64"}}
    said = json.dumps({"id": 0, **reply}).replace('"id": 0', '"id": $n')
    lie = (
        f"read l; echo 'tfdoctor-payload:{json.dumps(hello)}'; n=1; "
        f"while read l; do n=$((n+1)); cat <<END\ntfdoctor-payload:{said}\nEND\ndone"
    )
    with ContainerSystem(engine, RunRequest(liar, (), environment={"LIE": lie})) as system:
        for ask in (system.read_text, system.read_elf, system.exists, system.listdir, system.realpath):
            with pytest.raises(OSError):  # noqa: PT011 - any of them is what probes expect
                ask("/etc/passwd")
        result = system.run(["true"], timeout=5)
        assert result.failure in (Failure.OS_ERROR, Failure.NOT_FOUND)


def test_noise_between_the_answers_does_no_harm(engine: ContainerEngine, small: str) -> None:
    """A sitecustomize that prints, as some images have."""
    noisy = "import sys; sys.stdout.write('noise\\n' * 1000); sys.stderr.write('more\\n')"
    files = {"/tmp/sitecustomize.py": noisy.encode()}
    request = RunRequest(small, (), environment={"PYTHONPATH": "/tmp"}, files=files)
    with ContainerSystem(engine, request) as system:
        assert system.exists("/etc")
        assert os.environ is not system.env
