"""The targets of scripts/fuzz: every reader of text and files that tfdoctor did not write itself.

A target raises if a promise is broken and returns otherwise. The documented errors of a reader for bad input
are not a breach. Nothing here requires atheris: the tests run every target on its seeds.
"""

from __future__ import annotations

import ast
import contextlib
import gzip
import importlib
import inspect
import io
import json
import os
import pkgutil
import re
import runpy
import struct
import sys
import tarfile
import tempfile
import textwrap
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdoctor.cli.parse import iter_leaves
from tfdoctor.compat import Compat, DataError
from tfdoctor.core.edits import EditError, SourceText, apply_edits
from tfdoctor.core.errors import UsageError
from tfdoctor.core.privacy.redactor import Redactor
from tfdoctor.core.text import clean, clean_line
from tfdoctor.diagnosis.collect import run_probes
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.extensions.lint.analysis import lint_text
from tfdoctor.extensions.lint.fixes import plan_edits
from tfdoctor.extensions.lint.models import LintResult, LintTarget
from tfdoctor.extensions.lint.render import FORMATTERS
from tfdoctor.logs.blocks import is_binary
from tfdoctor.logs.report import diagnose_log
from tfdoctor.probes import parsers as parse_package
from tfdoctor.probes.ldcache import ENTRY, EXTENSION_MAGIC, HEADER, MAGIC, parse_ldcache
from tfdoctor.probes.parsers.registry import PARSERS, detect_kind
from tfdoctor.probes.python import parse_build_info, parse_cuda_config, parse_version_header
from tfdoctor.render.log import make_log_json, render_log
from tfdoctor.render.log_markdown import make_log_markdown
from tfdoctor.render.report import make_report_json, render_report
from tfdoctor.system import RecordedSystem, archive, bundle
from tfdoctor.system.elf import ElfError, read_elf
from tfdoctor.system.payloads import parse_payload_output
from tfdoctor.system.symbols import list_unresolved_symbols
from tfdoctor.verification.running.streams import CHUNK_BYTES, read_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
CORPUS = ROOT.parent / "shared" / "corpus"
"""Real outputs and logs that may exist beside the checkout."""
HOSTS = TESTS / "hosts"
MAX_INPUT_BYTES = 1 << 14
"""Maximum bytes of an input.

Longer inputs cost speed, and the tests have lines of a megabyte.
"""
MAX_CHARS_PER_BYTE = 64
"""Characters of output that are allowed for each byte of input."""
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
ZSTD = b"\x28\xb5\x2f\xfd"
CAPTURED = (
    "/etc/ld.so.cache",
    "/etc/passwd",
    "/srv/someone/.docker/config.json",
    "/proc/7/cmdline",
    "/proc/7/status",
    "/usr/lib/modules.dep",
)
OBJECT_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/lib/x86_64-linux-gnu",
)


class BrokenPromiseError(AssertionError):
    """A promise that did not hold."""


@dataclass(frozen=True)
class Target:
    """A fuzz target: `run` takes an input, `seeds` returns the initial inputs.

    `form` says how to mutate an input: "text", "bytes", "json", or "headed" (text after a first line that
    stays).
    """

    name: str
    run: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    form: str = "text"
    largest: int = MAX_INPUT_BYTES
    weight: int = 1
    """Relative share of the time; slow targets get more."""


def require(holds: bool, message: str) -> None:
    """Raise BrokenPromiseError with this message unless `holds` is true."""
    if not holds:
        raise BrokenPromiseError(message)


def decode_text(data: bytes) -> str:
    """Decode any bytes; invalid ones become lone surrogates."""
    return data.decode("utf-8", "surrogateescape")


def check_json(value: Any, data: bytes) -> str:
    """Return `value` as JSON.

    Raise BrokenPromiseError if it does not survive the round trip or is far larger than `data`.
    """
    encoded = json.dumps(value)
    require(json.loads(encoded) == value, "the answer changes on its way through JSON")
    require(
        len(encoded) <= MAX_CHARS_PER_BYTE * len(data) + 10_000,
        f"{len(encoded)} characters for {len(data)} bytes",
    )
    return encoded


# ---------------------------------------------------------------- targets


def make_parser_target(kind: str) -> Callable[[bytes], None]:
    """Return the target of the parser of `kind`."""

    def run(data: bytes) -> None:
        answer = PARSERS[kind](decode_text(data)).as_dict()
        check_json(answer, data)
        for path, value in iter_leaves(answer):
            clean_line(f"{path}: {value}")

    return run


