"""A plan → the text of a Dockerfile, and the files that it copies. Pure: nothing is read but the templates.

The templates in `dockerfiles/` make no decisions; every value they print is made here and is checked here, because
names of images, folders and indexes come from outside.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import re
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tfdoctor import __version__, versions
from tfdoctor.compat.folder import data_dir
from tfdoctor.errors import UsageError
from tfdoctor.plan.models import Recipe

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jinja2 import Environment

    from tfdoctor.compat.locks import Lock, LockedPackage
    from tfdoctor.compat.prune import Leftover
    from tfdoctor.plan.models import Base, Option

__all__ = [
    "CACHE",
    "LOCKED",
    "MAX_UID",
    "TOOLS",
    "UID",
    "VENV",
    "Context",
    "Extras",
    "has_venv",
    "interpreter",
    "render",
]

VENV = "/opt/tensorflow"
"""Where the recipes with a virtual environment put it."""
UID = 1000
"""The image's user, where none is asked for."""
MAX_UID = 2**32 - 2
HOME = "/home/user"
"""Of every user of the image: anybody may write there, whoever `docker run --user` names."""
CACHE = "/var/cache/cuda"
"""Where CUDA keeps the kernels that it compiled for a card; a volume keeps them between containers."""
CACHE_SIZE = 2**31
"""Bytes; the kernels of TensorFlow for one card are more than CUDA's own limit."""
SHARE = "/usr/local/share/tfdoctor"
LOGS = (
    "/var/cache/apt/*.bin",
    "/var/cache/ldconfig/aux-cache",
    "/var/log/alternatives.log",
    "/var/log/apt/*",
    "/var/log/dpkg.log",
)
"""What apt leaves that is of this one build."""
TOOLS = "tools.txt"
LOCKED = ("cuda.txt", "release.txt", "tensorflow.txt")
"""The files of a context that pip installs from, pinned and hashed; and `TOOLS`, which it does that with."""
STALE_LISTS = ("/etc/apt/sources.list.d/cuda*.list", "/etc/apt/sources.list.d/nvidia-ml.list")
"""Lists in old images whose key (7fa2af80) NVIDIA retired in April 2022."""
_REFERENCE = re.compile(
    r"(?:[a-z0-9](?:[a-z0-9.-]{0,250}[a-z0-9])?(?::[0-9]{1,5})?/)?[a-z0-9]+(?:(?:[._/]|__|-{1,9})[a-z0-9]+){0,40}"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
_CONDA_WORD = re.compile(r"[a-z][a-z0-9-]{0,60}(?:=[0-9]{1,5}(?:\.[0-9]{1,5}){0,4})?")
_INDEX = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]{1,255}(?:/[A-Za-z0-9._~%/\-]{0,500})?")


@dataclass(frozen=True, slots=True)
class Extras:
    """What the user's network and program add to a plan."""

    requirements: tuple[str, ...] = ()
    """Checked requirement lines, in order (see requirements.py)."""
    ca_certificate: bytes | None = None
    """PEM; used while building, by pip."""
    index: str | None = None
    platform: str | None = None
    uid: int = UID
    """Of the image's user."""


@dataclass(frozen=True, slots=True)
class Context:
    """Everything that a build needs."""

    dockerfile: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Name in the context → content; the Dockerfile is not among them."""
    epoch: int = 0
    """The time that every file of the image gets, in seconds since 1970: that of the TensorFlow release."""


def check_reference(text: str) -> str:
    """Return the name of an image as the registries' grammar has it. Raises UsageError."""
    if len(text) > 512 or not _REFERENCE.fullmatch(text):
        msg = f"`{text}` is not the name of an image."
        raise UsageError(msg, hint="NAME, NAME:TAG, HOST:PORT/NAME:TAG or NAME@sha256:DIGEST, in lower case.")
    return text


def check_index(text: str) -> str:
    """Return the address of a package index.

    Raises UsageError for one with a password: layers keep it for ever.
    """
    try:
        parts = urlsplit(text)
        named = parts.username is not None or parts.password is not None
        _ = parts.port  # raises where it is no number
        if parts.netloc.startswith("["):
            ipaddress.IPv6Address(parts.hostname or "")  # Python 3.10 does not look
    except ValueError as error:
        shown = text.rpartition("@")[2]  # what comes before it may be a password
        msg = f"`{shown}` is not the address of a package index."
        raise UsageError(msg, hint="Expected an address such as https://HOST/simple/.") from error
    if named:
        raise UsageError(
            "an index with a name or password in its address would be readable in the image's layers.",
            hint="Give an address without them, of a mirror that needs none.",
        )
    if not _INDEX.fullmatch(text):
        msg = f"`{text}` is not the address of a package index."
        raise UsageError(msg, hint="Expected an address such as https://HOST/simple/.")
    return text


