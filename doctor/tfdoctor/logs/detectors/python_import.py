"""What ends `import tensorflow` before TensorFlow says a word: read from tracebacks, never from an error line alone.

An ImportError can be anybody's. It is TensorFlow's where the traceback above it goes through a module of TensorFlow's
that is being imported, or where the error itself names a file of TensorFlow's.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from tfdoctor.findings import Cause
from tfdoctor.logs.libraries import is_driver
from tfdoctor.logs.log_context import Case, Decision

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.logs.events import Event

_INSTALLED = re.compile(
    r"[\\/](?:site|dist)-packages[\\/]|[\\/]lib(?:64)?[\\/](?:python|pypy)\d|[\\/]Lib[\\/]|\.zip[\\/]|^<|<frozen"
)
"""Where installed modules and Python's own lie."""
_TENSORFLOW = re.compile(r"(?:site|dist)-packages[\\/](?:tensorflow|tensorflow_core|tensorflow_intel)[\\/]")
_OURS = re.compile(
    r"(?:site|dist)-packages[\\/](?:tensorflow(?:_core|_intel)?|nvidia|tensorrt|tensorflow-plugins)[\\/]"
)
_PACKAGES = (
    "absl astor astunparse cv2 distutils flatbuffers gast google grain grpc h5py huggingface_hub "
    "imp IPython jax keras keras_applications keras_preprocessing libclang markdown matplotlib "
    "ml_dtypes namex numpy opt_einsum optree packaging pandas PIL pkg_resources protobuf psutil "
    "pydot pydot_ng pydotplus requests rich scipy setuptools six sklearn tensorboard tensorflow "
    "tensorflow_estimator tensorflow_io_gcs_filesystem termcolor tf_keras typing_extensions "
    "urllib3 werkzeug wrapt yaml"
)
_MODULES = sys.stdlib_module_names | frozenset(_PACKAGES.split())
"""What TensorFlow, and what it imports, can import: a file of one of these names comes in its place."""
_NAMED = re.compile(r"[\\/]tensorflow(?:\.py|[\\/]__init__\.py)$")
_FRAME = 4
"""Lines from one frame of Python's to the next: itself, the source, a mark under it, and what a terminal cut."""
_CELL = 20
"""The same in IPython, which shows the lines around it."""
_SAYS_MORE = ("cuinit", "registration-skipped", "dso-failed", "dso-failed-old", "device-found", "numa")
"""What TensorFlow says after its import."""


def imports(case: Case) -> Decision | None:
    """Return why `import tensorflow` failed. None if TensorFlow was imported in the end."""
    log = case.log
    broken = log.first("python-broken")
    if broken is not None and case.created is None and not log.has(*_SAYS_MORE):
        cause = Cause.NOT_PERMITTED if broken.get("why") == "Permission denied" else Cause.PYTHON_UNUSABLE
        return Decision(cause, case.says("python-broken"))
    if case.created is not None or case.ready >= 0 or log.has(*_SAYS_MORE):
        return None
    return (
        _detect_named(case)
        or _detect_shadowed(case)
        or _detect_in_tracebacks(case)
        or _lacks_names(case)
        or _absent(case)
    )


def _detect_named(case: Case) -> Decision | None:
    """Return the error itself names a file of TensorFlow's, or TensorFlow."""
    for event in case.log.list_events("module-shadowed"):
        if event.get("name") or _imports_tensorflow(_frames(case, event)):
            return Decision(Cause.SHADOWED_MODULE, (event,), (), _rename(event.get("path")))
    for event in case.log.list_events("file-damaged"):
        if _OURS.search(event.get("path")) or event.get("name").partition(".")[0] == "tensorflow":
            return Decision(Cause.DAMAGED_FILE, (event,))
    for event in case.log.list_events("file-refused"):
        if _OURS.search(event.get("path") or event.get("library")):
            return Decision(Cause.NOT_PERMITTED, (event,))
    return None


def _detect_shadowed(case: Case) -> Decision | None:
    """Return an installed module imports a file of the user's: that has the name of another one."""
    before: list[Event] = []
    for event in case.log.list_events("import-frame"):
        path = _path(event)
        if not path or (before and event.line - before[-1].line > _reach(event)):
            before.clear()
        if not path:
            continue
        mine = _name(path) in _MODULES and _INSTALLED.search(path) is None and not path.startswith(("<", "~"))
        if mine and _imports_tensorflow(before):
            return Decision(Cause.SHADOWED_MODULE, (before[-1], event), (), _rename(path))
        if mine and before and _NAMED.search(path) and not _NAMED.search(_path(before[-1])):
            return Decision(Cause.SHADOWED_MODULE, (event,), (), _rename(path))
        before.append(event)
    return None


def _detect_in_tracebacks(case: Case) -> Decision | None:
    """Return an error under which TensorFlow was being imported."""
    for event in case.log.list_events("file-damaged", "file-refused", "import-error"):
        frames = _frames(case, event)
        library = (event.get("path") or event.get("library")).rpartition("/")[2]
        if not _imports_tensorflow(frames) or is_driver(library):
            continue  # a driver's library is empty where a container was started without GPUs
        evidence = (event, frames[-1])
        if event.id == "file-damaged":
            return Decision(Cause.DAMAGED_FILE, evidence)
        if event.id == "file-refused":
            return Decision(Cause.NOT_PERMITTED, evidence)
        path = event.get("path")
        if (
            path
            and path != "unknown location"
            and _name(path) in _MODULES
            and _INSTALLED.search(path) is None
        ):
            return Decision(Cause.SHADOWED_MODULE, evidence, (), _rename(path))
        name = (event.get("source") or event.get("of") or event.get("lost")).partition(".")[0]
        if name.startswith("tensorflow") and name != "tensorflow_estimator":
            continue  # its own parts: two packages over each other, or another module in its place
        if case.log.has("protobuf", "numpy-abi"):
            continue  # said better there
        return Decision(Cause.PACKAGE_CONFLICT, evidence, (Cause.SHADOWED_MODULE,))
    return None