def find_other_readers() -> dict[str, tuple[Callable[[str], Any], ...]]:
    """Return the public functions of one text in the modules of parse that have no registered parser."""
    readers: dict[str, tuple[Callable[[str], Any], ...]] = {}
    kinds = {function.__module__ for function in PARSERS.values()}
    for info in pkgutil.iter_modules(parse_package.__path__, f"{parse_package.__name__}."):
        module = importlib.import_module(info.name)
        name = info.name.rpartition(".")[2]
        if info.name in kinds or name.startswith("_") or name in ("detect", "edits", "registry"):
            continue
        functions = [f for f in vars(module).values() if getattr(f, "__module__", "") == info.name]
        readers[name] = tuple(
            function
            for function in functions
            if inspect.isfunction(function)
            and not function.__name__.startswith("_")
            and [p.annotation for p in inspect.signature(function).parameters.values()] == ["str"]
        )
    return readers


def make_reader_target(functions: tuple[Callable[[str], Any], ...]) -> Callable[[bytes], None]:
    """Return a target that calls each of the functions on the text."""
    # The exceptions that the module itself defines are documented results.
    allowed_errors = tuple(
        value
        for function in functions
        for value in vars(sys.modules[function.__module__]).values()
        if isinstance(value, type)
        and issubclass(value, Exception)
        and value.__module__ == function.__module__
    )

    def run(data: bytes) -> None:
        for function in functions:
            with contextlib.suppress(*allowed_errors):
                result = repr(function(decode_text(data)))
                require(len(result) <= MAX_CHARS_PER_BYTE * len(data) + 10_000, f"{len(result)} characters")

    return run


def run_auto(data: bytes) -> None:
    require(detect_kind(decode_text(data)) in {None, *PARSERS}, "a kind that is none")


@lru_cache(maxsize=1)
def load_compat() -> Compat:
    return Compat.load()


def run_log(data: bytes) -> None:
    is_binary(data[:8192])
    size = 1 + data[0] * 16 if data else 1
    report = diagnose_log((data[at : at + size] for at in range(0, len(data), size)), load_compat(), "log")
    screen = render_log(report, verbose=True) + make_log_markdown(report)
    require(not CONTROL.search(screen), "a control character is passed on")
    check_json(make_log_json(report), data)


def run_packed_log(data: bytes) -> None:
    if data.startswith(ZSTD):  # would start an external program
        return
    path = make_scratch_folder() / "log"
    path.write_bytes(data)
    with contextlib.suppress(UsageError):
        for piece in read_log(str(path), on_note=len):
            require(0 < len(piece) <= CHUNK_BYTES, f"a piece of {len(piece)} bytes")


@lru_cache(maxsize=1)
def make_scratch_folder() -> Path:
    """Return a temporary folder of this process, which is removed when the process ends."""
    holder = tempfile.TemporaryDirectory(prefix="tfdoctor-fuzz-")
    make_scratch_folder.holder = holder
    return Path(holder.name)


def run_elf(data: bytes) -> None:
    path = make_scratch_folder() / "lib.so"
    path.write_bytes(data)
    # The reader gives up early at a segment beyond the end; a sparse tail lets it follow more headers.
    if len(data) % 2:
        os.truncate(path, 1 << 30)
    with contextlib.suppress(ElfError):
        elf = read_elf(str(path), "x86_64")
        names = (*elf.needed, *elf.verdef, *(v for _, versions in elf.verneed for v in versions))
        total = sum(map(len, names))
        require(total <= 1 << 22, f"{total} characters of names from {len(data)} bytes")
    list_unresolved_symbols(str(path), [str(path)])


def run_ldcache(data: bytes) -> None:
    for machine in (62, 183):
        entries = parse_ldcache(data, machine)
        total = sum(len(entry.soname) + len(entry.path) for entry in entries)
        require(
            total <= MAX_CHARS_PER_BYTE * len(data) + 10_000, f"{total} characters from {len(data)} bytes"
        )


def run_answer(data: bytes) -> None:
    text = decode_text(data)
    require(isinstance(parse_payload_output(text), dict), "no object")
    check_json(parse_build_info(text), data)
    check_json(parse_cuda_config(text), data)
    parse_version_header(text)


def run_redact(data: bytes) -> None:
    text = decode_text(data)
    clean_line(text)
    for function in (clean, lambda text: Redactor().text(text)):
        cleaned = function(text)
        require(function(cleaned) == cleaned, "not idempotent")
    require(not CONTROL.search(clean(text)), "a control character is passed on")