def render(
    option: Option,
    extras: Extras,
    *,
    lock: Lock | None,
    tools: Lock | None = None,
    leftovers: Iterable[Leftover] = (),
) -> Context:
    """Return the Dockerfile of a container option, and its context.

    Raises UsageError for names that cannot be.
    """
    if option.base is None:
        msg = f"the {option.recipe.value} recipe has no image"
        raise ValueError(msg)
    files = _files(option, extras, lock, tools)
    values = _values(option, extras, files, tuple(leftovers))
    text = _environment().get_template(f"{option.recipe.value}.Dockerfile.j2").render(d=values)
    text = re.sub(r"[ \t]+\n", "\n", text)
    text = re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"
    return Context(text, files, _epoch(option))


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(data_dir("dockerfiles")),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - it writes a Dockerfile, not HTML; values are checked above
        keep_trailing_newline=True,
    )


# ---------------------------------------------------------------- the files of the context


def _files(option: Option, extras: Extras, lock: Lock | None, tools: Lock | None) -> dict[str, bytes]:
    files: dict[str, str] = {}
    locked = lock.packages if lock is not None and option.recipe is not Recipe.NGC else ()
    own = [_line(one) for one in locked if one.name == option.release.package]
    rest = [_line(one) for one in locked if one.name != option.release.package]
    cuda = [f"{wheel.pin} --hash=sha256:{wheel.sha256}" for wheel in option.wheels]
    if tools is not None and locked and has_venv(option):
        files[TOOLS] = _text(_line(one) for one in tools.packages)
    if option.recipe is Recipe.OFFICIAL:
        files["release.txt"], files["tensorflow.txt"] = _text(own), _text(rest)
    elif locked:
        files["tensorflow.txt"] = _text([*own, *rest])
    if cuda:
        files["cuda.txt"] = _text(cuda)
    if extras.requirements:
        held = [line.split(" ", 1)[0] for line in (*own, *rest, *cuda)]
        if held:  # NVIDIA's own images have a list of theirs (PIP_CONSTRAINT)
            files["constraints.txt"] = _text(held)
        files["requirements.txt"] = _text(extras.requirements)
    found = {name: text.encode() for name, text in files.items()}
    if has_venv(option):
        found["strip.py"] = _payload("strip.py")
    found["settle.sh"] = (data_dir("dockerfiles") / "settle.sh").read_bytes()
    if extras.ca_certificate is not None:
        found["ca.crt"] = extras.ca_certificate
    return found


def has_venv(option: Option) -> bool:
    """Return whether its Python is a virtual environment's (`VENV`), not the image's own."""
    return option.recipe.own_venv


def interpreter(option: Option) -> str:
    """Return the command of the Python that TensorFlow is in, in a container of the image."""
    if has_venv(option):
        return f"{VENV}/bin/python"
    return (option.base.python if option.base is not None else None) or f"python{option.python}"


def _epoch(option: Option) -> int:
    day = dt.date.fromisoformat(option.release.released)
    return int(dt.datetime.combine(day, dt.time(), dt.timezone.utc).timestamp())


def _payload(name: str) -> bytes:
    return (resources.files("tfdoctor.payload") / name).read_bytes()


def _line(package: LockedPackage) -> str:
    return f"{package.name}=={package.version} " + " ".join(f"--hash=sha256:{one}" for one in package.hashes)


def _text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


# ---------------------------------------------------------------- the values of the template


