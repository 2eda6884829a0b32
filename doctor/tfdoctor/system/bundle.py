"""What a recording is made of, what of it is left out, and how it is redacted.

A probe may read a file of which it needs one line. The rest of such a file says much of a machine and nothing of
its GPU: accounts, other programs' log lines, a registry's password. `shortened` knows these files and outputs, and
keeps what is of use; everything else is kept whole and redacted. Whether the judgement is still the same is not
assumed: `capture` judges the finished recording again.
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

    from tfdoctor.privacy.redactor import Redactor

MARKER = "tfdoctor-payload:"
MAX_INLINE_CHARS = 120
"""Characters up to which a text stands in host.json itself."""
_PLAIN_NAME = re.compile(r"[\w.+@=,~-]{1,120}\Z")
_KERNEL_LOG = re.compile(r"(?:dmesg|journalctl|tail)\b")
_CONCERNS = re.compile(
    r"(?i)nvrm|nvidia|nouveau|cuda|\bxid\b|lockdown: |loading of |fallen off the bus|out of memory: killed|oom-kill"
    r"|linux version \d"
)
_LOG_LINES = 20_000
_MAX_OUTPUT_BYTES = 1 << 20
_FOLDERS_KEPT_WHOLE = (
    "/sys/",
    "/proc/",
    "/etc/",
    "/var/",
    "/run/",
    "/lib/modules",
    "/usr/share/",
    "/usr/lib/modules",
)
_NAMES_KEPT = re.compile(
    r"(?i)nv|cuda|cudnn|nccl|tensor|torch|dxg|dri\Z|kfd\Z|rocm|python|site-packages|dist-packages|^lib.{0,80}\.so(?:\.|\Z)"
    r"|\.(?:dist-info|egg-info|pth|conf|json|ya?ml|service|socket)\Z"
)
_CACHE = b"glibc-ld.so.cache1.1"
_CACHE_HEADER = struct.Struct("<20sIIB3xI12x")
_CACHE_ENTRY = struct.Struct("<iIIIQ")
_PROCESS_FILE = re.compile(r"/proc/\d{1,9}/(cmdline|environ|status)\Z")
_NO_IDENTITY = (
    re.compile(r"/contexts/meta/([0-9a-f]{64})/meta\.json\Z"),  # the digest of a context's name
    re.compile(r"^/sys/firmware/efi/\w{1,20}/\w{1,60}-([0-9a-f-]{36})(?:/|\Z)"),  # whose variable it is
)
"""Paths with something in them that looks like an identifier, and is the same on all machines."""
_OF_NO_USE = frozenset(
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
"""What `docker info` says of a machine's place in the world."""


@dataclass
class Recording:
    """Everything that was asked and answered."""

    tables: dict[str, dict[str, Any]]
    files: dict[str, bytes]
    env: dict[str, str]
    cwd: str
    platform: dict[str, str]
    python: str | None = None
    left_out: Counter[str] = field(default_factory=Counter)
    """Kind → how much was left out: "lines of the kernel's log", "names in folders"."""

    def manifest_host(self) -> dict[str, Any]:
        """host.json, without the texts that stand in files of their own."""
        host = {"cwd": self.cwd, "env": self.env, "platform": self.platform, **self.tables}
        if self.python:
            host["python"] = self.python
        return {"schema_version": SCHEMA_VERSION, **{key: value for key, value in host.items() if value}}


# ---------------------------------------------------------------- as files


def members(recording: Recording) -> dict[str, bytes]:
    """Return the files of a recording, by name.

    Long texts are files of their own, so that a person can read them.
    """
    host = copy.deepcopy(recording.manifest_host())
    made: dict[str, bytes] = {}
    inline: dict[str, str] = {}
    stored: dict[str, str] = {}
    for path, content in sorted(recording.files.items()):
        text = _text_of(content)
        parts = path.strip("/").split("/")
        if text is not None and len(text) <= MAX_INLINE_CHARS:
            inline[path] = text
        elif all(_PLAIN_NAME.match(part) for part in parts):
            made[f"root{path}"] = content
        else:
            stored[path] = f"unnamed/{len(stored) + 1}"
            made[f"root/{stored[path]}"] = content
    for name in [name for name in made if any(other.startswith(f"{name}/") for other in made)]:
        stored[name.removeprefix("root")] = f"unnamed/{len(stored) + 1}"  # a file where another has a folder
        made[f"root/unnamed/{len(stored)}"] = made.pop(name)
    for number, (command, entry) in enumerate(sorted(host.get("commands", {}).items()), 1):
        for stream in ("stdout", "stderr"):
            text = entry.get(stream, "")
            if len(text) > MAX_INLINE_CHARS:
                word = re.sub(r"[^a-z0-9]+", "-", command.lower())[:40].strip("-")
                name = f"output/{number:02}-{word}.{stream}.txt"
                made[name] = text.encode("utf-8", "surrogateescape")
                entry[f"{stream}_file"] = name
                del entry[stream]
    for table, value in (("files", inline), ("stored", stored)):
        if value:
            host[table] = value
    made[archive.HOST] = (json.dumps(host, indent=1, sort_keys=True) + "\n").encode("ascii")
    return made