def run_lint(data: bytes) -> None:
    text = decode_text(data)
    for kind in ("python", "notebook", "shell", "dockerfile", "yaml", "env"):
        for target in (LintTarget(), LintTarget((1, 15), 2)):
            problems, _ = lint_text(text, kind, target)
            for problem in problems:
                require(
                    problem.line > 0 and problem.column > 0 and bool(problem.code), "a finding is nowhere"
                )
            source = SourceText(text.encode("utf-8", "surrogatepass"), text, "utf-8")
            with contextlib.suppress(EditError):
                apply_edits(source.data, plan_edits(source, problems, kind))
            answer = LintResult(1, tuple(problems))
            for name, form in FORMATTERS.items():
                require(
                    name == "json" or not CONTROL.search(form(answer)), "a control character is passed on"
                )


def list_lint_cases() -> Iterator[bytes]:
    cases = runpy.run_path(str(TESTS / "extensions" / "lint" / "cases.py"))
    texts = [*cases["PYTHON"].values(), *(text for _, _, text in cases["WITH_OPTIONS"].values())]
    texts = [textwrap.dedent(text) for text in texts]
    yield from encode_texts([*texts, cases["SHELL"], cases["DOCKERFILE"], cases["YAML"]])
    yield json.dumps({"cells": [{"cell_type": "code", "source": text} for text in texts[:6]]}).encode()


def run_pythons(data: bytes) -> None:
    (make_scratch_folder() / "pythons.toml").write_bytes(data)
    with contextlib.suppress(DataError):
        _ = Compat(make_scratch_folder()).pythons


def check_recording(host: str, *, whole: bool) -> None:
    """Run all of `check --from FOLDER` on a recorded machine, given as the JSON text `host`.

    whole: also raise BrokenPromiseError if a probe crashed.
    """
    system = RecordedSystem({archive.HOST_FILE: host.encode("utf-8", "surrogateescape")})
    facts = run_probes(system, load_compat(), timeout=20.0)
    report = diagnose(facts, load_compat())
    for verbose in (False, True):
        screen = render_report(report, verbose=verbose)
        require(not CONTROL.search(screen), "a control character is passed on")
    json_text = json.dumps(make_report_json(report))
    if not whole:  # a probe that crashes on damaged answers only makes its fact unknown
        return
    crashed = re.search(r"looking at [^\"]{1,60} (?:crashed|did not end)[^\"]{0,200}", json_text)
    require(crashed is None, crashed[0] if crashed else "")


def run_recording(data: bytes) -> None:
    """Check a recording that is damaged anywhere."""
    with contextlib.suppress(UsageError):
        check_recording(decode_text(data), whole=False)


def run_machine(data: bytes) -> None:
    """Check a recorded machine in which one text is replaced.

    The input is a line of tab-separated HOST, TABLE, KEY and optionally STREAM, then the text.
    """
    header, _, text = decode_text(data).partition("\n")
    host, table, key, stream = [*header.split("\t"), "", "", "", ""][:4]
    raw = load_machines().get(host)
    if raw is None or table not in raw or key not in raw[table]:
        return
    value = {**raw[table][key], stream: text} if stream else text
    changed = {**raw, table: {**raw[table], key: value}}
    with contextlib.suppress(UsageError):
        check_recording(json.dumps(changed), whole=True)


def run_archive(data: bytes) -> None:
    """Read the .tar inside a .tar.gz; what was read can be written and read again."""
    with contextlib.suppress(UsageError):
        files = archive.read_archive(gzip.compress(data, 1), "recording")
        require(sum(map(len, files.values())) <= len(data), "more comes out than is in it")
        require(not any(".." in name.split("/") or name.startswith("/") for name in files), "a way out")
        require(archive.read_archive(archive.make_archive(files), "again") == files, "another recording")


def run_capture(data: bytes) -> None:
    """Run `capture` on the files and outputs that it shortens or parses."""
    text = decode_text(data)
    recording = bundle.Recording(
        tables={
            "commands": {
                name: {"stdout": text, "stderr": "", "returncode": 0}
                for name in ("dmesg", "docker info", "nvidia-smi -q -x", "payload:target")
            }
        },
        files=dict.fromkeys(CAPTURED, data),
        env={"HOME": "/srv/someone", "LD_LIBRARY_PATH": text[:1000].replace("\0", "")},
        cwd="/srv/someone",
        platform={},
    )
    redactor = Redactor(users=["someone"], hosts=["some-host"])
    members = bundle.build_recording_files(
        bundle.redact_recording(bundle.shorten_recording(recording), redactor)
    )
    total = sum(map(len, members.values()))
    require(total <= 8 * MAX_CHARS_PER_BYTE * len(data) + 100_000, f"{total} bytes from {len(data)}")
    RecordedSystem(members)


