"""Pythons that do not answer: real programs, each of which fails in its own way."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from rules.make_facts import finding, healthy
from startup import needs_sitecustomize
from tfdoctor.compat import Compat
from tfdoctor.core.errors import UsageError
from tfdoctor.core.facts import EnvironmentFacts, Fact, Known, PythonFacts, Unknown, value_of
from tfdoctor.core.facts.python import PythonChoice, StartupFailure, UnusablePython
from tfdoctor.core.findings import Cause
from tfdoctor.diagnosis.collect import run_probes
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.probes import python
from tfdoctor.rules import python_unusable
from tfdoctor.system import LiveSystem

HANG_TIMEOUT_S = 3.0
"""Timeout in seconds for a program that hangs."""
START_TIMEOUT_S = 40.0
"""Timeout in seconds for a program that only has to start, on a possibly busy machine."""


def write_program(tmp_path: Path, text: str | bytes) -> str:
    """Write an executable `python` with this content and return its path."""
    path = tmp_path / "python"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(0o755)
    return str(path)


def probe_python(path: str, timeout: float) -> Unknown:
    """Return the result of the probe for a Python that the user did not name."""
    fact, _ = python.probe(
        LiveSystem(), PythonChoice(path, "python3 on PATH"), is_requested=False, timeout=timeout
    )
    assert isinstance(fact, Unknown)
    return fact


def find_trouble_kind(path: str, timeout: float = START_TIMEOUT_S) -> str:
    """Return the kind of trouble that the probe finds."""
    fact = probe_python(path, timeout)
    assert isinstance(fact, UnusablePython)
    assert fact.trouble is not None
    return fact.trouble.kind


def test_pythonhome_that_prevents_the_start(tmp_path: Path) -> None:
    """PYTHONHOME is the cause only if the Python starts without it."""
    variables = {**os.environ, "PYTHONHOME": str(tmp_path)}
    for path, expected in (
        (sys.executable, "home"),
        (write_program(tmp_path, "#!/bin/sh\nexit 7\n"), "exited"),
    ):
        system = LiveSystem(env=variables)
        fact, _ = python.probe(system, PythonChoice(path, path), is_requested=False, timeout=START_TIMEOUT_S)
        assert isinstance(fact, UnusablePython)
        assert fact.trouble is not None
        assert fact.trouble.kind == expected
    facts = replace(
        healthy(),
        python=UnusablePython("x", "x", StartupFailure("home", "/env/bin/python", "exited with status 1")),
        environment=EnvironmentFacts({"PYTHONHOME": "/nowhere"}, (), None),
    )
    result = finding(python_unusable.RULE, facts)
    assert result.title == "PYTHONHOME keeps this Python from starting: /env/bin/python"
    assert "'/nowhere'" in result.explanation
    assert result.remedies[0].commands[0] == "unset PYTHONHOME"


def test_hanging_python_is_silent(tmp_path: Path) -> None:
    assert (
        find_trouble_kind(write_program(tmp_path, "#!/bin/sh\nexec sleep 1000\n"), HANG_TIMEOUT_S) == "silent"
    )


@pytest.mark.parametrize(
    ("text", "expected", "detail"),
    [
        ("#!/bin/sh\necho hello\n", "rubbish", ""),
        ("#!/bin/sh\nexit 7\n", "exited", ""),
        ("#!/bin/sh\nkill -SEGV $$\n", "killed", ""),
        ("#!/nowhere/python\n", "not-started", "its interpreter /nowhere/python is not there"),
        ("", "not-started", "the file is empty"),
        ("\x01\x02 nothing", "not-started", "the file is no program"),
    ],
)
def test_program_that_is_no_python(tmp_path: Path, text: str, expected: str, detail: str) -> None:
    path = write_program(tmp_path, text)
    fact = probe_python(path, START_TIMEOUT_S)
    assert isinstance(fact, UnusablePython)
    assert fact.trouble is not None
    assert (fact.trouble.kind, fact.trouble.detail) == (expected, detail)
    with pytest.raises(UsageError, match="is not a Python"):
        python.probe(LiveSystem(), PythonChoice(path, path), is_requested=True, timeout=START_TIMEOUT_S)


def test_missing_dynamic_loader_is_named(tmp_path: Path) -> None:
    binary = Path("/bin/ls").read_bytes()
    loader = b"/lib64/ld-linux-x86-64.so.2\0"
    if loader not in binary[:8192]:
        pytest.skip("another kind of machine")
    path = write_program(tmp_path, binary.replace(loader, b"/lib64/ld-linux-x86-64.so.9\0", 1))
    fact = probe_python(path, START_TIMEOUT_S)
    assert isinstance(fact, UnusablePython)
    assert fact.trouble is not None
    assert "dynamic loader that it names, /lib64/ld-linux-x86-64.so.9 is not there" in fact.trouble.detail


def test_python_without_execute_permission(tmp_path: Path) -> None:
    path = write_program(tmp_path, "#!/bin/sh\n")
    Path(path).chmod(0o644)
    assert find_trouble_kind(path) == "denied"


@pytest.fixture
def environment(tmp_path: Path) -> tuple[str, Path]:
    """Return the Python of a virtual environment and its site-packages."""
    folder = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return f"{folder}/bin/python", next((folder / "lib").glob("python*")) / "site-packages"


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("name", "text", "timeout"),
    [
        ("license.pth", "import time; time.sleep(1000)\n", 8.0),
        pytest.param("sitecustomize.py", "import time\ntime.sleep(1000)\n", 8.0, marks=needs_sitecustomize),
        pytest.param(
            "sitecustomize.py", "import os\nos._exit(3)\n", START_TIMEOUT_S, marks=needs_sitecustomize
        ),
        ("broken.pth", "import os; os._exit(3)\n", START_TIMEOUT_S),
    ],
)
def test_file_that_blocks_the_start_is_named(
    environment: tuple[str, Path], name: str, text: str, timeout: float
) -> None:
    path, site = environment
    (site / "aaa.pth").write_text("import sys\n")
    (site / name).write_text(text)

    def probe(asked: bool) -> Fact[PythonFacts]:
        return python.probe(LiveSystem(), PythonChoice(path, path), is_requested=asked, timeout=timeout)[0]

    with ThreadPoolExecutor() as executor:  # both spend most of their time waiting
        facts = list(executor.map(probe, (False, True)))  # it is a Python, so naming it is not a usage error
    for fact in facts:
        assert isinstance(fact, UnusablePython), fact
        assert fact.trouble is not None
        assert fact.trouble.kind == "site"
        assert fact.trouble.files == (str(site / name),)


@needs_sitecustomize
def test_compiled_sitecustomize_is_named_by_source(environment: tuple[str, Path]) -> None:
    path, site = environment
    site = site.parent / "my site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import os\nos._exit(3)\n")
    (site.parent / "site-packages/aaa.pth").write_text(f"{site}\n")
    subprocess.run([path, "-S", "-m", "py_compile", str(site / "sitecustomize.py")], check=True)
    fact, _ = python.probe(
        LiveSystem(), PythonChoice(path, path), is_requested=False, timeout=START_TIMEOUT_S
    )
    assert isinstance(fact, UnusablePython), fact
    assert fact.trouble is not None
    assert fact.trouble.files == (str(site / "sitecustomize.py"),)


def test_slow_start_is_awaited(environment: tuple[str, Path]) -> None:
    path, site = environment
    mark = site / "started"
    (site / "slow.pth").write_text(
        f"import os, time; time.sleep(0 if os.path.exists({str(mark)!r}) else 1000) "
        f"if not os.path.exists({str(mark)!r}) and not open({str(mark)!r}, 'w').close() else None\n"
    )
    fact, _ = python.probe(LiveSystem(), PythonChoice(path, path), is_requested=False, timeout=12.0)
    assert isinstance(fact, Known), fact


class ContainerSystem(LiveSystem):
    """A container, in which tfdoctor has no Python of its own."""

    own_python = None


def test_driver_is_not_blamed_without_another_python(tmp_path: Path) -> None:
    path = write_program(tmp_path, "#!/bin/sh\nexec sleep 1000\n")
    compat = Compat.load()
    report = diagnose(run_probes(ContainerSystem(), compat, requested_python=path, timeout=6.0), compat)
    assert isinstance(report.facts.driver.cuda, Unknown)
    assert "TFD105" not in {finding.code for finding in report.findings}


def test_hanging_python_is_not_a_hanging_driver(tmp_path: Path) -> None:
    path = write_program(tmp_path, "#!/bin/sh\nexec sleep 1000\n")
    compat = Compat.load()
    facts = run_probes(LiveSystem(), compat, requested_python=path, timeout=6.0)
    assert isinstance(facts.python, UnusablePython)
    assert isinstance(facts.driver.cuda, Known)
    codes = {finding.code for finding in diagnose(facts, compat).findings}
    assert "TFD317" in codes
    assert "TFD105" not in codes
    # The Python is the cause on a machine with a working driver; without a driver, that decides.
    working = replace(
        healthy(),
        python=facts.python,
        tensorflow=facts.tensorflow,
        loader=facts.loader,
        rehearsal=facts.rehearsal,
    )
    cuda = value_of(working.driver.cuda)
    assert cuda is not None
    cuda = replace(cuda, loaded=False, load_error="libcuda.so.1: not found", devices=(), count=None)
    missing = replace(working, driver=replace(working.driver, cuda=Known(cuda, "x")))
    report = diagnose(working, compat)
    assert report.prediction.gpu_registered is None
    assert report.verdict.cause is Cause.PYTHON_UNUSABLE
    assert [finding.code for finding in report.findings] == ["TFD317"]
    report = diagnose(missing, compat)
    assert report.prediction.gpu_registered is False
    assert report.verdict.cause is Cause.NO_DRIVER
    assert [finding.code for finding in report.findings] == ["TFD101", "TFD317"]
