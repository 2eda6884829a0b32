"""`tfdoctor run --placement`: TensorFlow logs where operations go, in a program that does not ask for it."""

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

ASKED = ("--placement",)
PLACED = (
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
                    sys.stderr.write("{PLACED}\\n".format("by_session"))
                self.memory = getattr(config, "memory", None)
    ''',
    "tensorflow/python/eager/context.py": f'''
        import sys

        class Context(object):
            def __init__(self, config=None):
                self._log_device_placement = None

            def run(self):
                if self._log_device_placement:
                    sys.stderr.write("{PLACED}\\n".format("by_context"))
    ''',
    "tensorflow/core/protobuf/config_pb2.py": """
        class ConfigProto(object):
            log_device_placement = False
            memory = None

            def CopyFrom(self, other):
                self.__dict__.update(other.__dict__)
    """,
}
"""The parts of TensorFlow that decide what is logged, as far as they matter here."""
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
    """This Python, and an old one where there is one: programs of TensorFlow 1 have those."""
    return [sys.executable, *filter(None, map(environments.find_python, ("2.7", "3.7")))]


@pytest.mark.parametrize("python", pythons())
def test_a_program_that_asks_for_nothing(program: Path, python: str) -> None:
    done = run(python, str(program), options=ASKED, env={"TF_CPP_MIN_LOG_LEVEL": "2"})
    assert (done.returncode, done.stdout) == (7, "0\n"), done.stderr
    assert done.stderr.count("by_session") == 2
    assert done.stderr.count("by_context") == 1
    assert "✓ All 2 operations were placed on GPU:0." in done.stderr
    assert "TF_CPP_MIN_LOG_LEVEL was 0 instead of 2 for this run." in done.stderr


def test_lines_are_counted_wherever_the_pieces_of_the_output_end() -> None:
    line = f"{PLACED.format('node%d')}\\n"
    code = f"import sys\nfor n in range(20000): sys.stderr.write('{line}' % n)"
    done = run(sys.executable, "-c", code, options=(*ASKED, "--quiet"))
    assert done.stderr.endswith("✓ All 20,000 operations were placed on GPU:0.\n")


def test_unless_it_is_wanted_nothing_is_logged(program: Path) -> None:
    done = run(sys.executable, str(program))
    assert done.returncode == 7
    assert "placer.cc" not in done.stderr
    assert "Where operations ran" not in done.stderr


def test_the_environments_own_sitecustomize_has_its_say(program: Path) -> None:
    own = program.parent / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import os\nos.environ['OWN'] = 'read'\n")
    code = "import os, sitecustomize; print(os.environ['OWN'], sitecustomize.__file__)"
    done = run(sys.executable, "-c", code, options=ASKED, env={"PYTHONPATH": str(own)})
    assert done.stdout == f"read {own / 'sitecustomize.py'}\n", done.stderr


@pytest.mark.parametrize("code", ["raise ValueError('broken')", "import no_such_module"])
def test_a_broken_sitecustomize_is_reported_as_without_us(program: Path, code: str) -> None:
    own = program.parent / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text(f"{code}\n")
    there, without = (
        run(sys.executable, "-c", "print(1)", options=options, env={"PYTHONPATH": str(own)})
        for options in (ASKED, ())
    )
    assert there.stdout == without.stdout == "1\n"
    last = next(line for line in without.stderr.splitlines() if "Error: " in line)
    assert last in there.stderr.splitlines()


def test_a_log_without_placement_says_so(program: Path) -> None:
    """A Python that reads no variables (-E) cannot be told."""
    done = run(sys.executable, "-E", "-c", "print(1)", options=(*ASKED, "--quiet"))
    assert done.stdout == "1\n"
    assert done.stderr == "! This log does not say where operations ran.\n"


@pytest.mark.parametrize("status", ["0", "1"])
def test_a_refused_operation_is_a_finding(status: str) -> None:
    said = (
        "Cannot assign a device for operation x: node x (defined at <stdin>:1) was explicitly assigned to "
        "/device:GPU:7 but available devices are [ /job:localhost/replica:0/task:0/device:CPU:0 ]. Make sure the "
        "device specification refers to a valid device."
    )
    code = f"import sys; sys.stderr.write({said!r} + chr(10)); sys.exit({status})"
    done = run(sys.executable, "-c", code, options=(*ASKED, "--fail-on", "error"))
    assert done.returncode == 1
    assert "GPU:7" in done.stderr


REAL = {
    "2.18": "import tensorflow as tf\nprint(tf.matmul(tf.ones((2, 2)), tf.ones((2, 2))).shape)\n",
    "1.14": "import tensorflow as tf\nprint(tf.Session().run(tf.matmul(tf.ones((2, 2)), tf.ones((2, 2)))).shape)\n",
}


@pytest.mark.tensorflow
@pytest.mark.skipif(not os.environ.get("TFDOCTOR_LAB"), reason="TFDOCTOR_LAB=1 runs real TensorFlow")
@pytest.mark.parametrize("name", list(REAL) if environments.list_everything() else ["2.18"])
def test_real_tensorflow(tmp_path: Path, name: str) -> None:
    (tmp_path / "multiply.py").write_text(REAL[name])
    with environments.environment(name, tmp_path / "env") as python:
        if isinstance(python, str):
            pytest.skip(python)
        done = run(str(python), str(tmp_path / "multiply.py"), options=ASKED)
    assert done.returncode == 0, done.stderr
    assert "(2, 2)" in done.stdout.splitlines()  # C++ prints there, too, and later
    assert "on CPU:0; no GPU got any." in done.stderr
    assert any(
        line.split()[0].endswith("MatMul") for line in done.stderr.splitlines() if line.startswith("  ")
    )
