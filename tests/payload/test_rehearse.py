"""The rehearsal of an import, by real interpreters: what fails is named, and where it came from."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from payload.test_pythons import PYTHONS, on_every_python
from tfdoctor.facts import Absent, Known, Unknown
from tfdoctor.facts.imports import Oddity
from tfdoctor.facts.python import Choice
from tfdoctor.probes import python, rehearsal
from tfdoctor.system import LiveSystem

if TYPE_CHECKING:
    from pathlib import Path

ODD = (Oddity("a", "it is odd"),)


def rehearse(folder: Path, *modules, sources=(), keras=(), version="", timeout=60, variables=None):
    """Rehearse with a folder on PYTHONPATH, by one of this machine's Pythons."""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": str(folder), **(variables or {})}
    system = LiveSystem(env=env, cwd=str(folder))
    interpreter = PYTHONS[version] if version else sys.executable
    facts, _ = python.probe(system, Choice(str(interpreter), str(interpreter)), asked=True, timeout=60)
    return rehearsal.probe(
        system, facts.value, modules, sources, ODD, keras, version="2.99.1", timeout=timeout
    )


def write(folder: Path, **modules: str) -> None:
    for name, text in modules.items():
        path = folder / f"{name.replace('_in_', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@pytest.mark.few(2)
@on_every_python
def test_every_python_names_the_module_that_is_not_there(tmp_path: Path, version: str) -> None:
    write(
        tmp_path,
        package_in___init__="",
        absent="import not_there_at_all.part\n",
        within="import package.none\n",
    )
    modules = ("not_there", "not_there.part", "absent", "within", "package.none")
    found = rehearse(tmp_path, *((name, ()) for name in modules), version=version)
    assert isinstance(found, Known)
    named = [one.not_found for one in found.value.modules]
    if version == "2.7":  # it says of a module in a package its last name alone, which is another module's
        assert named in (
            ["not_there", "not_there.part", "not_there_at_all.part", "", ""],
            ["not_there", "not_there", "not_there_at_all", "", ""],
        )
    elif version != "3.5":
        assert named == ["not_there", "not_there", "not_there_at_all", "package.none", "package.none"]


@on_every_python
def test_every_python_says_what_fails(tmp_path: Path, version: str) -> None:
    write(
        tmp_path,
        good="VALUE = 1\nclass inner:\n    deep = 2\n",
        bad="raise ValueError('numpy.dtype size changed')\n",
        absent="import not_there_at_all\n",
        package_in___init__="",
        package_in_part="X = 1\n",
    )
    found = rehearse(
        tmp_path,
        ("good", ("VALUE", "inner.deep")),
        ("package", ("part.X",)),
        ("good", ("nothing",)),
        ("bad", ()),
        ("absent", ()),
        version=version,
    )
    assert isinstance(found, Known)
    good, package, attribute, bad, absent = found.value.modules
    assert good.ok
    assert package.ok
    assert good.file.endswith(("good.py", "good.pyc"))
    assert attribute.attribute_error
    assert "nothing" in attribute.error
    assert (bad.error_type, bad.error) == ("ValueError", "numpy.dtype size changed")
    assert bad.frames[-1].endswith("bad.py")
    assert absent.import_error
    assert found.value.complete
    assert found.value.oddities == ODD
    assert not list(tmp_path.rglob("*.pyc"))


def test_a_missing_module_is_named(tmp_path: Path) -> None:
    (one,) = rehearse(tmp_path, ("not_there_at_all.deep", ())).value.modules
    assert one.not_found == "not_there_at_all"


@pytest.mark.parametrize("path", ["", ":", ".", "/nowhere:", ":/nowhere", "./", "../{name}"])
def test_nothing_is_imported_from_the_working_folder(tmp_path: Path, path: str) -> None:
    write(tmp_path, colorsys="raise RuntimeError('mine')\n")
    variables = {"PYTHONPATH": path.format(name=tmp_path.name)}
    (one,) = rehearse(tmp_path, ("colorsys", ()), variables=variables).value.modules
    assert one.ok
    assert not one.file.startswith(str(tmp_path))


def test_a_folder_that_pythonpath_names_is_imported_from(tmp_path: Path) -> None:
    write(tmp_path, colorsys="raise RuntimeError('mine')\n")
    (one,) = rehearse(tmp_path, ("colorsys", ())).value.modules
    assert one.error == "mine"


