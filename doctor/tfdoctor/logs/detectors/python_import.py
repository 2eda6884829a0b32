"""Detect a failed `import tensorflow` from its traceback, not only from the error line.

Any package can raise an ImportError. The error belongs to TensorFlow if the traceback above it contains a TensorFlow
module that is being imported, or if the error names a TensorFlow file.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from tfdoctor.core.findings import Cause
from tfdoctor.logs.libraries import is_driver_library
from tfdoctor.logs.log_context import Decision, LogContext

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.logs.events import Event

_INSTALLED_PATH = re.compile(
    r"[\\/](?:site|dist)-packages[\\/]|[\\/]lib(?:64)?[\\/](?:python|pypy)\d|[\\/]Lib[\\/]|\.zip[\\/]|^<|<frozen"
)
"""A path of an installed module or of the standard library."""
_TENSORFLOW_PATH = re.compile(
    r"(?:site|dist)-packages[\\/](?:tensorflow|tensorflow_core|tensorflow_intel)[\\/]"
)
_MIXED_LIBRARIES = re.compile(r"libtensorflow_(?:cc|framework)\.so[.\d]{0,12}: undefined symbol")
"""An error of TensorFlow's own libraries if they belong to different releases."""
_GPU_PACKAGE_PATH = re.compile(
    r"(?:site|dist)-packages[\\/](?:tensorflow(?:_core|_intel)?|nvidia|tensorrt|tensorflow-plugins)[\\/]"
)
_DEPENDENCIES = (
    "absl astor astunparse cv2 distutils flatbuffers gast google grain grpc h5py huggingface_hub "
    "imp IPython jax keras keras_applications keras_preprocessing libclang markdown matplotlib "
    "ml_dtypes namex numpy opt_einsum optree packaging pandas PIL pkg_resources protobuf psutil "
    "pydot pydot_ng pydotplus requests rich scipy setuptools six sklearn tensorboard tensorflow "
    "tensorflow_estimator tensorflow_io_gcs_filesystem termcolor tf_keras typing_extensions "
    "urllib3 werkzeug wrapt yaml"
)
_MODULES = sys.stdlib_module_names | frozenset(_DEPENDENCIES.split())
"""Modules that TensorFlow and its dependencies import. A user's file with the same name shadows the module."""
_TENSORFLOW_MODULE = re.compile(r"(?:^|[\\/])tensorflow(?:\.py|[\\/]__init__\.py)$")
_FRAME_LINES = 4
"""The number of lines of a traceback frame: the frame, its source, a marker, and a wrapped line."""
_CELL_FRAME_LINES = 20
"""The number of lines of a frame in IPython, which shows the source lines around the current one."""
_AFTER_IMPORT_SIGNATURES = (
    "cuinit",
    "registration-skipped",
    "dso-failed",
    "dso-failed-old",
    "device-found",
    "numa",
)
"""Messages that TensorFlow logs after its import."""
PARTIAL_NOTE = (
    "While `tensorflow` was being imported, something that it imports asked for this name: a file of the program's own "
    "that is called tensorflow.py, or as a module that TensorFlow imports, is usually in the way."
)
NOT_TENSORFLOW_NOTE = (
    "has this name, so this is not TensorFlow: usually it is a folder `tensorflow` without its "
    "__init__.py, which an interrupted "
    "installation or removal has left, else a file or folder of that name beside the program. "
    '`python3 -c "import tensorflow; print(tensorflow.__path__)"` shows where it is.'
)
REMOVED_NOTE = (
    "It was removed from TensorFlow 2, or moved to tf.compat.v1 (`import tensorflow.compat.v1 as tf`): "
    "the program is "
    "written for TensorFlow 1. This has nothing to do with the GPU or the installation."
)
NEWER_NOTE = (
    "It was added in a later release: the program is written for that release. This has nothing to do "
    "with the GPU or the "
    "installation."
)


def detect_failed_import(context: LogContext) -> Decision | None:
    """Return the cause if `import tensorflow` failed. Return None if this or a later import succeeded."""
    log = context.log
    broken_event = log.find_first("python-broken")
    if (
        broken_event is not None
        and context.registration_event is None
        and not log.has(*_AFTER_IMPORT_SIGNATURES)
    ):
        cause = (
            Cause.NOT_PERMITTED if broken_event.get("why") == "Permission denied" else Cause.PYTHON_UNUSABLE
        )
        return Decision(cause, context.list_evidence("python-broken"))
    if (
        context.registration_event is not None
        or context.gpu_ready_order >= 0
        or log.has(*_AFTER_IMPORT_SIGNATURES)
    ):
        return None
    return (
        _detect_named_file(context)
        or _detect_shadowed(context)
        or _detect_in_tracebacks(context)
        or _detect_wrong_module(context)
        or _detect_not_installed(context)
    )


