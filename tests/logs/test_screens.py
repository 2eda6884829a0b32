"""Every command on every screen: it can be typed at that place, and what it installs fits the release."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from recorded import FOLDERS, load_facts, load_report
from tfdoctor.compat import Compat
from tfdoctor.core.facts import TENSORFLOW_DISTRIBUTIONS, value_of
from tfdoctor.logs.report import diagnose_log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdoctor.core.causes.steps import Remedy
    from tfdoctor.core.findings import Finding

COMPAT = Compat.load()
LOGS = Path(__file__).parent
CORPORA = [folder / "shared" / "corpus" for folder in LOGS.parents]
"""More logs, on the machines that have them."""
SAMPLES = {
    "protobuf": "3.6.1 3.8.0 3.19.6 3.20.3 4.21.12 4.25.9 5.27.5 5.28.3 5.29.6 6.31.1 6.33.6 7.35.0",
    "numpy": "1.16.6 1.19.5 1.21.6 1.23.5 1.24.3 1.26.4 2.0.2 2.1.3 2.2.6 2.3.5",
    "keras": "2.6.0 2.10.0 2.12.0 2.13.1 2.14.0 2.15.0 3.3.3 3.8.0 3.12.0 3.15.1",
}
"""Versions of packages, of which pip would select the newest that a requirement allows."""
COMPANIONS = {
    *SAMPLES,
    "tf-keras",
    "tensorflow-text",
    "tensorflow-io-gcs-filesystem",
    "tensorflow-metal",
    "grpcio-tools",
    "ipykernel",
    "h5py",
    "tensorboard",
    "six",
    "ml-dtypes",
    "pip",
}
REQUIREMENT_VERBS = re.compile(
    r"(?:pip install|pip uninstall|uv add|poetry add|pixi add --pypi)\s(?P<arguments>.+)|py_install\(c\((?P<r>.+?)\)"
)
PLACE_LINES = (
    "Python 3.10.11 (tags/v3.10.11) [MSC v.1929 64 bit (AMD64)] on win32",
    "Python 3.11.4 [Clang 14.0.6 ] on darwin",
    'File "/kaggle/working/train.py", line 3, in <module>',
    'File "/usr/local/lib/python3.11/dist-packages/google/colab/_shell.py", line 3, in <module>',
    "KUBERNETES_SERVICE_HOST=10.96.0.1",
    "$ docker run --rm --gpus all image python train.py",
)
"""A last line for each problem, as if it had happened at another place."""
WITH_VALUE = {"--python", "-c", "-r", "--index-url", "--extra-index-url", "--target", "--prefix"}
LINUX_ADMINISTRATION = (
    r"\bsudo\b|\bapt(?:-get)?\b|\bdnf\b|\bmodprobe\b|\bsystemctl\b|\bldconfig\b(?! -p)|\bdkms\b"
)
FORBIDDEN = {
    "windows": rf"{LINUX_ADMINISTRATION}|^export |^unset |\bgrep\b|^python3|/proc/|\$\("
    r"|^set |^path$|^where |^tfdoctor (?:check|fix|run|verify|install|build|capture)\b",
    "mac": rf"{LINUX_ADMINISTRATION}|\bnvidia-smi\b",
    "notebook service": rf"{LINUX_ADMINISTRATION}|^docker |^podman |^kubectl ",
    "pod": r"^(?:docker|podman) ",
    "container": r"^sudo (?!.*libcuda1)",
}
"""What nobody can type in a kind of place.