@pytest.mark.parametrize("ending", ["import os; os.abort()", "import os; os._exit(3)"])
def test_a_crash_names_the_module(tmp_path: Path, ending: str) -> None:
    write(tmp_path, bad=ending, good="")
    found = rehearse(tmp_path, ("good", ()), ("bad", ()), ("good", ()))
    assert isinstance(found, Known)
    assert [one.ok for one in found.value.modules] == [True, False]
    assert found.value.modules[-1].error_type == "crash"
    assert not found.value.complete


def test_an_exit_without_an_error_is_not_known(tmp_path: Path) -> None:
    write(tmp_path, bad="import os; os._exit(0)")
    assert isinstance(rehearse(tmp_path, ("bad", ())), Unknown)


def test_an_import_that_hangs_is_not_known(tmp_path: Path) -> None:
    write(tmp_path, bad="import time; time.sleep(60)")
    found = rehearse(tmp_path, ("bad", ()), timeout=3)
    assert isinstance(found, Unknown)
    assert "bad" in found.why


def test_what_modules_print_is_no_answer(tmp_path: Path) -> None:
    write(
        tmp_path,
        loud="print('tfdoctor-payload:{\"done\": 1')\nprint('x' * 100000, end='')\nraise SystemExit(1)\n",
    )
    (one,) = rehearse(tmp_path, ("loud", ())).value.modules
    assert one.error_type == "SystemExit"


def test_a_generated_source_is_executed(tmp_path: Path) -> None:
    write(
        tmp_path, generated="raise TypeError('Descriptors cannot be created directly')\n", fine="VALUE = 1\n"
    )
    found = rehearse(tmp_path, sources=(str(tmp_path / "generated.py"),)).value
    assert found.source is not None
    assert found.source.error_type == "TypeError"
    assert rehearse(tmp_path, sources=(str(tmp_path / "fine.py"),)).value.source.ok


def test_a_recording_without_a_rehearsal_is_no_failure(tmp_path: Path) -> None:
    system = LiveSystem()
    facts, _ = python.probe(system, Choice(str(sys.executable), str(sys.executable)), asked=True, timeout=60)
    gone = replace(facts.value, executable=str(tmp_path / "python"))
    assert isinstance(rehearsal.probe(system, gone, (("a", ()),), (), ODD, timeout=9), Absent)


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
def test_keras_is_imported_with_something_in_the_place_of_tensorflow(tmp_path: Path, version: str) -> None:
    write(tmp_path, keras_in___init__="", keras_in_whole=LIKE_KERAS, keras_in_bad="import tensorflow\ndef (")
    found = rehearse(tmp_path, ("json", ()), keras=("keras.whole", "keras.bad"), version=version)
    assert isinstance(found, Known)
    if version and tuple(map(int, version.split("."))) < (3, 7):
        assert found.value.keras == ()  # no TensorFlow for these has a Keras apart
        return
    whole, bad = found.value.keras
    assert whole.ok, (whole.error_type, whole.error, whole.frames)
    assert (bad.name, bad.error_type) == ("keras.bad", "SyntaxError")
    assert not (tmp_path / ".keras").exists()  # `check` changes nothing


def test_the_settings_that_keras_has_are_read(tmp_path: Path) -> None:
    (tmp_path / ".keras").mkdir()
    (tmp_path / ".keras" / "keras.json").write_text("{}", encoding="utf-8")
    write(tmp_path, keras_in___init__="import os\nassert 'KERAS_HOME' not in os.environ\n")
    (one,) = rehearse(tmp_path, ("json", ()), keras=("keras",)).value.keras
    assert one.ok, one.error


def test_a_crash_in_keras_is_keras_s(tmp_path: Path) -> None:
    write(tmp_path, keras_in___init__="import os\nos.abort()\n")
    found = rehearse(tmp_path, ("json", ()), keras=("keras",)).value
    assert [one.ok for one in found.modules] == [True]
    assert [(one.name, one.error_type) for one in found.keras] == [("keras", "crash")]


def test_a_keras_that_asks_for_what_this_tensorflow_lacks(tmp_path: Path) -> None:
    """The stand-in has every name, but for those that the installed files are sure not to have."""
    write(
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
    found = rehearse(tmp_path, ("json", ()), keras=("there", "no_name", "no_function", "no_module"))
    answers = [(one.error_type, one.not_found) for one in found.value.keras]
    assert answers == [
        ("", ""),
        ("ImportError", ""),
        ("ImportError", ""),
        ("ModuleNotFoundError", "tensorflow.python.trackable"),
    ]
