"""Separate the messages of other frameworks, such as PyTorch, from those of TensorFlow.

They use the same libraries and print the same errors, so a message belongs to the framework that is named next to it: on
the same line, in the traceback above it, or in the lines below it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING

from tfdoctor.core.findings import Cause
from tfdoctor.logs.events import Log
from tfdoctor.logs.reader import find_record_start

if TYPE_CHECKING:
    from tfdoctor.logs.events import Event

__all__ = [
    "FRAMEWORK_NAMES",
    "MACHINE_CAUSES",
    "has_tensorflow_text",
    "separate_frameworks",
]

FRAMEWORK_NAMES = {
    "framework-pytorch": "PyTorch",
    "framework-jax": "JAX",
    "framework-onnxruntime": "ONNX Runtime",
    "framework-cupy": "CuPy",
    "framework-numba": "Numba",
    "framework-paddle": "PaddlePaddle",
    "framework-ggml": "llama.cpp",
    "framework-mxnet": "MXNet",
    "framework-darknet": "Darknet",
}
"""The names of other frameworks, by signature."""
MACHINE_CAUSES = frozenset(
    {
        Cause.NO_DRIVER,
        Cause.NO_DEVICE,
        Cause.HIDDEN_BY_ENV,
        Cause.DRIVER_TOO_OLD,
        Cause.DRIVER_LIB_MISMATCH,
        Cause.DRIVER_INIT_UNKNOWN,
        Cause.COMPAT_NOT_SUPPORTED,
        Cause.STUB_LIBCUDA,
        Cause.NO_NVIDIA_RUNTIME,
        Cause.CONTAINER_NO_GPU,
        Cause.CONTAINER_CUDA_REQUIREMENT,
        Cause.CONTAINER_DRIVER_LIBS,
        Cause.CONTAINER_NVML_LOST,
        Cause.GPU_BUSY_OTHER_PROCESS,
        Cause.OOM,
        Cause.NCCL_FAILURE,
    }
)
"""Causes that lie in the machine, so that they concern every framework."""
_MAX_LINES_ABOVE = 6
"""The largest number of lines from the last frame of a traceback to its error."""
_MAX_LINES_BELOW = 4
"""The largest number of lines from an error to the hint that names the framework."""
_TENSORFLOW_TEXT = re.compile(r"tensorflow|local_xla|local_tsl|\bkeras\b|gpu_device\.cc|\bTF_", re.I)
_TENSORFLOW_SOURCE = re.compile(
    r"tensorflow[\w.-]{0,8}:? (?:core/|tf\.|python/|stream_executor/(?:platform/\w+/)?dso_)"
)
"""The beginnings of the sources of signatures whose messages only TensorFlow prints."""


def has_tensorflow_text(log: Log) -> bool:
    """Return whether a message in the log names TensorFlow, or can only come from it."""
    return any(
        _TENSORFLOW_SOURCE.match(events[0].signature.source) is not None
        or any(_TENSORFLOW_TEXT.search(event.text) for event in events)
        for signature_id, events in log.events.items()
        if signature_id not in FRAMEWORK_NAMES
    )


def _find_only_framework(log: Log) -> str | None:
    """Return the name of the framework that wrote the log, or None if TensorFlow or several did."""
    names = [name for signature_id, name in FRAMEWORK_NAMES.items() if log.has(signature_id)]
    return names[0] if len(names) == 1 and not has_tensorflow_text(log) else None


def separate_frameworks(log: Log) -> tuple[Log, dict[str, Log]]:
    """Return (the log without the errors of other frameworks, their errors by the name of the framework)."""
    framework_ids = {
        event.message_number: signature_id
        for signature_id in FRAMEWORK_NAMES
        for event in log.list_events(signature_id)
    }
    if not framework_ids:
        return log, {}
    only_framework = _find_only_framework(log)
    # a frame of another framework is also an import frame
    frames = {event.line: event.id for event in log.list_events("import-frame", "python-frame")}
    marks = sorted(
        {**frames, **{event.line: event.id for event in log.list_events(*FRAMEWORK_NAMES)}}.items()
    )
    own = Log({}, log.event_counts, log.line_count, log.byte_count)
    others: dict[str, Log] = {}
    for event in log:
        owner = None
        if event.signature.role == "decisive":
            owner = FRAMEWORK_NAMES.get(framework_ids.get(event.message_number, ""))
            owner = owner or only_framework or _find_owner(event, marks)
        if owner is None:
            own.events.setdefault(event.id, []).append(event)
        else:
            others.setdefault(owner, Log()).events.setdefault(event.id, []).append(event)
    return own, others


def _find_owner(event: Event, marks: list[tuple[int, str]]) -> str | None:
    """Return the framework that is named next to an error, or None if none is."""
    if (
        _TENSORFLOW_SOURCE.match(event.signature.source)
        or _TENSORFLOW_TEXT.search(event.text)
        or find_record_start(event.text) is not None
    ):
        return None
    index = bisect_right(marks, (event.line, "\x7f"))
    neighbours = [*marks[max(index - 1, 0) : index], *marks[index : index + 1]]
    for line, signature_id in neighbours:
        distance = event.line - line
        if -_MAX_LINES_BELOW <= distance <= _MAX_LINES_ABOVE and signature_id in FRAMEWORK_NAMES:
            return FRAMEWORK_NAMES[signature_id]
    return None