def _text_of(content: bytes) -> str | None:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None


# ---------------------------------------------------------------- leaving out


def shorten(recording: Recording) -> Recording:
    """Return the same without what no judgement needs. What is left out is counted."""
    tables = copy.deepcopy(recording.tables)
    left: Counter[str] = Counter(recording.left_out)
    uids = set()
    for path, content in recording.files.items():
        match = _PROCESS_FILE.search(path)
        if match is not None and match[1] == "status":
            uids.update(re.findall(rb"^Uid:[ \t]*(\d{1,10})", content, re.MULTILINE))
    files = {path: _short_file(path, content, uids, left) for path, content in recording.files.items()}
    for command, entry in tables.get("commands", {}).items():
        if isinstance(entry.get("stdout"), str):
            entry["stdout"] = _short_output(command, entry["stdout"], left)
    used = {
        path
        for table in (
            *(tables.get(name, {}) for name in ("elf", "links", "exists", "folders", "listings")),
            files,
        )
        for path in table
    }
    above = {
        path[:end] for path in used for end in range(1, len(path) + 1) if path[end : end + 1] in ("/", "")
    }
    for folder, names in tables.get("listings", {}).items():
        base = f"{folder.rstrip('/')}/"
        if base.startswith(_FOLDERS_KEPT_WHOLE):
            continue
        kept = [name for name in names if _NAMES_KEPT.search(name) or f"{base}{name}" in above]
        left["names in folders"] += len(names) - len(kept)
        tables["listings"][folder] = kept
    _renumber(tables.get("elf", {}))
    return Recording(tables, files, recording.env, recording.cwd, recording.platform, recording.python, +left)


def _short_file(path: str, content: bytes, uids: set[bytes], left: Counter[str]) -> bytes:
    process = _PROCESS_FILE.search(path)
    if process is not None:
        return _short_process(process[1], content)
    if path == "/etc/passwd":
        rows = [line.split(b":") for line in content.splitlines()]
        kept = [
            b":".join((row[0], b"x", row[2], row[3], b"", b"/", b""))
            for row in rows
            if len(row) > 3 and row[2] in uids
        ]
        left["accounts"] += len(rows) - len(kept)
        return b"".join(line + b"\n" for line in kept)
    if path.endswith("/config.json") and b'"auths"' in content:
        left["registries' credentials"] += 1
        value = _json_of(content.decode("utf-8", "replace"))
        kept_keys = (
            {k: v for k, v in value.items() if k == "currentContext"} if isinstance(value, dict) else {}
        )
        return json.dumps(kept_keys).encode("ascii")
    if path.endswith("/modules.dep"):
        lines = content.splitlines(keepends=True)
        needed = [line for line in lines if b"nvidia" in line or b"nouveau" in line]
        left["lines of modules.dep"] += len(lines) - len(needed)
        return b"".join(needed)
    return content


def _short_process(name: str, content: bytes) -> bytes:
    """Return what is needed of somebody's process: what kind of program it is, whose, and in which state."""
    if name == "environ":
        return b""
    if name == "status":
        kept = [
            line for line in content.splitlines() if line.startswith((b"Name:", b"State:", b"Uid:", b"PPid:"))
        ]
        return b"".join(line + b"\n" for line in kept)
    return content


def _short_output(command: str, text: str, left: Counter[str]) -> str:
    if _KERNEL_LOG.match(command):
        lines = text.split("\n")[-_LOG_LINES:]
        kept: list[str] = []
        for line in lines:
            if _CONCERNS.search(line) or not line:
                kept.append(line)
            else:
                left["lines of the kernel's log"] += 1
                if not kept or kept[-1] != "…":  # something stood between these two
                    kept.append("…")
        return "\n".join(kept)
    if len(text) > _MAX_OUTPUT_BYTES:  # a program that prints without end
        left["characters of output"] += len(text) - _MAX_OUTPUT_BYTES
        text = text[:_MAX_OUTPUT_BYTES]
    value = _json_of(text)
    if isinstance(value, dict) and "ServerVersion" in value:
        left["parts of docker info"] += len(_OF_NO_USE & set(value))
        return json.dumps({key: inner for key, inner in value.items() if key not in _OF_NO_USE}) + "\n"
    return text