def detect_python_message(context: LogContext) -> Decision | None:
    """Return an inconclusive decision if Python or pip reports a problem that is not TensorFlow's."""
    titles = {
        "externally-managed": "pip installs nothing into the Python of the operating system",
        "circular-import": "A module is imported while it is still being loaded (circular import)",
    }
    for signature_id, title in titles.items():
        if events := context.list_evidence(signature_id):
            return Decision(
                Cause.INCONCLUSIVE, events, note=events[0].signature.meaning, title=title, is_failure=True
            )
    return None


def detect_unknown_error(context: LogContext) -> Decision | None:
    """Return an inconclusive decision with the last error of the program, which no other signature explains."""
    event = context.log.find_last("any-error")
    if event is None:
        return None
    return Decision(Cause.INCONCLUSIVE, (event,), note="tfdoctor does not know the last error in it.")


def _detect_named_file(context: LogContext) -> Decision | None:
    """Return the cause if the error names TensorFlow, or a file of TensorFlow or of a GPU library."""
    for event in context.log.list_events("module-shadowed"):
        if event.get("name") or _has_tensorflow_frame(_list_frames(context, event)):
            return Decision(Cause.SHADOWED_MODULE, (event,), note=_suggest_rename(event.get("path")))
    for event in context.log.list_events("file-damaged"):
        if _GPU_PACKAGE_PATH.search(event.get("path")) or event.get("name").partition(".")[0] == "tensorflow":
            return Decision(Cause.DAMAGED_FILE, (event,))
    for event in context.log.list_events("file-refused"):
        if _GPU_PACKAGE_PATH.search(event.get("path") or event.get("library")):
            return Decision(Cause.NOT_PERMITTED, (event,))
    return None


def _detect_shadowed(context: LogContext) -> Decision | None:
    """Return the cause if an installed module imported a user's file that shadows the intended module."""
    frames: list[Event] = []
    for event in context.log.list_events("import-frame"):
        path = _get_frame_path(event)
        if not path or (frames and event.line - frames[-1].line > _get_max_gap(event)):
            frames.clear()
        if not path:
            continue
        is_shadowing = (
            _get_module_name(path) in _MODULES
            and _INSTALLED_PATH.search(path) is None
            and not path.startswith(("<", "~"))
        )
        if is_shadowing and _has_tensorflow_frame(frames):
            return Decision(Cause.SHADOWED_MODULE, (frames[-1], event), note=_suggest_rename(path))
        if (
            is_shadowing
            and frames
            and _TENSORFLOW_MODULE.search(path)
            and not _TENSORFLOW_MODULE.search(_get_frame_path(frames[-1]))
        ):
            return Decision(Cause.SHADOWED_MODULE, (event,), note=_suggest_rename(path))
        frames.append(event)
    return None


def _detect_in_tracebacks(context: LogContext) -> Decision | None:
    """Return the cause of an error that was raised while TensorFlow was being imported."""
    for event in context.log.list_events("file-damaged", "file-refused", "import-error"):
        frames = _list_frames(context, event)
        library = (event.get("path") or event.get("library")).rpartition("/")[2]
        if not _has_tensorflow_frame(frames) or is_driver_library(library):
            continue  # the driver's libraries are empty files in a container without GPUs
        evidence = (event, frames[-1])
        if event.id == "file-damaged":
            return Decision(Cause.DAMAGED_FILE, evidence)
        if event.id == "file-refused":
            return Decision(Cause.NOT_PERMITTED, evidence)
        path = event.get("path")
        if (
            path
            and path != "unknown location"
            and _get_module_name(path) in _MODULES
            and _INSTALLED_PATH.search(path) is None
        ):
            return Decision(Cause.SHADOWED_MODULE, evidence, note=_suggest_rename(path))
        if _MIXED_LIBRARIES.search(event.text):
            return Decision(Cause.DAMAGED_FILE, evidence, (Cause.BOTH_PACKAGES,))
        name = (event.get("source") or event.get("of") or event.get("lost")).partition(".")[0]
        if name.startswith("tensorflow") and name != "tensorflow_estimator":
            continue  # part of TensorFlow itself is missing: two packages overwrote each other, or a file shadows it
        if context.log.has("protobuf", "numpy-abi"):
            continue  # the detectors for these signatures explain the error better
        return Decision(Cause.PACKAGE_CONFLICT, evidence, (Cause.SHADOWED_MODULE,))
    return None