In a container it may be typed if the text says that it is for the host, and on Windows if the text says that it is for WSL.
"""


class Screen(NamedTuple):
    """The remedies for a log or a machine, and what their place is."""

    name: str
    remedies: tuple[Remedy, ...]
    places: frozenset[str]
    version: str | None
    python: str | None
    cuda_major: int | None


def list_log_paths() -> list[Path]:
    paths = [path for path in sorted(LOGS.rglob("*")) if path.suffix in (".log", ".txt")]
    return paths + [
        path
        for corpus in CORPORA
        for name in ("bugs", "logs", "outputs")
        for path in sorted((corpus / name).rglob("*.txt"))
    ]


@cache
def list_screens() -> tuple[Screen, ...]:
    moved = [
        make_log_screen(path, line)
        for path in list_log_paths()
        if path.parent.parent.name == "problems"
        for line in PLACE_LINES
    ]
    return (*map(make_log_screen, list_log_paths()), *moved, *map(make_host_screen, FOLDERS))


def make_log_screen(path: Path, last_line: str = "") -> Screen:
    content = path.read_bytes() + f"\n{last_line}".encode()
    report = diagnose_log([content], COMPAT, str(path))
    text = content.decode("utf-8", "replace")
    places = {
        "windows": bool(re.search(r"\b[A-Z]:\\\w|on win32|64_\d{1,4}\.dll\b|nvcuda\.dll", text))
        and not re.search(r"/mnt/c/|WSL|\.so[.;:]", text),
        "mac": "on darwin" in text or "macosx_" in text,
        "notebook service": bool(re.search(r"google[./]colab|/kaggle/working|/opt/ml/", text)),
        "pod": bool(re.search(r"kubectl logs|KUBERNETES_SERVICE_HOST", text)),
        "container": bool(re.search(r"\bdocker run\b|/\.singularity\.d/", text)),
    }
    pythons = set(re.findall(r"python(3\.\d{1,2})/(?:site|dist)-packages", text))
    findings = (*report.findings, *((report.root_finding,) if report.root_finding is not None else ()))
    return make_screen(
        str(path),
        findings,
        {name for name, holds in places.items() if holds},
        report.tensorflow_version,
        pythons.pop() if len(pythons) == 1 else None,
    )


def make_host_screen(folder: Path) -> Screen:
    facts, report = load_facts(folder), load_report(folder)
    python, tensorflow = value_of(facts.python), value_of(facts.tensorflow)
    kind = facts.machine.container
    return make_screen(
        folder.name,
        report.findings,
        {*(["container"] if kind else []), *(["pod"] if kind == "kubernetes" else [])},
        tensorflow.version if tensorflow is not None else None,
        ".".join(python.version.split(".")[:2]) if python is not None else None,
    )


def make_screen(
    name: str, findings: tuple[Finding, ...], places: set[str], version: str | None, python: str | None
) -> Screen:
    remedies = tuple(dict.fromkeys(remedy for finding in findings for remedy in finding.remedies))
    release = COMPAT.find_release(version) if version is not None else None
    cuda = release.cuda if release is not None else None
    return Screen(
        name, remedies, frozenset(places), version, python, int(cuda.partition(".")[0]) if cuda else None
    )


def list_requirements(command: str) -> Iterator[str]:
    """Yield the requirements that a command installs, with any of the tools."""
    if "uninstall" in command or command.startswith("docker "):
        return
    for match in REQUIREMENT_VERBS.finditer(command):
        words = shlex.split(re.split(r"&&|\|", match["arguments"] or match["r"].replace(",", " "))[0])
        skips = False
        for word in words:
            if not skips and not word.startswith("-"):
                yield word
            skips = word in WITH_VALUE


def test_every_requirement_is_valid_and_fits_the_release() -> None:
    wrong, count = set(), 0
    for screen in list_screens():
        for command in (command for remedy in screen.remedies for command in remedy.commands):
            for text in list_requirements(command):
                count += 1
                wrong |= {(problem, text, screen.name) for problem in list_problems(text, screen, command)}
    assert wrong == set()
    assert count > 100


def list_problems(text: str, screen: Screen, command: str) -> Iterator[str]:
    """Yield what is wrong with a requirement on a screen."""
    if text.endswith(".whl"):
        return
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        yield "invalid"
        return
    name = requirement.name.lower()
    if name in TENSORFLOW_DISTRIBUTIONS:
        yield from list_tensorflow_problems(requirement, screen, command)
    elif name.startswith("nvidia-"):
        if name not in list_nvidia_projects():
            yield "no such project"
        if screen.cuda_major is not None and not re.search(r"tensorflow", command):
            suffix = re.search(r"-cu(\d\d)$", name)
            if suffix is not None and int(suffix[1]) != screen.cuda_major:
                yield f"CUDA {screen.cuda_major} is needed"
        if "windows" in screen.places or "mac" in screen.places:
            yield "no wheels for this system"
    elif name not in COMPANIONS:
        yield "unknown project"
    elif name in SAMPLES and screen.version is not None and "tensorflow" not in command:
        yield from list_companion_problems(requirement, screen.version)


def list_tensorflow_problems(requirement: Requirement, screen: Screen, command: str) -> Iterator[str]:
    pins = [str(specifier.version) for specifier in requirement.specifier if specifier.operator == "=="]
    releases = [
        release
        for release in COMPAT.releases
        if release.package == requirement.name and (not pins or release.version == pins[0])
    ]
    if pins and "*" not in pins[0] and not releases:
        yield "no such release"
    elif (
        pins
        and requirement.extras
        and not any(release.pip_extra in requirement.extras for release in releases)
    ):
        yield "no such extra"
    elif pins and screen.python and re.match(r"(?!tf-env)\S*python3? ", command) and releases:
        pythons = {
            python for release in releases for python in (*release.pythons(), *release.windows_pythons)
        }
        if screen.python not in pythons:
            yield f"no wheel for Python {screen.python}"


def list_companion_problems(requirement: Requirement, version: str) -> Iterator[str]:
    """Yield whether the version that pip would select breaks this TensorFlow or is against its requirements."""
    name = requirement.name.lower()
    allowed = [text for text in SAMPLES[name].split() if requirement.specifier.contains(text)]
    if not allowed:
        yield "no version is allowed"
        return
    newest = max(allowed, key=Version)
    companions = COMPAT.find_incompatible_packages(version, {name: newest}, {})
    if any(companion.package == name for companion in companions):
        yield f"{newest} breaks TensorFlow {version}"
    release = COMPAT.find_release(version)
    for text in release.requirements if release is not None else ():
        wanted = Requirement(text)
        if (
            wanted.name == name
            and (wanted.marker is None or wanted.marker.evaluate())
            and not wanted.specifier.contains(newest)
        ):
            yield f"TensorFlow {version} wants {text}"


@cache
def list_nvidia_projects() -> frozenset[str]:
    projects = set()
    for folder in ("libraries.toml", "cuda_wheels.toml"):
        projects |= set(
            re.findall(r"\bnvidia-[a-z-]+?(?:-cu\d\d)?(?=[\s\"=])", (COMPAT.folder / folder).read_text())
        )
    return frozenset(projects)


@pytest.mark.parametrize("place", FORBIDDEN)
def test_every_command_can_be_typed_at_its_place(place: str) -> None:
    pattern = re.compile(FORBIDDEN[place])
    wrong = {
        (command, remedy.text, screen.name)
        for screen in list_screens()
        if place in screen.places
        for remedy in screen.remedies
        for command in remedy.commands
        if pattern.search(command)
        and not (place == "container" and re.search(r"\b(?:host|node)\b", remedy.text, re.I))
        and not (place == "windows" and "WSL" in remedy.text)
    }
    assert wrong == set()


def test_windows_is_never_left_without_a_remedy() -> None:
    """Commands that Windows lacks are left out, and something remains."""
    for path in list_log_paths():
        for content in (path.read_bytes(), path.read_bytes() + f"\n{PLACE_LINES[0]}".encode()):
            root = diagnose_log([content], COMPAT, str(path)).root_finding
            assert root is None or root.remedies, path