# ---------------------------------------------------------------- seeds


@lru_cache(maxsize=1)
def load_machines() -> dict[str, dict[str, Any]]:
    """Return the recorded machines of the tests by name."""
    return {
        path.parent.name: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(HOSTS.glob("*/host.json"))
    }


def list_machine_texts() -> Iterator[tuple[str, str]]:
    """Yield (header for the target "machine", text) for every text in the recorded machines."""
    for name, raw in load_machines().items():
        for command, entry in raw.get("commands", {}).items():
            for stream in ("stdout", "stderr"):
                text = entry.get(stream)
                if text and isinstance(text, str):
                    yield f"{name}\tcommands\t{command}\t{stream}", text
        for table in ("files", "env"):
            for key, text in raw.get(table, {}).items():
                if isinstance(text, str):
                    yield f"{name}\t{table}\t{key}", text


def list_test_texts() -> Iterator[str]:
    """Yield the string literals in the tests of parsers and logs."""
    for folder in ("probes", "logs"):
        for path in sorted((TESTS / folder).glob("test_*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) > 5:
                    yield node.value


@lru_cache(maxsize=1)
def group_texts_by_kind() -> dict[str, tuple[str, ...]]:
    """Return every available text by its detected kind; "" for no kind."""
    texts_of: dict[str, dict[str, None]] = {kind: {} for kind in (*PARSERS, "")}
    for text in (*list_test_texts(), *(text for _, text in list_machine_texts())):
        texts_of[detect_kind(text) or ""].setdefault(text)
    for kind in PARSERS:
        for path in sorted((CORPUS / "outputs" / kind).glob("*.txt")):
            texts_of[kind].setdefault(path.read_bytes()[:MAX_INPUT_BYTES].decode("utf-8", "replace"))
    return {kind: tuple(texts) for kind, texts in texts_of.items()}


def encode_texts(texts: Iterable[str]) -> Iterator[bytes]:
    return (text.encode("utf-8", "surrogatepass") for text in texts)


def make_seed_function(kind: str) -> Callable[[], Iterator[bytes]]:
    return lambda: encode_texts((*group_texts_by_kind()[kind], *group_texts_by_kind()[""]))


def list_texts() -> Iterator[bytes]:
    return encode_texts(text for texts in group_texts_by_kind().values() for text in texts)


def list_logs() -> Iterator[bytes]:
    for path in sorted((*(TESTS / "logs" / "data").glob("*.txt"), *CORPUS.glob("logs/*/log.txt"))):
        yield path.read_bytes()
    yield from encode_texts(text for text in list_test_texts() if ".cc:" in text)


def pack_logs() -> Iterator[bytes]:
    import bz2
    import lzma

    text = b"2020-11-30 17:36:59.367782: I tensorflow/stream_executor/a.cc:49] Successfully opened\n" * 20
    yield from (text, gzip.compress(text), lzma.compress(text), bz2.compress(text), gzip.compress(text) * 2)
    yield gzip.compress(bytes(1 << 16))


def list_objects() -> Iterator[bytes]:
    """Yield the start of the smallest shared objects of this machine, which holds the headers.

    Each one is yielded in two lengths, because run_elf treats inputs of odd length differently.
    """
    sizes: dict[str, int] = {}
    for folder in OBJECT_FOLDERS:
        for path in Path(folder).glob("*.so*") if Path(folder).is_dir() else ():
            with contextlib.suppress(OSError):
                sizes[str(path.resolve())] = path.stat().st_size
    for name in sorted(sizes, key=lambda name: (sizes[name], name))[:40]:
        content = Path(name).read_bytes()
        if content[:4] == b"\x7fELF":
            yield content[: 1 << 16]
            yield content[: (1 << 16) - 1] + b"\0" * (not len(content) % 2)


def make_caches() -> Iterator[bytes]:
    """Yield versions of /etc/ld.so.cache as ldconfig writes it.

    They have three libraries, one of them in glibc-hwcaps, and the extension.
    """
    names = (b"libcuda.so.1", b"libcudart.so.12", b"libcudart.so.12")
    paths = (
        b"/usr/lib/libcuda.so.1",
        b"/opt/libcudart.so.12",
        b"/usr/lib/glibc-hwcaps/x86-64-v3/libcudart.so.12",
    )
    for prefix in (b"", b"ld.so-1.7.0\0" + struct.pack("<I", 0)):
        strings, offsets = b"", []
        start = HEADER.size + len(names) * ENTRY.size
        for text in (*names, *paths, b"x86-64-v3"):
            offsets.append(start + len(strings))
            strings += text + b"\0"
        strings += b"\0" * (-(start + len(strings)) % 4)
        extension = start + len(strings)
        tail = struct.pack("<IIIIIII", EXTENSION_MAGIC, 1, 1, 0, extension + 24, 4, offsets[6])
        entries = b"".join(
            ENTRY.pack(0x0303, offsets[i], offsets[3 + i], 0, (1 << 62) if i == 2 else 0) for i in range(3)
        )
        yield prefix + HEADER.pack(MAGIC, len(names), len(strings), 2, extension) + entries + strings + tail


def list_answers() -> Iterator[bytes]:
    yield from encode_texts(text for header, text in list_machine_texts() if "payload:" in header)
    yield b'#define TF_MAJOR_VERSION 2\n#define TF_MINOR_VERSION 4\n#define TF_PATCH_VERSION 1\n#define TF_VERSION_SUFFIX "-rc0"\n'  # noqa: E501
    yield b"build_info = collections.OrderedDict([('cuda_version', '12.5.1'), ('is_cuda_build', True)])\ncuda_version_number = '10.0'\n"  # noqa: E501


def list_recordings() -> Iterator[bytes]:
    return (path.read_bytes() for path in sorted(HOSTS.glob("*/host.json")) if path.stat().st_size <= 1 << 16)


def make_archives() -> Iterator[bytes]:
    files = {
        archive.HOST_FILE: b'{"schema_version": 1}',
        "root/etc/hostname": b"h\n",
        "output/1.txt": b"x" * 200,
    }
    yield gzip.decompress(archive.make_archive(files))
    yield gzip.decompress(archive.make_archive({f"folder/{name}": data for name, data in files.items()}))
    for form in (tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:", format=form) as tar:
            for name in (archive.HOST_FILE, f"root/{'long/' * 30}name", "root/link"):
                member = tarfile.TarInfo(name)
                member.type = tarfile.SYMTYPE if name.endswith("link") else tarfile.REGTYPE
                tar.addfile(member)
        yield buffer.getvalue()


def list_captures() -> Iterator[bytes]:
    yield from (*make_caches(), *list_answers(), *list_texts())
    yield b"root:x:0:0:root:/root:/bin/sh\nsomeone:x:1000:1000:,,,:/srv/someone:/bin/sh\n"
    yield b'{"auths": {"r.example": {"auth": "c29tZTpvbmU="}}, "currentContext": "remote"}'
    yield b"python\0train.py\0--token=abcdefghijklmnop\0someone@some-host.example\0"
    yield b"[    1.0] NVRM: Xid (PCI:0000:01:00): 79, pid=1\nsome-host kernel: usb 1-1: SerialNumber: 12345678\n"


def machine_texts() -> Iterator[bytes]:
    return encode_texts(f"{header}\n{text}" for header, text in list_machine_texts())


TARGETS = {
    target.name: target
    for target in (
        *(Target(kind, make_parser_target(kind), make_seed_function(kind)) for kind in PARSERS),
        *(
            Target(name, make_reader_target(functions), list_texts)
            for name, functions in find_other_readers().items()
        ),
        Target("auto", run_auto, list_texts),
        Target("log", run_log, list_logs, largest=1 << 16, weight=4),
        Target("packed-log", run_packed_log, pack_logs, "bytes"),
        Target("elf", run_elf, list_objects, "bytes", 1 << 16),
        Target("ldcache", run_ldcache, make_caches, "bytes"),
        Target("answer", run_answer, list_answers),
        Target("redact", run_redact, list_texts),
        Target("lint", run_lint, list_lint_cases, weight=3),
        Target("pythons", run_pythons, lambda: [(ROOT / "compat" / "pythons.toml").read_bytes()]),
        Target("archive", run_archive, make_archives, "bytes"),
        Target("capture", run_capture, list_captures, weight=2),
        Target("recording", run_recording, list_recordings, "json", 1 << 16, weight=3),
        Target("machine", run_machine, machine_texts, "headed", 1 << 15, weight=5),
    )
}
