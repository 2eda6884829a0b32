"""The rehearsal of an import by real interpreters: it names the failing module and its cause."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from payload.test_pythons import PYTHONS, on_every_python
from tfdoctor.core.facts import Absent, Known, Unknown
from tfdoctor.core.facts.imports import RehearsalReason
from tfdoctor.core.facts.python import PythonChoice
from tfdoctor.probes import python, rehearsal
from tfdoctor.system import LiveSystem

if TYPE_CHECKING:
    from pathlib import Path

ODD = (RehearsalReason("a", "it is odd"),)


def rehearse(folder: Path, *modules, sources=(), keras=(), version="", timeout=60, variables=None):
    """Rehearse the imports with a folder on PYTHONPATH, by one of this machine's Pythons."""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": str(folder), **(variables or {})}
    system = LiveSystem(env=env, cwd=str(folder))
    interpreter = PYTHONS[version] if version else sys.executable
    facts, _ = python.probe(
        system, PythonChoice(str(interpreter), str(interpreter)), is_requested=True, timeout=60
    )
    return rehearsal.probe(
        system, facts.value, modules, sources, ODD, keras, version="2.99.1", timeout=timeout
    )


def write_modules(folder: Path, **modules: str) -> None:
    """Write a file for each module; `_in_` in a name stands for a path separator."""
    for name, text in modules.items():
        path = folder / f"{name.replace('_in_', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@pytest.mark.few(2)
@on_every_python
def test_every_python_names_the_missing_module(tmp_path: Path, version: str) -> None:
    write_modules(
        tmp_path,
        package_in___init__="",
        absent="import not_there_at_all.part\n",
        within="import package.none\n",
    )
    modules = ("not_there", "not_there.part", "absent", "within", "package.none")
    result = rehearse(tmp_path, *((name, ()) for name in modules), version=version)
    assert isinstance(result, Known)
    missing = [module.not_found for module in result.value.modules]
    if (
        version == "2.7"
    ):  # Python 2.7 names only the last part of a module in a package, which is another module's name
        assert missing in (
            ["not_there", "not_there.part", "not_there_at_all.part", "", ""],
            ["not_there", "not_there", "not_there_at_all", "", ""],
        )
    elif version != "3.5":
        assert missing == ["not_there", "not_there", "not_there_at_all", "package.none", "package.none"]


@on_every_python
def test_every_python_reports_the_failing_imports(tmp_path: Path, version: str) -> None:
    write_modules(
        tmp_path,
        good="VALUE = 1\nclass inner:\n    deep = 2\n",
        bad="raise ValueError('numpy.dtype size changed')\n",
        absent="import not_there_at_all\n",
        package_in___init__="",
        package_in_part="X = 1\n",
    )
    result = rehearse(
        tmp_path,
        ("good", ("VALUE", "inner.deep")),
        ("package", ("part.X",)),
        ("good", ("nothing",)),
        ("bad", ()),
        ("absent", ()),
        version=version,
    )
    assert isinstance(result, Known)
    good, package, attribute, bad, absent = result.value.modules
    assert good.ok
    assert package.ok
    assert good.file.endswith(("good.py", "good.pyc"))
    assert attribute.attribute_error
    assert "nothing" in attribute.error
    assert (bad.error_type, bad.error) == ("ValueError", "numpy.dtype size changed")
    assert bad.frames[-1].endswith("bad.py")
    assert absent.import_error
    assert result.value.complete
    assert result.value.oddities == ODD
    assert not list(tmp_path.rglob("*.pyc"))


def test_missing_module_is_named(tmp_path: Path) -> None:
    (module,) = rehearse(tmp_path, ("not_there_at_all.deep", ())).value.modules
    assert module.not_found == "not_there_at_all"