def _json_of(text: str) -> Any:
    """Return the JSON value that a text is; None if it is none."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _renumber(elf: Mapping[str, Any]) -> None:
    """Device and inode only tell which paths are one file: small numbers do."""
    numbers: dict[tuple[int, ...], int] = {}
    for _, entry in sorted(elf.items()):
        inode = tuple(entry.get("device_inode", ()))
        if any(inode):
            entry["device_inode"] = [1, numbers.setdefault(inode, len(numbers) + 1)]


# ---------------------------------------------------------------- redacting


def redact(recording: Recording, redactor: Redactor) -> Recording:
    """Return the same with everything replaced that tells who and where; `redactor` has counted what."""
    current = recording
    redactor.learn_version(recording.platform.get("release", ""))
    for path in (*recording.files, *recording.tables.get("exists", {}), *recording.tables.get("errors", {})):
        for pattern in _NO_IDENTITY:
            for match in pattern.finditer(path):
                redactor.keep(match[1])
    results: list[Recording] = [current]

    def learn() -> None:
        _learn(results[-1], redactor)

    def apply() -> bool:
        before = results[-1]
        results.append(_apply(before, redactor))
        return members(before) != members(results[-1])

    redactor.stable(learn, apply)
    return results[-1]


def _learn(recording: Recording, redactor: Redactor) -> None:
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
    if path == "/etc/passwd":
        for line in content.decode("utf-8", "replace").splitlines():
            redactor.learn(line.split(":")[0], "user")
    elif path in ("/etc/hostname", "/proc/sys/kernel/hostname"):
        redactor.learn(content.decode("utf-8", "replace").strip(), "hostname")
    elif path.endswith("/cmdline") and _PROCESS_FILE.search(path) is not None:
        for word in content.decode("utf-8", "replace").split("\0")[1:40]:
            redactor.learn(word)
            if not word.startswith("-") and "ipykernel" not in word:
                redactor.learn_process(word.rpartition("/")[2])
    elif content[:20] == _CACHE or _CACHE in content[: 1 << 20]:
        redactor.learn("\n".join(name for pair in _cache_names(content) for name in pair))
    else:
        _learn_text(content.decode("utf-8", "surrogateescape"), redactor)


def _learn_text(text: str, redactor: Redactor) -> None:
    for line, value in _payload_lines(text):
        if value is None:
            redactor.learn(line)
        else:
            redactor.learn_json(value)


def _payload_lines(text: str) -> Iterable[tuple[str, Any]]:
    """Yield (text, None) and (marker, JSON value): the children's answers, and whole documents, are JSON."""
    value = _json_of(text)
    if value is not None:
        yield "", value
        return
    plain: list[str] = []
    for line in text.split("\n"):
        value = _json_of(line.removeprefix(MARKER)) if line.startswith(MARKER) else None
        if value is None:
            plain.append(line)
            continue
        if plain:
            yield "\n".join(plain) + "\n", None
            plain = []
        yield MARKER, value
    yield "\n".join(plain), None


def _apply(recording: Recording, redactor: Redactor) -> Recording:
    tables: dict[str, dict[str, Any]] = {}
    for name, table in recording.tables.items():
        tables[name] = {}
        for key, value in sorted(table.items()):
            if name == "commands":
                new: Any = dict(value)
                for stream in ("stdout", "stderr", "detail"):
                    if stream in new:
                        new[stream] = _redact_text(str(new[stream]), redactor)
            elif name == "listings":
                base = key.rstrip("/")
                new = sorted(redactor(f"{base}/{entry}").rpartition("/")[2] for entry in value)
            else:
                new = redactor.json(value)
            tables[name][redactor(key)] = new
    return Recording(
        tables,
        {
            redactor(path): _redact_content(path, content, redactor)
            for path, content in sorted(recording.files.items())
        },
        {name: redactor.redact_keyed(name, value) for name, value in sorted(recording.env.items())},
        redactor(recording.cwd),
        {key: redactor(value) for key, value in recording.platform.items()},
        redactor(recording.python) if recording.python else None,
        recording.left_out,
    )