def _detect_wrong_module(context: LogContext) -> Decision | None:
    """Return the cause if the module that was imported as TensorFlow is not TensorFlow.

    The evidence is a missing name that every release has. `detect_api_mismatch` handles names that only TensorFlow 1
    or 2 has.
    """
    event = context.log.find_first("tensorflow-attribute")
    if event is None or event.get("second") or context.has_both_packages:
        return None
    frames = _list_frames(context, event)
    tensorflow_frame = next(
        (frame for frame in reversed(frames) if _TENSORFLOW_MODULE.search(_get_frame_path(frame))), None
    )
    if tensorflow_frame is not None and _INSTALLED_PATH.search(_get_frame_path(tensorflow_frame)) is None:
        return Decision(
            Cause.SHADOWED_MODULE,
            (tensorflow_frame, event),
            note=_suggest_rename(_get_frame_path(tensorflow_frame)),
        )
    if event.get("partial"):
        return Decision(Cause.SHADOWED_MODULE, (event,), (Cause.DAMAGED_FILE,), note=PARTIAL_NOTE)
    if _has_tensorflow_frame(frames) or _has_tensorflow_messages(context) or _is_other_api(context, event):
        return None
    other_causes = (
        (Cause.SHADOWED_MODULE, Cause.INCONCLUSIVE) if event.get("newer") else (Cause.SHADOWED_MODULE,)
    )
    subject = "Every TensorFlow from 2.0 on" if event.get("newer") else "Every TensorFlow"
    title = "What is imported under the name tensorflow is not TensorFlow"
    note = f"{subject} {NOT_TENSORFLOW_NOTE}"
    return Decision(Cause.DAMAGED_FILE, (event,), other_causes, note=note, title=title)


def _has_tensorflow_messages(context: LogContext) -> bool:
    """Return whether the log has a message of TensorFlow, which shows that TensorFlow was imported."""
    has_benign = any(
        context.log.list_events(name)[0].signature.benign_code is not None for name in context.log.events
    )
    return has_benign or context.log.has("format-classic", "format-absl")


def _is_other_api(context: LogContext, event: Event) -> bool:
    """Return whether the missing name shows that the program was written for another major version."""
    if event.get("second") or (event.get("removed") and not context.has_trait("first-api")):
        return True
    return bool(event.get("newer")) and context.has_trait("first-api")


def detect_api_mismatch(context: LogContext) -> Decision | None:
    """Return an inconclusive decision if the program fails because it needs another TensorFlow."""
    event = context.log.find_first("tensorflow-attribute")
    if event is None or not _is_other_api(context, event):
        return None
    if event.get("newer"):
        title = "The program asks for a name that this TensorFlow does not have yet"
        return Decision(Cause.INCONCLUSIVE, (event,), note=NEWER_NOTE, title=title)
    is_certain = event.get("second") or _has_tensorflow_messages(context)
    other_causes = () if is_certain else (Cause.DAMAGED_FILE, Cause.SHADOWED_MODULE)
    title = "The program asks for a name that TensorFlow 2 does not have"
    return Decision(Cause.INCONCLUSIVE, (event,), other_causes, note=REMOVED_NOTE, title=title)


def _detect_not_installed(context: LogContext) -> Decision | None:
    """Return the cause if TensorFlow is not installed and wrote nothing to the log."""
    log = context.log
    if log.has(
        "format-classic", "format-absl", "tf-version", "native-runtime-failed", "import-so", "import-dll"
    ):
        return None
    return (
        Decision(Cause.TENSORFLOW_MISSING, context.list_evidence("tensorflow-absent"))
        if log.has("tensorflow-absent")
        else None
    )


def has_tensorflow_import(context: LogContext) -> bool:
    """Return whether a traceback in the log has a module of TensorFlow that was being imported."""
    return _has_tensorflow_frame(context.log.list_events("import-frame"))


def _list_frames(context: LogContext, error: Event) -> list[Event]:
    """Return the traceback frames that lead to an error, the outermost first.

    Only frames of modules that are being imported are included.
    """
    frames: list[Event] = []
    line = error.line
    for event in reversed(context.log.list_events("import-frame")):
        if event.line > line:
            continue
        if not _get_frame_path(event) or line - event.line > _get_max_gap(event):
            break
        frames.append(event)
        line = event.line
    return frames[::-1]


def _get_max_gap(frame: Event) -> int:
    """Return the maximum number of lines between a frame and the next one."""
    # frames between the two may be missing, because only those of modules that are being imported are events
    return _CELL_FRAME_LINES if frame.get("shown") else 4 * _FRAME_LINES


def _get_frame_path(frame: Event) -> str:
    return frame.get("path") or frame.get("shown")


def _get_module_name(path: str) -> str:
    """Return the name of the module that a file contains, without its packages."""
    return re.sub(r"([\\/]__init__)?\.py$", "", path).replace("\\", "/").rpartition("/")[2]


def _has_tensorflow_frame(frames: Sequence[Event]) -> bool:
    return any(_TENSORFLOW_PATH.search(_get_frame_path(frame)) for frame in frames)


def _suggest_rename(path: str) -> str:
    """Return a sentence that tells the user to rename a file, or an empty string if `path` is empty."""
    safe_path = path.replace("`", "'")
    return f"Rename {safe_path}, and delete the __pycache__ next to it." if path else ""