@pytest.mark.parametrize("path", ["", ":", ".", "/nowhere:", ":/nowhere", "./", "../{name}"])
def test_nothing_is_imported_from_the_working_folder(tmp_path: Path, path: str) -> None:
    write_modules(tmp_path, colorsys="raise RuntimeError('mine')\n")
    variables = {"PYTHONPATH": path.format(name=tmp_path.name)}
    (module,) = rehearse(tmp_path, ("colorsys", ()), variables=variables).value.modules
    assert module.ok
    assert not module.file.startswith(str(tmp_path))


def test_folder_on_pythonpath_is_imported_from(tmp_path: Path) -> None:
    write_modules(tmp_path, colorsys="raise RuntimeError('mine')\n")
    (module,) = rehearse(tmp_path, ("colorsys", ())).value.modules
    assert module.error == "mine"


@pytest.mark.parametrize("ending", ["import os; os.abort()", "import os; os._exit(3)"])
def test_crash_names_the_module(tmp_path: Path, ending: str) -> None:
    write_modules(tmp_path, bad=ending, good="")
    result = rehearse(tmp_path, ("good", ()), ("bad", ()), ("good", ()))
    assert isinstance(result, Known)
    assert [module.ok for module in result.value.modules] == [True, False]
    assert result.value.modules[-1].error_type == "crash"
    assert not result.value.complete


def test_exit_without_an_error_is_unknown(tmp_path: Path) -> None:
    write_modules(tmp_path, bad="import os; os._exit(0)")
    assert isinstance(rehearse(tmp_path, ("bad", ())), Unknown)


def test_hanging_import_is_unknown(tmp_path: Path) -> None:
    write_modules(tmp_path, bad="import time; time.sleep(60)")
    result = rehearse(tmp_path, ("bad", ()), timeout=3)
    assert isinstance(result, Unknown)
    assert "bad" in result.why


def test_output_of_modules_is_ignored(tmp_path: Path) -> None:
    write_modules(
        tmp_path,
        loud="print('tfdoctor-payload:{\"done\": 1')\nprint('x' * 100000, end='')\nraise SystemExit(1)\n",
    )
    (module,) = rehearse(tmp_path, ("loud", ())).value.modules
    assert module.error_type == "SystemExit"


def test_generated_source_is_executed(tmp_path: Path) -> None:
    write_modules(
        tmp_path, generated="raise TypeError('Descriptors cannot be created directly')\n", fine="VALUE = 1\n"
    )
    result = rehearse(tmp_path, sources=(str(tmp_path / "generated.py"),)).value
    assert result.source is not None
    assert result.source.error_type == "TypeError"
    assert rehearse(tmp_path, sources=(str(tmp_path / "fine.py"),)).value.source.ok


def test_missing_interpreter_gives_no_rehearsal(tmp_path: Path) -> None:
    system = LiveSystem()
    facts, _ = python.probe(
        system, PythonChoice(str(sys.executable), str(sys.executable)), is_requested=True, timeout=60
    )
    moved = replace(facts.value, executable=str(tmp_path / "python"))
    assert isinstance(rehearsal.probe(system, moved, (("a", ()),), (), ODD, timeout=9), Absent)


LIKE_KERAS = """
import inspect, os
import tensorflow as tf
from tensorflow.python.util import module_wrapper
from tensorflow.python.trackable.data_structures import ListWrapper
from typing import Optional, Union

assert tf.__version__ == "2.99.1" and inspect.isclass(ListWrapper)
assert not isinstance(3, tf.Tensor) and not issubclass(int, tf.Module)

class Meta(type):
    pass

@tf.keras_export("keras.Layer")
class Layer(tf.Module, tf.__internal__.tracking.AutoTrackable, metaclass=Meta):
    def __init__(self, one: Optional[tf.Tensor] = None, *more: Union[int, tf.Variable]):
        super().__init__()
        self.add = tf.nest.map_structure(lambda one: one, {})

class Dense(Layer, tf.Other):
    @tf.function(jit_compile=True)
    def call(self, inputs):
        return tf.matmul(inputs, self.kernel) + 1 - tf.constant(2) * 3

    @tf.autograph.experimental.do_not_convert
    def other(self):
        return 5

assert Dense().other() == 5 and Dense().anything is not None
assert tf.__internal__.decorator.unwrap(Dense) == ([], Dense)
DTYPES = {tf.float32: 4, tf.as_dtype("int8"): 1}
LIMIT = tf.float32.max if tf.executing_eagerly() else tf.float32.min
with tf.init_scope():
    TOTAL = float(tf.constant(1)) + int(tf.constant(1)) + len(list(tf.config.list_physical_devices()))
HOME = os.environ.get("KERAS_HOME", os.path.expanduser("~/.keras"))
try:
    os.makedirs(HOME)
except OSError:
    pass
"""


