"""Build, shorten and redact the content of a recording.

A probe may need only one line of a file. The rest of the file says nothing about the GPU, but can reveal
accounts, log lines of other programs or the password of a registry. `shorten_recording` reduces such files and outputs to
their useful parts, and `redact_recording` processes what remains. `capture` then checks the finished recording, to verify
that the verdict is unchanged.
"""

from __future__ import annotations

import copy
import json
import re
import struct
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tfdoctor.system import archive
from tfdoctor.system.recorded import SCHEMA_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tfdoctor.core.privacy.redactor import Redactor

MARKER = "tfdoctor-payload:"
MAX_INLINE_CHARS = 120
"""Maximum length of a text that is stored in host.json itself."""
_PLAIN_NAME = re.compile(r"[\w.+@=,~-]{1,120}\Z")
_KERNEL_LOG = re.compile(r"(?:dmesg|journalctl|tail)\b")
_RELEVANT_LINE = re.compile(
    r"(?i)nvrm|nvidia|nouveau|cuda|\bxid\b|lockdown: |loading of |fallen off the bus|out of memory: killed|oom-kill"
    r"|linux version \d"
)
_MAX_LOG_LINES = 20_000
"""Number of lines at the end of a kernel log that are examined."""
_MAX_OUTPUT_BYTES = 1 << 20
_UNSHORTENED_FOLDERS = (
    "/sys/",
    "/proc/",
    "/etc/",
    "/var/",
    "/run/",
    "/lib/modules",
    "/usr/share/",
    "/usr/lib/modules",
)
_RELEVANT_NAME = re.compile(
    r"(?i)nv|cuda|cudnn|nccl|tensor|torch|dxg|dri\Z|kfd\Z|rocm|python|site-packages|dist-packages|^lib.{0,80}\.so(?:\.|\Z)"
    r"|\.(?:dist-info|egg-info|pth|conf|json|ya?ml|service|socket)\Z"
)
_CACHE_MAGIC = b"glibc-ld.so.cache1.1"
_CACHE_HEADER = struct.Struct("<20sIIB3xI12x")
"""Magic number, number of entries, size of the strings, flags, and offset of the extension (0 if there is none)."""
_CACHE_ENTRY = struct.Struct("<iIIIQ")
"""Flags, offset of the soname, offset of the path, required version, and hwcap."""
_CACHE_EXTENSION_MAGIC = 0xEAA42174
_PROCESS_FILE = re.compile(r"/proc/\d{1,9}/(cmdline|environ|status)\Z")
_HARMLESS_PATHS = (
    re.compile(r"/contexts/meta/([0-9a-f]{64})/meta\.json\Z"),  # the digest of a Docker context's name
    # The vendor GUID of an EFI variable.
    re.compile(r"^/sys/firmware/efi/\w{1,20}/\w{1,60}-([0-9a-f-]{36})(?:/|\Z)"),
)
"""Paths that contain a value that looks like an identifier, but is the same on all machines."""
_OMITTED_DOCKER_KEYS = frozenset(
    {
        "ID",
        "Labels",
        "Swarm",
        "RegistryConfig",
        "HttpProxy",
        "HttpsProxy",
        "NoProxy",
        "IndexServerAddress",
        "Plugins",
    }
)
"""Keys of `docker info` that identify the machine or its network."""


@dataclass
class Recording:
    """The requests that probes made to a machine, and its responses."""

    tables: dict[str, dict[str, Any]]
    """The tables of host.json, by name."""
    files: dict[str, bytes]
    """The contents of the files that were read, by path."""
    env: dict[str, str]
    cwd: str
    platform: dict[str, str]
    python: str | None = None
    omitted_counts: Counter[str] = field(default_factory=Counter)
    """Number of omitted items by kind, such as "lines of the kernel's log" or "names in folders"."""

    def build_host_json(self) -> dict[str, Any]:
        """Return the content of host.json, before long texts are moved to separate files."""
        host = {"cwd": self.cwd, "env": self.env, "platform": self.platform, **self.tables}
        if self.python:
            host["python"] = self.python
        return {"schema_version": SCHEMA_VERSION, **{key: value for key, value in host.items() if value}}