def _lacks_names(case: Case) -> Decision | None:
    """Return what was imported as TensorFlow is not it: every release has most names, and those that came or went
    with TensorFlow 2 are tried last (`detect_other_api`).
    """
    event = case.log.first("tensorflow-attribute")
    if event is None or event.get("second") or case.both_listed:
        return None
    frames = _frames(case, event)
    own = next((frame for frame in reversed(frames) if _NAMED.search(_path(frame))), None)
    if own is not None and _INSTALLED.search(_path(own)) is None:
        return Decision(Cause.SHADOWED_MODULE, (own, event), (), _rename(_path(own)))
    if event.get("partial"):
        return Decision(Cause.SHADOWED_MODULE, (event,), (Cause.DAMAGED_FILE,), PARTIAL)
    if _imports_tensorflow(frames) or _spoke(case) or _is_other_api(case, event):
        return None
    maybe = (Cause.SHADOWED_MODULE, Cause.INCONCLUSIVE) if event.get("newer") else (Cause.SHADOWED_MODULE,)
    who = "Every TensorFlow from 2.0 on" if event.get("newer") else "Every TensorFlow"
    title = "What is imported under the name tensorflow is not TensorFlow"
    return Decision(Cause.DAMAGED_FILE, (event,), maybe, f"{who} {HOLLOW}", title)


def _spoke(case: Case) -> bool:
    """Return whether anything in the log is said by a TensorFlow: then it was imported."""
    said = any(case.log.list_events(name)[0].signature.benign is not None for name in case.log.events)
    return said or case.log.has("format-classic", "format-absl")


def _is_other_api(case: Case, event: Event) -> bool:
    """Return whether the name is missing because the program is written for another TensorFlow than this."""
    if event.get("second") or (event.get("removed") and not case.surely("first-api")):
        return True
    return bool(event.get("newer")) and case.surely("first-api")


def detect_other_api(case: Case) -> Decision | None:
    """Return the program fails for a name, and nothing else in the log is wrong: that is no matter of the GPU."""
    event = case.log.first("tensorflow-attribute")
    if event is None or not _is_other_api(case, event):
        return None
    if event.get("newer"):
        title = "The program asks for a name that this TensorFlow does not have yet"
        return Decision(Cause.INCONCLUSIVE, (event,), (), NEWER, title)
    sure = event.get("second") or _spoke(case)
    maybe = () if sure else (Cause.DAMAGED_FILE, Cause.SHADOWED_MODULE)
    title = "The program asks for a name that TensorFlow 2 does not have"
    return Decision(Cause.INCONCLUSIVE, (event,), maybe, REMOVED, title)


PARTIAL = (
    "While `tensorflow` was being imported, something that it imports asked for this name: a file of the program's own "
    "that is called tensorflow.py, or as a module that TensorFlow imports, is usually in the way."
)
HOLLOW = (
    "has this name, so this is not TensorFlow: usually it is a folder `tensorflow` without its "
    "__init__.py, which an interrupted "
    "installation or removal has left, else a file or folder of that name beside the program. "
    '`python3 -c "import tensorflow; print(tensorflow.__path__)"` shows where it is.'
)
REMOVED = (
    "It was removed from TensorFlow 2, or moved to tf.compat.v1 (`import tensorflow.compat.v1 as tf`): "
    "the program is "
    "written for TensorFlow 1. This has nothing to do with the GPU or the installation."
)
NEWER = (
    "It was added in a later release: the program is written for that release. This has nothing to do "
    "with the GPU or the "
    "installation."
)


def _absent(case: Case) -> Decision | None:
    """TensorFlow is not there, and nothing in the log is said by a TensorFlow."""
    log = case.log
    if log.has(
        "format-classic", "format-absl", "tf-version", "native-runtime-failed", "import-so", "import-dll"
    ):
        return None
    return (
        Decision(Cause.TENSORFLOW_MISSING, case.says("tensorflow-absent"))
        if log.has("tensorflow-absent")
        else None
    )


def _frames(case: Case, error: Event) -> list[Event]:
    """Return the frames of modules being imported that stand directly above an error, the outermost first."""
    frames: list[Event] = []
    line = error.line
    for event in reversed(case.log.list_events("import-frame")):
        if event.line > line:
            continue
        if not _path(event) or line - event.line > _reach(event):
            break
        frames.append(event)
        line = event.line
    return frames[::-1]


def _reach(frame: Event) -> int:
    return _CELL if frame.get("shown") else 4 * _FRAME


def _path(frame: Event) -> str:
    return frame.get("path") or frame.get("shown")


def _name(path: str) -> str:
    """Return the module that a file is."""
    return re.sub(r"([\\/]__init__)?\.py$", "", path).replace("\\", "/").rpartition("/")[2]


def _imports_tensorflow(frames: Sequence[Event]) -> bool:
    return any(_TENSORFLOW.search(_path(frame)) for frame in frames)


def _rename(path: str) -> str:
    shown = path.replace("`", "'")
    return f"Rename {shown}, and delete the __pycache__ next to it." if path else ""