def _redact_content(path: str, content: bytes, redactor: Redactor) -> bytes:
    if _CACHE in content[: 1 << 20]:
        return _redact_cache(content, redactor)
    process = _PROCESS_FILE.search(path)
    text = content.decode("utf-8", "surrogateescape")
    if process is not None and process[1] == "cmdline":
        text = "\0".join(redactor.argument(n, word) for n, word in enumerate(text.split("\0")[:40]))
    elif process is not None and process[1] == "status":
        text = re.sub(r"(?m)^(Name:\s*)(\S.{0,200})$", lambda m: f"{m[1]}{redactor.program(m[2])}", text)
    return _redact_text(text, redactor).encode("utf-8", "surrogateescape")


def _redact_text(text: str, redactor: Redactor) -> str:
    parts: list[str] = []
    for line, value in _payload_lines(text):
        if value is None:
            parts.append(redactor(line))
        elif line:
            parts.append(f"{line}{json.dumps(redactor.json(value))}\n")
        else:
            parts.append(json.dumps(redactor.json(value), indent=1) + "\n")
    return "".join(parts)


def _cache_names(content: bytes) -> list[tuple[str, str]]:
    """Return (soname, path) of /etc/ld.so.cache."""
    return [(key, value) for key, value, *_ in _cache_entries(content)]


def _cache_entries(content: bytes) -> list[tuple[str, str, int, int, int]]:
    start = content.find(_CACHE)
    if start < 0 or len(content) < start + _CACHE_HEADER.size:
        return []

    def text(at: int) -> str:
        end = content.find(b"\0", start + at, start + at + 4096)
        return content[start + at : max(end, start + at)].decode("utf-8", "surrogateescape")

    entries = []
    for index in range(min(_CACHE_HEADER.unpack_from(content, start)[1], 1 << 20)):
        at = start + _CACHE_HEADER.size + index * _CACHE_ENTRY.size
        if at + _CACHE_ENTRY.size > len(content):
            break
        flags, key, value, version, hwcap = _CACHE_ENTRY.unpack_from(content, at)
        entries.append((text(key), text(value), flags, version, hwcap))
    return entries


def _redact_cache(content: bytes, redactor: Redactor) -> bytes:
    """Return the loader's cache written again: its names have other lengths now.

    The names of hardware kinds are kept.
    """
    start = content.find(_CACHE)
    entries = _cache_entries(content)
    size = _CACHE_HEADER.size + len(entries) * _CACHE_ENTRY.size
    strings = bytearray()
    offsets: dict[str, int] = {}

    def place(text: str) -> int:
        if text not in offsets:
            offsets[text] = size + len(strings)
            strings.extend(text.encode("utf-8", "surrogateescape") + b"\0")
        return offsets[text]

    rows = [
        _CACHE_ENTRY.pack(flags, place(redactor(key)), place(redactor(value)), version, hwcap)
        for key, value, flags, version, hwcap in entries
    ]
    kinds = [place(name) for name in _cache_hardware(content, start)]
    strings.extend(b"\0" * (-(size + len(strings)) % 4))
    extension = size + len(strings) if kinds else 0
    _, _, _, byte, _ = _CACHE_HEADER.unpack_from(content, start)
    head = _CACHE_HEADER.pack(_CACHE, len(rows), len(strings), byte, extension)
    tail = b""
    if kinds:
        tail = struct.pack("<II", 0xEAA42174, 1) + struct.pack("<IIII", 1, 0, extension + 24, 4 * len(kinds))
        tail += b"".join(struct.pack("<I", at) for at in kinds)
    return head + b"".join(rows) + bytes(strings) + tail


def _cache_hardware(content: bytes, start: int) -> list[str]:
    """Return the folder names below glibc-hwcaps that the cache counts, in its order."""
    names: list[str] = []
    try:
        extension = _CACHE_HEADER.unpack_from(content, start)[4]
        magic, count = struct.unpack_from("<II", content, start + extension)
        for index in range(min(count, 16) if extension and magic == 0xEAA42174 else 0):
            tag, _, offset, size = struct.unpack_from("<IIII", content, start + extension + 8 + index * 16)
            for position in range(0, min(size, 4096) - 3 if tag == 1 else 0, 4):
                at = start + struct.unpack_from("<I", content, start + offset + position)[0]
                end = content.find(b"\0", at, at + 256)
                names.append(content[at : max(at, end)].decode("utf-8", "replace"))
    except struct.error:
        return []
    return names


def manifest(recording: Recording, redactor: Redactor, tool: Mapping[str, str], day: str) -> dict[str, Any]:
    """Return what was looked at, what was replaced and what was left out, for whoever looks into the recording."""
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
        "left_out": dict(sorted(recording.left_out.items())),
    }
