"""Check whether requirements have a solution for a Python that is not installed on this machine.

The check uses uv or pip, and runs before an image is built. Nothing is installed or built from source: only metadata is
read from the package index. If the resolver cannot decide (no network, no installer, a package without wheels), the
result is unknown, not a conflict.
"""

from __future__ import annotations

import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from tfdoctor.core import versions
from tfdoctor.core.text import clean_line
from tfdoctor.environments.installers import (
    InstallFailedError,
    can_run,
    find_uv,
    list_uv_options,
    make_child_environment,
    run_installer,
)
from tfdoctor.environments.resolution import (
    CONSTRAINTS_FILE,
    REPORT_FILE,
    REQUIREMENTS_FILE,
    RESOLVED_FILE,
    ResolutionRequest,
    format_resolver_reason,
    make_resolver_command,
    write_lines,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["PrecheckResult", "describe_unmet_pin", "precheck_requirements"]

_HASH_OPTION = re.compile(r"\s--hash=\S{1,300}")
# Messages of uv and pip about packages without wheels, and about the network. No phrase may be in the name of a package.
_NO_WHEELS = re.compile(r"no (?:usable |compatible )?wheels?\b|from source is disabled|only-binary|no-build")
_NO_NETWORK = re.compile(
    r"(?i)failed to fetch|error sending request|network (?:is|connectivity|request|error|timeout|was)|\bnetwork:|"
    r"\b(?:New)?ConnectionError\b|\bProxyError\b|\bSSLError\b|CERTIFICATE_VERIFY_FAILED|(?:peer|ssl|verify) certificate|"
    r"certificate verify|timed out|TimeoutError|max retries exceeded|name resolution|are you offline|offline mode|dns error|"
    r"connection (?:refused|broken|aborted|reset)"
)
PLATFORMS = tuple(f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 26, 24, 17, 12, 5))
"""The values of pip's `--platform` option. pip accepts only the tags that are listed, not older compatible ones."""


@dataclass(frozen=True, slots=True)
class PrecheckResult:
    """The result of the check. Both fields are empty if the requirements have a solution."""

    conflict_reason: str = ""
    """The resolver's explanation of the conflict."""
    unknown_reason: str = ""
    """The reason why the resolver could not decide."""


def describe_unmet_pin(requirements: Sequence[str], pins: Sequence[str], python: str) -> str:
    """Return a clause about the first requirement that a pinned version does not meet; "" if all are met.

    `requirements` are requirement lines, and `pins` are lines such as `"numpy==1.26.4"`. Markers are evaluated for
    Linux and the Python version `python`, such as `"3.11"`.
    """
    pinned_versions = {}
    for line in pins:
        parsed = versions.parse_requirement_or_none(line)
        exact_versions = (
            [part.version for part in parsed.specifier if part.operator == "=="] if parsed is not None else []
        )
        if parsed is not None and exact_versions and versions.is_version(exact_versions[0]):
            pinned_versions[canonicalize_name(parsed.name)] = exact_versions[0]
    marker_environment = versions.make_marker_environment(python)
    for line in requirements:
        parsed = versions.parse_requirement_or_none(_HASH_OPTION.sub("", line).strip())
        version = pinned_versions.get(canonicalize_name(parsed.name)) if parsed is not None else None
        if (
            parsed is None
            or version is None
            or (parsed.marker is not None and not parsed.marker.evaluate(marker_environment))
        ):
            continue
        if not parsed.specifier.contains(version, prereleases=True):
            return f"{parsed.name}{parsed.specifier} is asked for, and {parsed.name}=={version} is what goes with it"
    return ""