# ---------------------------------------------------------------- files


def build_recording_files(recording: Recording) -> dict[str, bytes]:
    """Return the contents of a recording's own files by name. Long texts become separate, readable files."""
    host = copy.deepcopy(recording.build_host_json())
    contents: dict[str, bytes] = {}
    inline_texts: dict[str, str] = {}
    stored_names: dict[str, str] = {}
    for path, content in sorted(recording.files.items()):
        text = _decode_utf8(content)
        parts = path.strip("/").split("/")
        if text is not None and len(text) <= MAX_INLINE_CHARS:
            inline_texts[path] = text
        elif all(_PLAIN_NAME.match(part) for part in parts):
            contents[f"root{path}"] = content
        else:
            stored_names[path] = f"unnamed/{len(stored_names) + 1}"
            contents[f"root/{stored_names[path]}"] = content
    for name in [name for name in contents if any(other.startswith(f"{name}/") for other in contents)]:
        # The path of this file is a folder in the path of another file.
        stored_names[name.removeprefix("root")] = f"unnamed/{len(stored_names) + 1}"
        contents[f"root/unnamed/{len(stored_names)}"] = contents.pop(name)
    for number, (command, entry) in enumerate(sorted(host.get("commands", {}).items()), 1):
        for stream in ("stdout", "stderr"):
            text = entry.get(stream, "")
            if len(text) > MAX_INLINE_CHARS:
                slug = re.sub(r"[^a-z0-9]+", "-", command.lower())[:40].strip("-")
                name = f"output/{number:02}-{slug}.{stream}.txt"
                contents[name] = text.encode("utf-8", "surrogateescape")
                entry[f"{stream}_file"] = name
                del entry[stream]
    for table, value in (("files", inline_texts), ("stored", stored_names)):
        if value:
            host[table] = value
    contents[archive.HOST_FILE] = (json.dumps(host, indent=1, sort_keys=True) + "\n").encode("ascii")
    return contents


