"""`tfdoctor run --placement`: TensorFlow logs the placement of operations though the program does not ask for it."""

from __future__ import annotations

import os
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from cli.test_run import run
from lab import environments

if TYPE_CHECKING:
    from pathlib import Path

PLACEMENT_OPTION = ("--placement",)
PLACEMENT_LINE = (
    "2024-05-01 10:00:00.0: I tensorflow/core/common_runtime/placer.cc:54] {}: (MatMul): "
    "/job:localhost/replica:0/task:0/device:GPU:0"
)
MODULES = {
    "tensorflow/python/client/session.py": f'''
        from tensorflow.core.protobuf import config_pb2
        import sys

        class BaseSession(object):
            def __init__(self, target, graph, config=None):
                if config is not None and config.log_device_placement:
                    sys.stderr.write("{PLACEMENT_LINE}\\n".format("by_session"))
                self.memory = getattr(config, "memory", None)
    ''',
    "tensorflow/python/eager/context.py": f'''
        import sys

        class Context(object):
            def __init__(self, config=None):
                self._log_device_placement = None

            def run(self):
                if self._log_device_placement:
                    sys.stderr.write("{PLACEMENT_LINE}\\n".format("by_context"))
    ''',
    "tensorflow/core/protobuf/config_pb2.py": """
        class ConfigProto(object):
            log_device_placement = False
            memory = None

            def CopyFrom(self, other):
                self.__dict__.update(other.__dict__)
    """,
}
"""Minimal versions of the parts of TensorFlow that decide about placement logs."""
PROGRAM = """
    import os, sys
    from tensorflow.core.protobuf.config_pb2 import ConfigProto
    from tensorflow.python.client.session import BaseSession
    from tensorflow.python.eager.context import Context
    Context().run()
    config = ConfigProto()
    config.memory = 0.4
    assert BaseSession("", None, config).memory == 0.4
    assert not config.log_device_placement  # it is the program's
    BaseSession("", None)
    assert not [entry for entry in sys.path if entry.endswith("placing")]
    print(os.environ.get("TF_CPP_MIN_LOG_LEVEL"))
    sys.exit(7)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    for name, text in MODULES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        for folder in path.relative_to(tmp_path).parents:
            (tmp_path / folder / "__init__.py").touch()
        path.write_text(textwrap.dedent(text))
    (tmp_path / "__init__.py").unlink()
    (tmp_path / "train.py").write_text(textwrap.dedent(PROGRAM))
    return tmp_path / "train.py"


def pythons() -> list[str]:
    """Return this Python and, if installed, old ones, which programs for TensorFlow 1 use."""
    return [sys.executable, *filter(None, map(environments.find_python, ("2.7", "3.7")))]


@pytest.mark.parametrize("python", pythons())
def test_unchanged_program_logs_placement(program: Path, python: str) -> None:
    result = run(python, str(program), options=PLACEMENT_OPTION, env={"TF_CPP_MIN_LOG_LEVEL": "2"})
    assert (result.returncode, result.stdout) == (7, "0\n"), result.stderr
    assert result.stderr.count("by_session") == 2
    assert result.stderr.count("by_context") == 1
    assert "✓ All 2 operations were placed on GPU:0." in result.stderr
    assert "TF_CPP_MIN_LOG_LEVEL was 0 instead of 2 for this run." in result.stderr


def test_lines_are_counted_across_chunks() -> None:
    line = f"{PLACEMENT_LINE.format('node%d')}\\n"
    code = f"import sys\nfor n in range(20000): sys.stderr.write('{line}' % n)"
    result = run(sys.executable, "-c", code, options=(*PLACEMENT_OPTION, "--quiet"))
    assert result.stderr.endswith("✓ All 20,000 operations were placed on GPU:0.\n")


def test_nothing_is_logged_without_the_option(program: Path) -> None:
    result = run(sys.executable, str(program))
    assert result.returncode == 7
    assert "placer.cc" not in result.stderr
    assert "Where operations ran" not in result.stderr


def test_sitecustomize_of_the_environment_runs(program: Path) -> None:
    folder = program.parent / "own"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("import os\nos.environ['OWN'] = 'read'\n")
    code = "import os, sitecustomize; print(os.environ['OWN'], sitecustomize.__file__)"
    result = run(sys.executable, "-c", code, options=PLACEMENT_OPTION, env={"PYTHONPATH": str(folder)})
    assert result.stdout == f"read {folder / 'sitecustomize.py'}\n", result.stderr


@pytest.mark.parametrize("code", ["raise ValueError('broken')", "import no_such_module"])
def test_broken_sitecustomize_is_reported_as_usual(program: Path, code: str) -> None:
    folder = program.parent / "own"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(f"{code}\n")
    with_placement, without_placement = (
        run(sys.executable, "-c", "print(1)", options=options, env={"PYTHONPATH": str(folder)})
        for options in (PLACEMENT_OPTION, ())
    )
    assert with_placement.stdout == without_placement.stdout == "1\n"
    last = next(line for line in without_placement.stderr.splitlines() if "Error: " in line)
    assert last in with_placement.stderr.splitlines()


def test_missing_placement_is_reported(program: Path) -> None:
    """Report a missing placement if Python ignores environment variables (-E)."""
    result = run(sys.executable, "-E", "-c", "print(1)", options=(*PLACEMENT_OPTION, "--quiet"))
    assert result.stdout == "1\n"
    assert result.stderr.startswith("Where operations ran is not known: TensorFlow logged no operation.")
    assert "slower" not in result.stderr


@pytest.mark.parametrize("status", ["0", "1"])
def test_refused_operation_is_a_finding(status: str) -> None:
    message = (
        "Cannot assign a device for operation x: node x (defined at <stdin>:1) was explicitly assigned to "
        "/device:GPU:7 but available devices are [ /job:localhost/replica:0/task:0/device:CPU:0 ]. Make sure the "
        "device specification refers to a valid device."
    )
    code = f"import sys; sys.stderr.write({message!r} + chr(10)); sys.exit({status})"
    result = run(sys.executable, "-c", code, options=(*PLACEMENT_OPTION, "--fail-on", "error"))
    assert result.returncode == 1
    assert "GPU:7" in result.stderr


REAL_PROGRAMS = {
    "2.18": "import tensorflow as tf\nprint(tf.matmul(tf.ones((2, 2)), tf.ones((2, 2))).shape)\n",
    "1.14": "import tensorflow as tf\nprint(tf.Session().run(tf.matmul(tf.ones((2, 2)), tf.ones((2, 2)))).shape)\n",
}


@pytest.mark.tensorflow
@pytest.mark.skipif(not os.environ.get("TFDOCTOR_LAB"), reason="TFDOCTOR_LAB=1 runs real TensorFlow")
@pytest.mark.parametrize("name", list(REAL_PROGRAMS) if environments.is_full_run() else ["2.18"])
def test_real_tensorflow(tmp_path: Path, name: str) -> None:
    (tmp_path / "multiply.py").write_text(REAL_PROGRAMS[name])
    with environments.provide_environment(name, tmp_path / "env") as python:
        if isinstance(python, str):
            pytest.skip(python)
        result = run(str(python), str(tmp_path / "multiply.py"), options=PLACEMENT_OPTION)
    assert result.returncode == 0, result.stderr
    assert "(2, 2)" in result.stdout.splitlines()  # C++ code prints to standard output, too, and later
    assert "on CPU:0; no GPU got any." in result.stderr
    assert any(
        line.split()[0].endswith("MatMul") for line in result.stderr.splitlines() if line.startswith("  ")
    )