def precheck_requirements(
    requirements: Sequence[str],
    constraints: Sequence[str],
    python: str,
    *,
    env: Mapping[str, str],
    index_url: str | None = None,
    ca_file: str | None = None,
    proxy: str | None = None,
) -> PrecheckResult:
    """Find out with a resolver whether the requirements have a solution on Linux with glibc.

    `requirements` and `constraints` are validated lines. `python` is a version such as `"3.11"`. `index`, `ca_file` and
    `proxy` replace the user's settings if they are not None.
    """
    conflict = describe_unmet_pin(requirements, constraints, python)
    if conflict:
        return PrecheckResult(conflict_reason=conflict)
    uv = find_uv(env)
    # uv resolves for a Python that is not here, and would download it first.
    child_env = {**make_child_environment(env), "UV_PYTHON_DOWNLOADS": "never"}
    if ca_file is not None:
        child_env |= {"SSL_CERT_FILE": ca_file, "PIP_CERT": ca_file}
    if proxy is not None:
        child_env |= {"HTTPS_PROXY": proxy, "HTTP_PROXY": proxy, "https_proxy": proxy, "http_proxy": proxy}
    wheel_options = ("--only-binary", ":all:")
    index_options: tuple[str, ...] = ()
    if index_url is not None:  # not as an option, because every user of the host can read command lines
        child_env |= {"PIP_INDEX_URL": index_url, "UV_DEFAULT_INDEX": index_url}
        for name in ("UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL"):
            child_env.pop(name, None)
    if uv is not None:
        resolver_command: tuple[str, ...] = (uv, "pip")
        python_options: tuple[str, ...] = (
            "--python-version",
            python,
            "--python-platform",
            "linux",
            *wheel_options,
        )
        index_options = (*index_options, *list_uv_options(env))
    elif can_run((sys.executable, "-m", "pip", "--version"), env):
        resolver_command, python_options = (sys.executable, "-m", "pip"), ()
        index_options = (
            *index_options,
            "--python-version",
            python,
            *_list_platform_options(),
            *wheel_options,
        )
    else:
        return PrecheckResult(unknown_reason="there is neither uv nor pip here that could be asked")
    with tempfile.TemporaryDirectory(prefix="tfdoctor-") as name:
        folder = Path(name)
        # pip requires --target to resolve for another platform. A dry run writes nothing to that folder.
        target_options = () if uv is not None else ("--target", str(folder / "apart"))
        request = ResolutionRequest(
            package="",
            recorded_requires=(),
            lock_lines=(),
            cuda_pins=(),
            requirements=tuple(requirements),
            constraints=tuple(constraints),
            resolver_command=resolver_command,
            python_options=python_options,
            index_options=(*index_options, *target_options),
        )
        write_lines(folder / REQUIREMENTS_FILE, requirements)
        write_lines(folder / CONSTRAINTS_FILE, constraints)
        try:
            run_installer(make_resolver_command(request, folder), env=child_env, on_line=None)
            return PrecheckResult(conflict_reason=_find_replaced_wheel(folder, constraints))
        except InstallFailedError as error:
            return _parse_failure(error, uses_uv=uv is not None)
        except OSError as error:
            return PrecheckResult(unknown_reason=clean_line(str(error), limit=200))


def _find_replaced_wheel(folder: Path, constraints: Sequence[str]) -> str:
    """Return a clause about a wheel of another CUDA whose files would replace those of a pinned one; "" if there is none.

    The wheels of cuDNN, NCCL and NVSHMEM for all CUDA versions install into the same folders.
    """
    files = (folder / RESOLVED_FILE, folder / REPORT_FILE)
    resolved = "".join(path.read_text(encoding="utf-8", errors="replace") for path in files if path.exists())
    for line in constraints:
        pin = re.match(r"(nvidia-(?:cudnn|nccl|nvshmem)-cu)(\d+)==", line)
        other = re.search(rf"\b{pin[1]}(?!{pin[2]}\b)\d+\b", resolved) if pin is not None else None
        if pin is not None and other is not None:
            return (
                f"they bring {other[0]}, whose files replace those of {line.partition(' ')[0]} in the same folder, which "
                "TensorFlow opens. Ask for versions that are built for the CUDA of this TensorFlow"
            )
    return ""


def _list_platform_options() -> tuple[str, ...]:
    """Return pip's `--platform` options. manylinux2014 is the older name of manylinux_2_17."""
    return tuple(
        argument for name in (*PLATFORMS, "manylinux2014_x86_64") for argument in ("--platform", name)
    )


def _parse_failure(error: InstallFailedError, *, uses_uv: bool) -> PrecheckResult:
    """Return the result for a resolver that failed: a conflict only if the output shows a conflict."""
    output = "\n".join(error.output)
    if _NO_NETWORK.search(output):
        return PrecheckResult(unknown_reason="the package index was not reached")
    reason = format_resolver_reason(error.output) or error.message
    # pip reports a package without wheels as if it did not exist.
    is_ambiguous = not uses_uv and "conflict" not in output.lower()
    if not error.has_no_solution or is_ambiguous or _NO_WHEELS.search(output):
        return PrecheckResult(unknown_reason=clean_line(reason, limit=300))
    return PrecheckResult(conflict_reason=reason)
