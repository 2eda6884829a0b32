"""Render a plan as a Dockerfile and the files that it copies.

The templates in `dockerfiles/` contain no decisions. This module makes and checks every value that they print, because
image names and index URLs are user input.
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

from tfdoctor import __version__
from tfdoctor.compat.folder import data_dir
from tfdoctor.core import versions
from tfdoctor.core.errors import UsageError
from tfdoctor.images.sbom import format_sbom
from tfdoctor.planning.models import Recipe

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jinja2 import Environment

    from tfdoctor.compat.locks import Lock, LockedPackage
    from tfdoctor.compat.prune import Leftover
    from tfdoctor.planning.models import BaseImage, Option

__all__ = [
    "APP_CONTEXT_FOLDER",
    "CUDA_CACHE_FOLDER",
    "DEFAULT_UID",
    "LOCK_FILES",
    "MAX_UID",
    "TOOLS_FILE",
    "VENV_FOLDER",
    "AppFiles",
    "BuildContext",
    "UserAdditions",
    "get_python_command",
    "has_venv",
    "render_dockerfile",
]

VENV_FOLDER = "/opt/tensorflow"
"""The folder of the virtual environment, in recipes that have one."""
DEFAULT_UID = 1000
"""The default ID of the image's user."""
MAX_UID = 2**32 - 2
HOME_FOLDER = "/home/user"
"""The home directory of every user. Everyone can write to it, so that `docker run --user` works."""
CUDA_CACHE_FOLDER = "/var/cache/cuda"
"""The folder for kernels that CUDA compiles for a GPU. A volume preserves them between containers."""
CUDA_CACHE_BYTES = 2**31
"""The size limit of CUDA_CACHE_FOLDER. TensorFlow's kernels for one GPU exceed CUDA's default limit."""
SHARE_FOLDER = "/usr/local/share/tfdoctor"
"""The folder of tfdoctor's own files in the image."""
BUILD_LOGS = (
    "/var/cache/apt/*.bin",
    "/var/cache/ldconfig/aux-cache",
    "/var/log/alternatives.log",
    "/var/log/apt/*",
    "/var/log/dpkg.log",
)
"""Logs and caches of apt, which differ between builds."""
SHARED_EPOCH = 315532800
"""The time stamp of the files in the layers that releases share: 1980-01-01, the first day that a zip file can hold."""
TOOLS_FILE = "tools.txt"
SBOM_FILE = "sbom.cdx.json"
"""The list of the packages, in the context and in SHARE_FOLDER of the image."""
LOCK_FILES = ("cuda.txt", "release.txt", "tensorflow.txt")
"""Files with the pinned and hashed packages that pip installs. `TOOLS_FILE` has pip itself."""
STALE_APT_LISTS = ("/etc/apt/sources.list.d/cuda*.list", "/etc/apt/sources.list.d/nvidia-ml.list")
"""apt source lists in old images that need the key 7fa2af80, which NVIDIA retired in April 2022."""
_IMAGE_REFERENCE = re.compile(
    r"(?:[a-z0-9](?:[a-z0-9.-]{0,250}[a-z0-9])?(?::[0-9]{1,5})?/)?[a-z0-9]+(?:(?:[._/]|__|-{1,9})[a-z0-9]+){0,40}"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
"""[HOST[:PORT]/]PATH[:TAG][@sha256:DIGEST], in the grammar of registries."""
_CONDA_SPEC = re.compile(r"[a-z][a-z0-9-]{0,60}(?:=[0-9]{1,5}(?:\.[0-9]{1,5}){0,4})?")
"""NAME or NAME=VERSION."""
_INDEX_URL = re.compile(
    r"https?://(?:[A-Za-z0-9._~%+\-]{1,200}@)?[A-Za-z0-9.\-\[\]:]{1,255}(?:/[A-Za-z0-9._~%/\-]{0,500})?"
)
"""An http or https URL without password, query and fragment."""
PIP_CONFIG_SECRET = "pip.conf"  # noqa: S105 - a name
"""The ID of the build secret with the login of the package index: a configuration file of pip."""
PIP_CONFIG_PATH = f"/run/secrets/{PIP_CONFIG_SECRET}"
DOWNLOADS_FOLDER = "/var/cache/tfdoctor"
"""Where BuildKit mounts the cache of downloads while a step runs."""
APP_FOLDER = "/app"
"""The folder of the user's own code in the image."""
APP_CONTEXT_FOLDER = "app"
"""The folder of the user's own code in the build context."""
FIRST_CACHING_PIP = "23.1"
"""Older versions of pip hold a whole wheel in memory to cache it."""


@dataclass(frozen=True, slots=True)
class AppFiles:
    """The user's own code."""

    contents: Mapping[str, bytes] = field(default_factory=dict)
    """The content of each file, by name in the build context."""
    executables: frozenset[str] = frozenset()
    """The names of the files that are executable."""


@dataclass(frozen=True, slots=True)
class UserAdditions:
    """The user's additions to a plan."""

    requirements: tuple[str, ...] = ()
    """Validated requirement lines, in order (see requirements.py)."""
    ca_certificate: bytes | None = None
    """A certificate in PEM form that pip uses during the build. None for the default certificates."""
    index_url: str | None = None
    """The URL of the package index, without its login. None for the default index."""
    index_needs_login: bool = False
    """Whether pip gets the index from a build secret, PIP_CONFIG_SECRET."""
    caches_downloads: bool = False
    """Whether the steps use a cache of downloads that survives a failed build. Only BuildKit has one."""
    platform: str | None = None
    """The platform of the image, such as `linux/amd64`. None for the default of the engine."""
    uid: int = DEFAULT_UID
    """The ID of the image's user."""
    has_compilers: bool = False
    """Whether headers are kept and a C++ compiler is installed."""
    app: AppFiles = field(default_factory=AppFiles)
    """The user's own code, in APP_FOLDER."""
    entrypoint: tuple[str, ...] = ()
    """The words of the ENTRYPOINT. Empty for an image without one, which starts Python."""


@dataclass(frozen=True, slots=True)
class BuildContext:
    """A Dockerfile with its build context."""

    dockerfile: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    """The content of each file except the Dockerfile, by file name."""
    executables: frozenset[str] = frozenset()
    """The names of the files that are executable."""
    epoch: int = 0
    """The time stamp of all files in the image: the day of the TensorFlow release, in seconds since 1970."""


def validate_reference(text: str) -> str:
    """Return an image name unchanged. Raise UsageError if it does not follow the grammar of registries."""
    if len(text) > 512 or not _IMAGE_REFERENCE.fullmatch(text):
        msg = f"`{text}` is not the name of an image."
        raise UsageError(msg, hint="NAME, NAME:TAG, HOST:PORT/NAME:TAG or NAME@sha256:DIGEST, in lower case.")
    return text


def validate_index(text: str) -> str:
    """Return the URL of a package index unchanged.

    Raise UsageError if it is invalid, or if it has a password, which every user of the host could read.
    """
    try:
        parts = urlsplit(text)
        has_password = parts.password is not None
        _ = parts.port  # raises ValueError if it is not a number
        if parts.netloc.startswith("["):
            ipaddress.IPv6Address(parts.hostname or "")  # urlsplit of Python 3.10 does not check it
    except ValueError as error:
        visible = text.rpartition("@")[2]  # the part before the @ may be a password
        msg = f"`{visible}` is not the address of a package index."
        raise UsageError(msg, hint="Expected an address such as https://HOST/simple/.") from error
    if has_password:
        raise UsageError(
            "--index: a password in an address can be read by everybody on this machine.",
            hint="Put it in ~/.netrc or the keyring, and give the address without it: https://USER@HOST/simple/.",
        )
    if not _INDEX_URL.fullmatch(text):
        msg = f"`{text.rpartition('@')[2]}` is not the address of a package index."
        raise UsageError(msg, hint="Expected an address such as https://HOST/simple/.")
    return text


def render_dockerfile(
    option: Option,
    extras: UserAdditions,
    *,
    lock: Lock | None,
    tools: Lock | None = None,
    leftovers: Iterable[Leftover] = (),
) -> BuildContext:
    """Return the Dockerfile of a container option with its build context.

    `lock` contains the packages of the release, and `tools` contains pip itself. Files that match `leftovers` are removed
    from the image. Raise UsageError if an image name or the index is invalid, and ValueError if the option has no image.
    """
    if option.base is None:
        msg = f"the {option.recipe.value} recipe has no image"
        raise ValueError(msg)
    files = _make_files(option, extras, lock, tools)
    values = _make_template_values(option, extras, files, tuple(leftovers))
    text = _load_templates().get_template(f"{option.recipe.value}.Dockerfile.j2").render(d=values)
    text = re.sub(r"[ \t]+\n", "\n", text)
    text = re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"
    return BuildContext(text, files, extras.app.executables, _compute_release_epoch(option))


@lru_cache(maxsize=1)
def _load_templates() -> Environment:
    """Return the Jinja environment. An undefined variable in a template is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(data_dir("dockerfiles")),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - the output is a Dockerfile, not HTML, and its values are checked
        keep_trailing_newline=True,
    )


# ---------------------------------------------------------------- context files


def _make_files(
    option: Option, extras: UserAdditions, lock: Lock | None, tools: Lock | None
) -> dict[str, bytes]:
    """Return the content of each context file, by file name."""
    files: dict[str, str] = {}
    locked_packages = lock.packages if lock is not None and option.recipe is not Recipe.NGC else ()
    tensorflow_pins = [
        _format_pin(package) for package in locked_packages if package.name == option.release.package
    ]
    other_pins = [
        _format_pin(package) for package in locked_packages if package.name != option.release.package
    ]
    cuda_pins = [f"{wheel.pin} --hash=sha256:{wheel.sha256}" for wheel in option.wheels_to_install]
    if tools is not None and locked_packages and has_venv(option):
        files[TOOLS_FILE] = _join_lines(_format_pin(package) for package in tools.packages)
    if option.recipe is Recipe.OFFICIAL:
        files["release.txt"], files["tensorflow.txt"] = _join_lines(tensorflow_pins), _join_lines(other_pins)
    elif locked_packages:
        files["tensorflow.txt"] = _join_lines([*tensorflow_pins, *other_pins])
    if cuda_pins:
        files["cuda.txt"] = _join_lines(cuda_pins)
    if extras.requirements:
        pins = [line.split(" ", 1)[0] for line in (*tensorflow_pins, *other_pins, *cuda_pins)]
        if pins:  # NVIDIA's own images have no pins here, because they set PIP_CONSTRAINT
            files["constraints.txt"] = _join_lines(pins)
        files["requirements.txt"] = _join_lines(extras.requirements)
    contents = {name: text.encode() for name, text in files.items()}
    if has_venv(option):
        contents["strip.py"] = _load_payload("strip.py")
    for name in ("settle.sh", *(["download.sh"] if extras.caches_downloads else [])):
        contents[name] = (data_dir("dockerfiles") / name).read_bytes()
    if extras.ca_certificate is not None:
        contents["ca.crt"] = extras.ca_certificate
    lock_lines = [line for name in (TOOLS_FILE, *LOCK_FILES) for line in files.get(name, "").splitlines()]
    contents[SBOM_FILE] = format_sbom(
        option, lock_lines, _compute_release_epoch(option), extras.requirements
    ).encode()
    return contents | dict(extras.app.contents)


def has_venv(option: Option) -> bool:
    """Return whether TensorFlow is in a virtual environment (`VENV_FOLDER`), not in the image's Python."""
    return option.recipe.needs_venv


def get_python_command(option: Option) -> str:
    """Return the command that starts the Python with TensorFlow in a container of the image."""
    if has_venv(option):
        return f"{VENV_FOLDER}/bin/python"
    return (option.base.python_command if option.base is not None else None) or f"python{option.python}"


def _compute_release_epoch(option: Option) -> int:
    """Return the day of the TensorFlow release, in seconds since 1970."""
    day = dt.date.fromisoformat(option.release.release_date)
    return int(dt.datetime.combine(day, dt.time(), dt.timezone.utc).timestamp())


def _load_payload(name: str) -> bytes:
    return (resources.files("tfdoctor.payload") / name).read_bytes()


def _format_pin(package: LockedPackage) -> str:
    return f"{package.name}=={package.version} " + " ".join(
        f"--hash=sha256:{digest}" for digest in package.hashes
    )


def _join_lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


# ---------------------------------------------------------------- template values


def _make_template_values(
    option: Option, extras: UserAdditions, files: Mapping[str, bytes], leftovers: tuple[Leftover, ...]
) -> dict[str, object]:
    """Return the values that the template prints, by name."""
    base = option.base
    assert base is not None  # noqa: S101 - render_dockerfile has checked it
    is_in_venv = has_venv(option)
    site_folder = f"{VENV_FOLDER}/lib/python{option.python}/site-packages"
    base_python = base.python_command or f"python{option.python}"
    library_folders = _list_library_folders(option, site_folder)
    nvcc_folder = next(
        (f"{site_folder}/nvidia/cuda_nvcc" for wheel in option.wheels_to_install if "nvcc" in wheel.name),
        None,
    )
    matching_leftovers = [
        leftover
        for leftover in leftovers
        if not extras.has_compilers
        and versions.satisfies(option.release.version, leftover.tensorflow)
        # packages that the user adds may open the other libraries, or compile against the headers
        and not (extras.requirements and re.search(r"/include$|\.so\.", leftover.pattern))
    ]
    return {
        "tool": __version__,
        "tensorflow": option.tensorflow,
        "python": option.python,
        "cuda": option.cuda,
        "cudnn": option.cudnn,
        "recipe": option.recipe.value,
        "base": validate_reference(base.reference),
        "index": validate_index(extras.index_url)
        if extras.index_url is not None and not extras.index_needs_login
        else None,
        "pip_config": PIP_CONFIG_PATH if extras.index_needs_login else None,
        "mounts": _format_mounts(extras),
        "downloads": DOWNLOADS_FOLDER if extras.caches_downloads else None,
        "cache_option": f"--cache-dir {DOWNLOADS_FOLDER}/pip"
        if extras.caches_downloads and _has_caching_pip(files)
        else "--no-cache-dir",
        "ca": "ca.crt" in files,
        "install": base.python_packages,
        "stale_lists": STALE_APT_LISTS if _has_nvidia_apt_lists(option) else (),
        "logs": BUILD_LOGS,
        "epoch": _compute_release_epoch(option),
        "first_epoch": SHARED_EPOCH
        if option.recipe in (Recipe.PIP_CUDA, Recipe.CONDA_CUDA)
        else _compute_release_epoch(option),
        "share": SHARE_FOLDER,
        "home": HOME_FOLDER,
        "cache": CUDA_CACHE_FOLDER,
        "interpreter": base_python,
        "venv": VENV_FOLDER,
        "site": site_folder,
        "pip": f"{VENV_FOLDER}/bin/pip" if is_in_venv else f"{base_python} -m pip",
        "python_command": get_python_command(option),
        "owned": is_in_venv and extras.uid != 0,
        "prune_cuda": _list_patterns(matching_leftovers, "cuda", site_folder) if option.cuda_set else [],
        "prune_tensorflow": _list_patterns(matching_leftovers, "tensorflow", site_folder),
        "library_folders": library_folders,
        "cuda_home": nvcc_folder,
        "constraints": "constraints.txt" in files,
        "requirements": "requirements.txt" in files,
        "uid": extras.uid,
        "environment": _list_variables(option),
        "sbom": SBOM_FILE,
        "labels": _list_labels(option),
        "compilers": extras.has_compilers,
        "app": f"{APP_CONTEXT_FOLDER}/" if extras.app.contents else None,
        "app_folder": APP_FOLDER,
        "entrypoint": json.dumps(extras.entrypoint) if extras.entrypoint else None,
        "command": "python" if is_in_venv else base_python,
        "conda": _make_conda_values(option),
    }


def _has_caching_pip(files: Mapping[str, bytes]) -> bool:
    """Return whether the pip that installs the user's requirements is locked and can cache large wheels."""
    match = re.search(r"^pip==(\S+)", files.get(TOOLS_FILE, b"").decode(), re.MULTILINE)
    return match is not None and versions.satisfies(match[1], f">={FIRST_CACHING_PIP}")


def _format_mounts(extras: UserAdditions) -> str:
    """Return the BuildKit mounts of a step in which pip downloads, each with a space after it."""
    mounts = []
    if extras.caches_downloads:
        mounts.append(f"--mount=type=cache,target={DOWNLOADS_FOLDER},sharing=locked ")
    if extras.index_needs_login:  # required: without the login, pip would ask the public index
        mounts.append(f"--mount=type=secret,id={PIP_CONFIG_SECRET},required=true ")
    return "".join(mounts)


def _make_conda_values(option: Option) -> dict[str, object] | None:
    """Return the values for the conda step, or None without conda. Raise ValueError for an invalid name."""
    conda = option.conda_cuda
    if conda is None:
        return None
    for text in (conda.channel, *conda.packages):
        if not _CONDA_SPEC.fullmatch(text):
            msg = f"`{text}` is no package of conda"
            raise ValueError(msg)
    return {"image": validate_reference(conda.image), "channel": conda.channel, "packages": conda.packages}


def _list_patterns(leftovers: Iterable[Leftover], part: str, site_folder: str) -> list[str]:
    return sorted(f"{site_folder}/{leftover.pattern}" for leftover in leftovers if leftover.part == part)


def _has_nvidia_apt_lists(option: Option) -> bool:
    return option.recipe in (Recipe.OFFICIAL, Recipe.CUDA_BASE)


def _list_library_folders(option: Option, site_folder: str) -> list[str]:
    """Return the folders of NVIDIA's wheels that contain libraries."""
    return (
        [f"{site_folder}/{folder}" for folder in option.cuda_set.folders]
        if option.cuda_set is not None
        else []
    )


def _list_variables(option: Option) -> list[tuple[str, str]]:
    """Return the image's environment variables."""
    path = f"{VENV_FOLDER}/bin:$PATH" if has_venv(option) else f"{HOME_FOLDER}/.local/bin:$PATH"
    variables = [
        ("PATH", path),
        ("HOME", HOME_FOLDER),
        ("CUDA_CACHE_PATH", CUDA_CACHE_FOLDER),
        ("CUDA_CACHE_MAXSIZE", str(CUDA_CACHE_BYTES)),
        ("NVIDIA_VISIBLE_DEVICES", "all"),
        ("NVIDIA_DRIVER_CAPABILITIES", "compute,utility"),
    ]
    major = versions.major(option.cuda)
    if option.recipe is Recipe.PIP_CUDA or (major >= 11 and option.recipe is not Recipe.NGC):
        # With minor-version compatibility, CUDA 12.x runs on every driver for CUDA 12. The base image demands a newer one.
        variables.append(("NVIDIA_REQUIRE_CUDA", f'"cuda>={major}.0"'))
    return variables


def _list_labels(option: Option) -> list[tuple[str, str]]:
    """Return the image's labels, with quoted values."""
    base = option.base
    plan = {
        "tensorflow": option.tensorflow,
        "python": option.python,
        "cuda": option.cuda,
        "cudnn": option.cudnn,
        "recipe": option.recipe.value,
    }
    cudnn_note = f", cuDNN {option.cudnn}" if option.cudnn else ""
    value_by_label = {
        "org.opencontainers.image.title": f"TensorFlow {option.tensorflow} for NVIDIA GPUs",
        "org.opencontainers.image.description": f"Python {option.python}, CUDA {option.cuda}{cudnn_note}",
        "org.opencontainers.image.version": option.tensorflow,
        # as BuildKit does with SOURCE_DATE_EPOCH: two builds give the same image
        "org.opencontainers.image.created": f"{option.release.release_date}T00:00:00Z",
        **_list_source_labels(option),
        "org.opencontainers.image.base.name": base.image.partition("@")[0] if base is not None else "",
        "org.opencontainers.image.base.digest": _get_base_digest(base),
        "io.tfdoctor.plan": json.dumps(plan, sort_keys=True),
        "io.tfdoctor.version": __version__,
    }
    return [(name, _quote_label(value)) for name, value in value_by_label.items() if value]


def _list_source_labels(option: Option) -> dict[str, str]:
    """Return the labels with TensorFlow's source code. NVIDIA's images have another one."""
    if option.recipe is Recipe.NGC:
        return {}
    return {
        "org.opencontainers.image.source": "https://github.com/tensorflow/tensorflow",
        "org.opencontainers.image.revision": f"v{option.tensorflow}",
    }


def _get_base_digest(base: BaseImage | None) -> str:
    return base.reference.partition("@")[2] if base is not None else ""


def _quote_label(value: str) -> str:
    """Return a value quoted for a LABEL instruction."""
    text = value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    return f'"{text}"'