def _values(
    option: Option, extras: Extras, files: Mapping[str, bytes], leftovers: tuple[Leftover, ...]
) -> dict[str, object]:
    base = option.base
    assert base is not None  # noqa: S101 - render has looked
    venv = has_venv(option)
    site = f"{VENV}/lib/python{option.python}/site-packages"
    own = base.python or f"python{option.python}"
    folders = _library_folders(option, site)
    nvcc = next((f"{site}/nvidia/cuda_nvcc" for wheel in option.wheels if "nvcc" in wheel.name), None)
    here = [one for one in leftovers if versions.satisfies(option.release.version, one.tensorflow)]
    return {
        "tool": __version__,
        "tensorflow": option.tensorflow,
        "python": option.python,
        "cuda": option.cuda,
        "cudnn": option.cudnn,
        "recipe": option.recipe.value,
        "base": check_reference(base.reference),
        "index": check_index(extras.index) if extras.index is not None else None,
        "ca": "ca.crt" in files,
        "install": base.install,
        "stale_lists": STALE_LISTS if _has_nvidia_lists(option) else (),
        "logs": LOGS,
        "epoch": _epoch(option),
        "share": SHARE,
        "home": HOME,
        "cache": CACHE,
        "interpreter": own,
        "venv": VENV,
        "site": site,
        "pip": f"{VENV}/bin/pip" if venv else f"{own} -m pip",
        "python_command": interpreter(option),
        "owned": venv and extras.uid != 0,
        "prune_cuda": _patterns(here, "cuda", site) if option.cuda_set else [],
        "prune_tensorflow": _patterns(here, "tensorflow", site),
        "library_folders": folders,
        "cuda_home": nvcc,
        "constraints": "constraints.txt" in files,
        "requirements": "requirements.txt" in files,
        "uid": extras.uid,
        "environment": _variables(option),
        "labels": _labels(option),
        "command": "python" if venv else own,
        "conda": _conda(option),
    }


def _conda(option: Option) -> dict[str, object] | None:
    conda = option.conda
    if conda is None:
        return None
    for word in (conda.channel, *conda.packages):
        if not _CONDA_WORD.fullmatch(word):
            msg = f"`{word}` is no package of conda"
            raise ValueError(msg)
    return {"image": check_reference(conda.image), "channel": conda.channel, "packages": conda.packages}


def _patterns(rows: Iterable[Leftover], part: str, site: str) -> list[str]:
    return sorted(f"{site}/{one.pattern}" for one in rows if one.part == part)


def _has_nvidia_lists(option: Option) -> bool:
    return option.recipe in (Recipe.OFFICIAL, Recipe.CUDA_BASE)


def _library_folders(option: Option, site: str) -> list[str]:
    """Return every folder of NVIDIA's wheels that has libraries."""
    return [f"{site}/{folder}" for folder in option.cuda_set.folders] if option.cuda_set is not None else []


def _variables(option: Option) -> list[tuple[str, str]]:
    path = f"{VENV}/bin:$PATH" if has_venv(option) else f"{HOME}/.local/bin:$PATH"
    variables = [
        ("PATH", path),
        ("HOME", HOME),
        ("CUDA_CACHE_PATH", CACHE),
        ("CUDA_CACHE_MAXSIZE", str(CACHE_SIZE)),
        ("NVIDIA_VISIBLE_DEVICES", "all"),
        ("NVIDIA_DRIVER_CAPABILITIES", "compute,utility"),
    ]
    major = versions.major(option.cuda)
    if option.recipe is Recipe.PIP_CUDA or (major >= 11 and option.recipe is not Recipe.NGC):
        # Minor-version compatibility: the base's own line would refuse older drivers of the same CUDA major.
        variables.append(("NVIDIA_REQUIRE_CUDA", f'"cuda>={major}.0"'))
    return variables


def _labels(option: Option) -> list[tuple[str, str]]:
    base = option.base
    plan = {
        "tensorflow": option.tensorflow,
        "python": option.python,
        "cuda": option.cuda,
        "cudnn": option.cudnn,
        "recipe": option.recipe.value,
    }
    cudnn = f", cuDNN {option.cudnn}" if option.cudnn else ""
    pairs = {
        "org.opencontainers.image.title": f"TensorFlow {option.tensorflow} for NVIDIA GPUs",
        "org.opencontainers.image.description": f"Python {option.python}, CUDA {option.cuda}{cudnn}",
        "org.opencontainers.image.version": option.tensorflow,
        "org.opencontainers.image.base.name": base.image.partition("@")[0] if base is not None else "",
        "org.opencontainers.image.base.digest": _digest(base),
        "io.tfdoctor.plan": json.dumps(plan, sort_keys=True),
        "io.tfdoctor.version": __version__,
    }
    return [(name, _quote_label(value)) for name, value in pairs.items() if value]


def _digest(base: Base | None) -> str:
    return base.reference.partition("@")[2] if base is not None else ""


def _quote_label(value: str) -> str:
    """As one word of a LABEL instruction."""
    text = value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    return f'"{text}"'