def _decode_utf8(content: bytes) -> str | None:
    """Return the UTF-8 text of a file; None if it is not UTF-8."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None


# ---------------------------------------------------------------- shortening


def shorten_recording(recording: Recording) -> Recording:
    """Return the recording without the parts that no rule needs, and count the omitted parts in it."""
    tables = copy.deepcopy(recording.tables)
    omitted_counts: Counter[str] = Counter(recording.omitted_counts)
    process_uids = set()
    for path, content in recording.files.items():
        match = _PROCESS_FILE.search(path)
        if match is not None and match[1] == "status":
            process_uids.update(re.findall(rb"^Uid:[ \t]*(\d{1,10})", content, re.MULTILINE))
    files = {
        path: _shorten_file(path, content, process_uids, omitted_counts)
        for path, content in recording.files.items()
    }
    for command, entry in tables.get("commands", {}).items():
        if isinstance(entry.get("stdout"), str):
            entry["stdout"] = _shorten_output(command, entry["stdout"], omitted_counts)
    used_paths = {
        path
        for table in (
            *(tables.get(name, {}) for name in ("elf", "links", "exists", "folders", "listings")),
            files,
        )
        for path in table
    }
    used_parents = {
        path[:end]
        for path in used_paths
        for end in range(1, len(path) + 1)
        if path[end : end + 1] in ("/", "")
    }
    for folder, names in tables.get("listings", {}).items():
        base = f"{folder.rstrip('/')}/"
        if base.startswith(_UNSHORTENED_FOLDERS):
            continue
        relevant_names = [
            name for name in names if _RELEVANT_NAME.search(name) or f"{base}{name}" in used_parents
        ]
        omitted_counts["names in folders"] += len(names) - len(relevant_names)
        tables["listings"][folder] = relevant_names
    _renumber_inodes(tables.get("elf", {}))
    return Recording(
        tables=tables,
        files=files,
        env=recording.env,
        cwd=recording.cwd,
        platform=recording.platform,
        python=recording.python,
        omitted_counts=+omitted_counts,  # the plus sign drops kinds with a count of 0
    )


def _shorten_file(path: str, content: bytes, uids: set[bytes], omitted_counts: Counter[str]) -> bytes:
    """Return the useful part of a file, and count the omitted parts in `omitted_counts`."""
    process = _PROCESS_FILE.search(path)
    if process is not None:
        return _shorten_process(process[1], content)
    if path == "/etc/passwd":
        accounts = [line.split(b":") for line in content.splitlines()]
        relevant_accounts = [
            b":".join((fields[0], b"x", fields[2], fields[3], b"", b"/", b""))
            for fields in accounts
            if len(fields) > 3 and fields[2] in uids
        ]
        omitted_counts["accounts"] += len(accounts) - len(relevant_accounts)
        return b"".join(line + b"\n" for line in relevant_accounts)
    if path.endswith("/config.json") and b'"auths"' in content:
        omitted_counts["registries' credentials"] += 1
        value = _parse_json(content.decode("utf-8", "replace"))
        harmless_keys = (
            {key: item for key, item in value.items() if key == "currentContext"}
            if isinstance(value, dict)
            else {}
        )
        return json.dumps(harmless_keys).encode("ascii")
    if path.endswith("/modules.dep"):
        lines = content.splitlines(keepends=True)
        relevant_lines = [line for line in lines if b"nvidia" in line or b"nouveau" in line]
        omitted_counts["lines of modules.dep"] += len(lines) - len(relevant_lines)
        return b"".join(relevant_lines)
    return content


def _shorten_process(name: str, content: bytes) -> bytes:
    """Return the useful part of the file `name` in /proc/PID.

    That is all of "cmdline", nothing of "environ", and the program's name, state, user and parent in "status".
    """
    if name == "environ":
        return b""
    if name == "status":
        relevant_lines = [
            line for line in content.splitlines() if line.startswith((b"Name:", b"State:", b"Uid:", b"PPid:"))
        ]
        return b"".join(line + b"\n" for line in relevant_lines)
    return content


def _shorten_output(command: str, text: str, omitted_counts: Counter[str]) -> str:
    """Return the useful part of a command's output, and count the omitted parts in `omitted_counts`."""
    if _KERNEL_LOG.match(command):
        lines = text.split("\n")[-_MAX_LOG_LINES:]
        relevant_lines: list[str] = []
        for line in lines:
            if _RELEVANT_LINE.search(line) or not line:
                relevant_lines.append(line)
            else:
                omitted_counts["lines of the kernel's log"] += 1
                if not relevant_lines or relevant_lines[-1] != "…":  # mark the gap between two kept lines
                    relevant_lines.append("…")
        return "\n".join(relevant_lines)
    if len(text) > _MAX_OUTPUT_BYTES:  # programs can print without end
        omitted_counts["characters of output"] += len(text) - _MAX_OUTPUT_BYTES
        text = text[:_MAX_OUTPUT_BYTES]
    value = _parse_json(text)
    if isinstance(value, dict) and "ServerVersion" in value:
        omitted_counts["parts of docker info"] += len(_OMITTED_DOCKER_KEYS & set(value))
        return (
            json.dumps({key: item for key, item in value.items() if key not in _OMITTED_DOCKER_KEYS}) + "\n"
        )
    return text


