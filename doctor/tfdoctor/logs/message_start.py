"""Find where a line's message begins, so that what a launcher or collector put before it can be replaced."""

from __future__ import annotations

import re

from tfdoctor.logs.reader import find_record_start

__all__ = ["KNOWN_LINE", "find_message_start"]

KNOWN_LINE = re.compile(
    r"[\s>#]{0,12}(?:Traceback \(most recent|File \"|(?:During|The above) [a-z ]{0,20}exception"
    r"|[|+][-=+|]|\| {0,3}[\dN]"
    r"|\|[^|]{0,80}(?:NVIDIA|CUDA|GPU|Driver|Memory|MiB|Processes|Fan|MIG)|[\w.]{0,80}(?:Error|Exception|Warning)\b"
    r"|Skipping registering|To enable th|name: |pciBusID|coreClock|major: |totalMemory|(?:Total|Free) memory"
    r"|Instructions for|Please make sure|NVRM: |NVIDIA-SMI |Failed to initialize NVML|Num GPUs)"
)
"""The beginning of a line that TensorFlow, CUDA, the driver or Python writes without a timestamp."""
_MESSAGE = re.compile(
    r"(?<![\w./-])[\w./-]{0,160}\.(?:cc|cpp|cu|c|h):\d{1,6}\] "
    r"|Traceback \(most recent call last|File \"[^\"\n]{1,400}\", line \d|(?:During|The above) [a-z ]{0,20}exception"
    r"|(?<![\w./-])(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception|Warning|Interrupt)\b"
    r"|NVRM: |NVIDIA-SMI |Failed to initialize NVML|Skipping registering"
    r"|(?<!\S)(?:docker|podman): |nvidia-container-cli: |Error response from daemon|NCCL (?:INFO|WARN)"
    r"|[Cc]ould not (?:load|find|open|select|import|create|retrieve)|[Cc]annot (?:open|dlopen|import|load)"
    r"|failed call to|unable to create StreamExecutor|failed initializing StreamExecutor"
    r"|(?:WARNING|INFO|ERROR):(?:tensorflow|absl|jax|torch)|Illegal instruction|Segmentation fault|Aborted|Bus error"
    r"|\bKilled\b|Fatal Python error|std::\w{1,40}|terminate called|Please make sure the missing|Your (?:CPU|kernel)"
    r"|This TensorFlow|Num GPUs|Physical devices|pciBusID|totalMemory|physical_device_desc|No module named"
)
"""The beginning of a message that has no timestamp, also after other text."""
_TAGS = re.compile(
    r"\s{0,8}(?:(?:[(\[<{][^()\[\]<>{}\n]{0,160}[)\]>}]{1,2}(?:[:|>@]{1,2}|\s|\Z|(?=[(\[<]))"
    r"|[^\s:|(\[<{]{1,160}[(\[<{]?[^\s:|]{0,80}(?:: |:\Z|\t| {0,20}\| |>))\s{0,8}){1,6}"
)
"""Tags before a message: words in brackets, and words before a colon, a bar or a tab."""


def find_message_start(line: str) -> int:
    """Return where the message of a line begins: what precedes it was written by another program.

    The longest text that may precede it counts. A line without a known message begins after its tags, such as
    "node7: " or "[7] ".
    """
    record = find_record_start(line)
    if record is not None:
        return record.start()
    if KNOWN_LINE.match(line) is not None:
        return 0
    message = _MESSAGE.search(line)
    if message is not None:
        return message.start()
    tags = _TAGS.match(line)
    return tags.end() if tags is not None else 0