@on_every_python
def test_keras_is_imported_with_a_stand_in_for_tensorflow(tmp_path: Path, version: str) -> None:
    write_modules(
        tmp_path, keras_in___init__="", keras_in_whole=LIKE_KERAS, keras_in_bad="import tensorflow\ndef ("
    )
    result = rehearse(tmp_path, ("json", ()), keras=("keras.whole", "keras.bad"), version=version)
    assert isinstance(result, Known)
    if version and tuple(map(int, version.split("."))) < (3, 7):
        assert result.value.keras == ()  # no TensorFlow for these versions has a separate Keras
        return
    whole, bad = result.value.keras
    assert whole.ok, (whole.error_type, whole.error, whole.frames)
    assert (bad.name, bad.error_type) == ("keras.bad", "SyntaxError")
    assert not (tmp_path / ".keras").exists()  # `check` changes nothing


def test_existing_keras_settings_are_read(tmp_path: Path) -> None:
    (tmp_path / ".keras").mkdir()
    (tmp_path / ".keras" / "keras.json").write_text("{}", encoding="utf-8")
    write_modules(tmp_path, keras_in___init__="import os\nassert 'KERAS_HOME' not in os.environ\n")
    (module,) = rehearse(tmp_path, ("json", ()), keras=("keras",)).value.keras
    assert module.ok, module.error


def test_crash_in_keras_is_reported_for_keras(tmp_path: Path) -> None:
    write_modules(tmp_path, keras_in___init__="import os\nos.abort()\n")
    result = rehearse(tmp_path, ("json", ()), keras=("keras",)).value
    assert [module.ok for module in result.modules] == [True]
    assert [(module.name, module.error_type) for module in result.keras] == [("keras", "crash")]


def test_keras_that_needs_names_tensorflow_lacks(tmp_path: Path) -> None:
    """The stand-in has every name except those that the installed files certainly do not have."""
    write_modules(
        tmp_path,
        tensorflow_in___init__="setattr(module, 'name', 1)\n",
        tensorflow_in__api_in_v2_in___init__="",
        tensorflow_in__api_in_v2_in_experimental_in___init__="from . import numpy\n",
        tensorflow_in__api_in_v2_in_experimental_in_numpy_in___init__="from x import *\n",
        tensorflow_in_python_in___init__="",
        tensorflow_in_python_in_ops="def add(): pass\n",
        there="import tensorflow as tf\ntf.made.later\nfrom tensorflow import any_name\n"
        "from tensorflow.experimental import numpy\nfrom tensorflow.experimental.numpy import starred\n"
        "from tensorflow.python.ops import add\nimport tensorflow.built.in_some_other_way\n",
        no_name="from tensorflow.experimental import dtensor\n",
        no_function="from tensorflow.python.ops import subtract\n",
        no_module="import tensorflow.python.trackable\n",
    )
    result = rehearse(tmp_path, ("json", ()), keras=("there", "no_name", "no_function", "no_module"))
    errors = [(module.error_type, module.not_found) for module in result.value.keras]
    assert errors == [
        ("", ""),
        ("ImportError", ""),
        ("ImportError", ""),
        ("ModuleNotFoundError", "tensorflow.python.trackable"),
    ]