def _parse_json(text: str) -> Any:
    """Return the JSON object or list in a text; None if the text is something else."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _renumber_inodes(elf: Mapping[str, Any]) -> None:
    """Replace device and inode numbers with small ones that still show which paths are the same file."""
    numbers: dict[tuple[int, ...], int] = {}
    for _, entry in sorted(elf.items()):
        inode = tuple(entry.get("device_inode", ()))
        if any(inode):
            entry["device_inode"] = [1, numbers.setdefault(inode, len(numbers) + 1)]


# ---------------------------------------------------------------- redacting


def redact_recording(recording: Recording, redactor: Redactor) -> Recording:
    """Replace all identifiers of people and machines in a recording. The redactor counts them."""
    initial = recording
    redactor.learn_version(recording.platform.get("release", ""))
    for path in (*recording.files, *recording.tables.get("exists", {}), *recording.tables.get("errors", {})):
        for pattern in _HARMLESS_PATHS:
            for match in pattern.finditer(path):
                redactor.exempt(match[1])
    recordings: list[Recording] = [initial]

    def learn() -> None:
        _learn_recording(recordings[-1], redactor)

    def apply() -> bool:
        """Redact once more, and return whether anything changed."""
        previous = recordings[-1]
        recordings.append(_redact_once(previous, redactor))
        return build_recording_files(previous) != build_recording_files(recordings[-1])

    redactor.repeat_until_stable(learn, apply)
    return recordings[-1]


def _learn_recording(recording: Recording, redactor: Redactor) -> None:
    """Let the redactor learn the identifying values in every part of a recording."""
    redactor.learn(recording.cwd)
    redactor.learn(recording.python or "")
    for name, value in sorted(recording.env.items()):
        redactor.learn(value, name)
        redactor.learn(name)
    for path, content in sorted(recording.files.items()):
        redactor.learn(path)
        _learn_content(path, content, redactor)
    for name, table in sorted(recording.tables.items()):
        for key, value in sorted(table.items()):
            redactor.learn(key)
            if name == "commands":
                for stream in ("stdout", "stderr", "detail"):
                    _learn_text(str(value.get(stream, "")), redactor)
            else:
                redactor.learn_json(value)


def _learn_content(path: str, content: bytes, redactor: Redactor) -> None:
    """Let the redactor learn the identifying values in a file."""
    if path == "/etc/passwd":
        for line in content.decode("utf-8", "replace").splitlines():
            redactor.learn(line.split(":")[0], "user")
    elif path in ("/etc/hostname", "/proc/sys/kernel/hostname"):
        redactor.learn(content.decode("utf-8", "replace").strip(), "hostname")
    elif path.endswith("/cmdline") and _PROCESS_FILE.search(path) is not None:
        for argument in content.decode("utf-8", "replace").split("\0")[1:40]:
            redactor.learn(argument)
            if not argument.startswith("-") and "ipykernel" not in argument:
                redactor.learn_process(argument.rpartition("/")[2])
    elif content[:20] == _CACHE_MAGIC or _CACHE_MAGIC in content[: 1 << 20]:
        redactor.learn("\n".join(name for pair in _parse_cache_names(content) for name in pair))
    else:
        _learn_text(content.decode("utf-8", "surrogateescape"), redactor)


def _learn_text(text: str, redactor: Redactor) -> None:
    for line, value in _split_payload_lines(text):
        if value is None:
            redactor.learn(line)
        else:
            redactor.learn_json(value)


def _split_payload_lines(text: str) -> Iterable[tuple[str, Any]]:
    """Yield (text, None) for plain lines and (marker, value) for the JSON lines of a payload.

    A text that is a JSON document as a whole yields ("", value).
    """
    value = _parse_json(text)
    if value is not None:
        yield "", value
        return
    plain: list[str] = []
    for line in text.split("\n"):
        value = _parse_json(line.removeprefix(MARKER)) if line.startswith(MARKER) else None
        if value is None:
            plain.append(line)
            continue
        if plain:
            yield "\n".join(plain) + "\n", None
            plain = []
        yield MARKER, value
    yield "\n".join(plain), None


def _redact_once(recording: Recording, redactor: Redactor) -> Recording:
    """Return the recording with every part redacted once."""
    tables: dict[str, dict[str, Any]] = {}
    for name, table in recording.tables.items():
        tables[name] = {}
        for key, value in sorted(table.items()):
            if name == "commands":
                redacted: Any = dict(value)
                for stream in ("stdout", "stderr", "detail"):
                    if stream in redacted:
                        redacted[stream] = _redact_text(str(redacted[stream]), redactor)
            elif name == "listings":
                base = key.rstrip("/")
                redacted = sorted(redactor(f"{base}/{entry}").rpartition("/")[2] for entry in value)
            else:
                redacted = redactor.json(value)
            tables[name][redactor(key)] = redacted
    return Recording(
        tables=tables,
        files={
            redactor(path): _redact_content(path, content, redactor)
            for path, content in sorted(recording.files.items())
        },
        env={name: redactor.redact_keyed(name, value) for name, value in sorted(recording.env.items())},
        cwd=redactor(recording.cwd),
        platform={key: redactor(value) for key, value in recording.platform.items()},
        python=redactor(recording.python) if recording.python else None,
        omitted_counts=recording.omitted_counts,
    )


def _redact_content(path: str, content: bytes, redactor: Redactor) -> bytes:
    if _CACHE_MAGIC in content[: 1 << 20]:
        return _rebuild_cache(content, redactor)
    process = _PROCESS_FILE.search(path)
    text = content.decode("utf-8", "surrogateescape")
    if process is not None and process[1] == "cmdline":
        text = "\0".join(
            redactor.redact_argument(position, argument)
            for position, argument in enumerate(text.split("\0")[:40])
        )
    elif process is not None and process[1] == "status":
        text = re.sub(
            r"(?m)^(Name:\s*)(\S.{0,200})$",
            lambda match: f"{match[1]}{redactor.redact_program(match[2])}",
            text,
        )
    return _redact_text(text, redactor).encode("utf-8", "surrogateescape")


def _redact_text(text: str, redactor: Redactor) -> str:
    parts: list[str] = []
    for line, value in _split_payload_lines(text):
        if value is None:
            parts.append(redactor(line))
        elif line:
            parts.append(f"{line}{json.dumps(redactor.json(value))}\n")
        else:
            parts.append(json.dumps(redactor.json(value), indent=1) + "\n")
    return "".join(parts)


def _parse_cache_names(content: bytes) -> list[tuple[str, str]]:
    """Return the (soname, path) pairs of an ld.so.cache."""
    return [(soname, path) for soname, path, *_ in _parse_cache_entries(content)]


def _parse_cache_entries(content: bytes) -> list[tuple[str, str, int, int, int]]:
    """Return (soname, path, flags, version, hwcap) for each entry of an ld.so.cache; [] if it is damaged."""
    start = content.find(_CACHE_MAGIC)  # a cache in the old format can precede this one in the file
    if start < 0 or len(content) < start + _CACHE_HEADER.size:
        return []

    def read_string(offset: int) -> str:
        end = content.find(b"\0", start + offset, start + offset + 4096)
        return content[start + offset : max(end, start + offset)].decode("utf-8", "surrogateescape")

    entries = []
    for index in range(min(_CACHE_HEADER.unpack_from(content, start)[1], 1 << 20)):
        offset = start + _CACHE_HEADER.size + index * _CACHE_ENTRY.size
        if offset + _CACHE_ENTRY.size > len(content):
            break
        flags, soname_offset, path_offset, version, hwcap = _CACHE_ENTRY.unpack_from(content, offset)
        entries.append((read_string(soname_offset), read_string(path_offset), flags, version, hwcap))
    return entries


def _rebuild_cache(content: bytes, redactor: Redactor) -> bytes:
    """Rebuild an ld.so.cache with redacted names, whose lengths can differ from the original ones.

    The names of the glibc-hwcaps folders are not redacted. A file that ends in its header has no entries: the result is
    empty.
    """
    start = content.find(_CACHE_MAGIC)
    if start < 0 or len(content) < start + _CACHE_HEADER.size:
        return b""
    entries = _parse_cache_entries(content)
    size = _CACHE_HEADER.size + len(entries) * _CACHE_ENTRY.size
    strings = bytearray()
    offsets: dict[str, int] = {}

    def add_string(text: str) -> int:
        if text not in offsets:
            offsets[text] = size + len(strings)
            strings.extend(text.encode("utf-8", "surrogateescape") + b"\0")
        return offsets[text]

    packed_entries = [
        _CACHE_ENTRY.pack(flags, add_string(redactor(soname)), add_string(redactor(path)), version, hwcap)
        for soname, path, flags, version, hwcap in entries
    ]
    hwcap_offsets = [add_string(name) for name in _parse_hwcap_names(content, start)]
    strings.extend(b"\0" * (-(size + len(strings)) % 4))
    extension = size + len(strings) if hwcap_offsets else 0
    _, _, _, flags_byte, _ = _CACHE_HEADER.unpack_from(content, start)
    header = _CACHE_HEADER.pack(_CACHE_MAGIC, len(packed_entries), len(strings), flags_byte, extension)
    extension_data = b""
    if hwcap_offsets:
        # The extension header of glibc: its magic number, the number of sections, and one section. Tag 1 is that
        # of the list of glibc-hwcaps names.
        extension_data = struct.pack("<II", _CACHE_EXTENSION_MAGIC, 1) + struct.pack(
            "<IIII", 1, 0, extension + 24, 4 * len(hwcap_offsets)
        )
        extension_data += b"".join(struct.pack("<I", offset) for offset in hwcap_offsets)
    return header + b"".join(packed_entries) + bytes(strings) + extension_data


def _parse_hwcap_names(content: bytes, start: int) -> list[str]:
    """Return the names of the glibc-hwcaps folders in an ld.so.cache, in its order; [] if it is damaged."""
    names: list[str] = []
    try:
        extension = _CACHE_HEADER.unpack_from(content, start)[4]
        magic, count = struct.unpack_from("<II", content, start + extension)
        for index in range(min(count, 16) if extension and magic == _CACHE_EXTENSION_MAGIC else 0):
            tag, _, offset, size = struct.unpack_from("<IIII", content, start + extension + 8 + index * 16)
            for position in range(0, min(size, 4096) - 3 if tag == 1 else 0, 4):
                name_offset = start + struct.unpack_from("<I", content, start + offset + position)[0]
                end = content.find(b"\0", name_offset, name_offset + 256)
                names.append(content[name_offset : max(name_offset, end)].decode("utf-8", "replace"))
    except struct.error:
        return []
    return names


def build_manifest(
    recording: Recording, redactor: Redactor, tool: Mapping[str, str], day: str
) -> dict[str, Any]:
    """Return a summary of what was read, replaced and omitted, for people who inspect the recording."""
    tables = recording.tables

    def describe_end(entry: Mapping[str, Any]) -> str:
        return str(entry.get("failure") or f"exit status {entry.get('returncode', 0)}")

    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "tfdoctor capture",
        "tool": dict(tool),
        "captured_on": day,
        "looked_at": {
            "files": {path: len(content) for path, content in sorted(recording.files.items())},
            "refused": {path: error[2] for path, error in sorted(tables.get("errors", {}).items())},
            "folders_listed": sorted(tables.get("listings", {})),
            "paths_tested": len({*tables.get("exists", {}), *tables.get("folders", {})}),
            "shared_objects": sorted(tables.get("elf", {})),
            "commands": {
                key: describe_end(entry) for key, entry in sorted(tables.get("commands", {}).items())
            },
            "variables": sorted(recording.env),
        },
        "replaced": redactor.counts(),
        "left_out": dict(sorted(recording.omitted_counts.items())),
    }
