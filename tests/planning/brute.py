"""Everything that works on a machine, found by trying all combinations of the tables.

It shares no code with fit, plan or compat: it reads the files of compat/ itself, and states their rules once more in
the simplest form.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).resolve().parents[2] / "compat"
RECIPES = ("venv", "pip-cuda", "cuda-base", "official", "conda-cuda", "ngc")
CONTAINERS = RECIPES[1:]
DRIVERS = ("windows", "linux")
Numbers = tuple[int, ...]


@cache
def load_table(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / name).read_text(encoding="utf-8"))


@cache
def list_locks() -> frozenset[str]:
    return frozenset(path.stem for path in (FOLDER / "locks").iterdir())


@cache
def numbers(text: str) -> Numbers:
    return tuple(int(part) for part in text.split("."))


def is_driver_at_least(driver: str, minimum: str) -> bool:
    """Return whether a driver is this minimum or newer; a partial version (450) means the newest of its branch."""
    return numbers(driver)[: len(numbers(minimum))] >= numbers(minimum)[: len(numbers(driver))]


@dataclass(frozen=True)
class BruteMachine:
    cards: tuple[str, ...] = ()
    driver: str | None = None
    arm: bool = False
    windows: bool = False
    """Whether the machine is WSL, where the Windows driver counts."""


@dataclass(frozen=True)
class Installation:
    """One installation that works."""

    recipe: str
    version: str
    python: str
    serious: int
    cuda: str

    @property
    def order(self) -> tuple[int, Version]:
        """The sort key; higher is better."""
        return -self.serious, Version(self.version)


@cache
def list_releases() -> tuple[dict[str, Any], ...]:
    raw = json.loads((FOLDER / "tensorflow.json").read_text(encoding="utf-8"))
    keys = ("linux_pythons", "required_libraries", "cubin", "ptx", "ptx_arch_specific")
    releases = []
    for release in raw["releases"]:
        shared = {
            key: raw["shared"][release[key]] if isinstance(release.get(key), int) else release.get(key, [])
            for key in keys
        }
        releases.append({**release, **shared})
    return tuple(release for release in releases if release["gpu"])


# ---------------------------------------------------------------- cards


def classify_code(release: dict[str, Any], card: str) -> str:
    """Return how a release runs on a card: as "machine" code, from "ptx", "none" or "unknown"."""
    floor = release.get("registration_floor")
    if floor is None:
        floor = (
            min(release["cubin"], key=numbers)
            if release["linkage"] == "needed" and release["cubin"]
            else "3.5"
        )
    if numbers(card) < numbers(floor):
        return "none"
    if not release["cubin"] and not release["ptx"]:
        return "unknown"
    capability = numbers(card)
    if any(
        numbers(built)[0] == capability[0] and numbers(built)[1] <= capability[1]
        for built in release["cubin"]
    ):
        return "machine"
    if any(numbers(built) <= capability for built in release["ptx"]):
        return "none" if release["ptx_arch_specific"] else "ptx"
    return "none"


@cache
def load_kernel_counts() -> dict[str, dict[str, int]]:
    raw = json.loads((FOLDER / "fat_binaries.json").read_text(encoding="utf-8"))
    return {release["version"]: release["counts"] for release in raw["releases"]}


def find_kernel_counts(release: dict[str, Any]) -> dict[str, int] | None:
    """Return the fat binaries of a release, else those of a patch release with the same code, else None."""
    if release["version"] in load_kernel_counts():
        return load_kernel_counts()[release["version"]]
    compared = ("cubin", "ptx", "ptx_arch_specific", "cuda")
    for patch in list_releases():
        if (
            patch["version"] in load_kernel_counts()
            and patch["version"].split(".")[:2] == release["version"].split(".")[:2]
            and all(patch.get(key) == release.get(key) for key in compared)
        ):
            return load_kernel_counts()[patch["version"]]
    return None


def find_ptx_cuda(release: dict[str, Any], card: str) -> str | None:
    """Return the oldest CUDA whose driver compiles the newest PTX that this card needs; None if it needs none."""
    counts = find_kernel_counts(release)
    if counts is None:
        return release.get("cuda") if classify_code(release, card) == "ptx" else None
    capability, versions = numbers(card), []
    for kinds in counts:
        cubins, ptx_texts = (half.split(",") if half else [] for half in kinds.split("|"))
        if not cubins or any(
            item[:-1] == str(capability[0]) and int(item[-1]) <= capability[1] for item in cubins
        ):
            continue
        usable = []
        for text in ptx_texts:
            name, _, isa = text.partition(":")
            digits = name.rstrip("af")
            target = (int(digits[:-1]), int(digits[-1]))
            if (target == capability if name.endswith("a") else target <= capability) and isa:
                usable.append((target, numbers(isa)))
        if usable:
            versions.append(max(usable)[1])
    if not versions:
        return None
    sufficient = [
        item["version"]
        for item in load_table("cuda.toml")["series"]
        if numbers(item.get("ptx_isa", "0")) >= max(versions)
    ]
    return min(sufficient, key=numbers)


def count_warnings(release: dict[str, Any], card: str) -> int:
    """Return how many known problems warn about this release on a card that compiles PTX."""
    count = 0
    for problem in load_table("problems.toml")["problem"]:
        condition = problem.get("when", {})
        if problem["area"] != "gpu" or set(condition) - {"capability"} or problem["severity"] != "warning":
            continue
        if release["package"] not in problem["package"]:
            continue
        if not SpecifierSet(problem["versions"]).contains(release["version"], prereleases=True):
            continue
        count += Version(card) in SpecifierSet(condition.get("capability", ""))
    return count


def do_libraries_support_card(cuda: str, card: str) -> bool:
    series = [
        item for item in load_table("cuda.toml")["series"] if numbers(item["version"]) == numbers(cuda)[:2]
    ]
    if not series or not series[0]["capabilities"]:
        return True
    capabilities = [numbers(item) for item in series[0]["capabilities"]]
    return numbers(card) >= min(capabilities) and numbers(card)[0] <= max(capabilities)[0]


def does_cudnn_support_card(cudnn: str | None, card: str) -> bool:
    if cudnn is None:
        return True
    ranges = load_table("cudnn.toml")["range"]
    matches = [
        cudnn_range
        for cudnn_range in ranges
        if numbers(cudnn) >= numbers(cudnn_range["first"])[: len(numbers(cudnn))]
        and numbers(cudnn) < numbers(cudnn_range["below"])
    ]
    if not matches:
        return True
    cudnn_range = matches[0]
    if numbers(card) < numbers(cudnn_range["lowest"]):
        older = [item for item in ranges if numbers(item["below"]) <= numbers(cudnn_range["first"])]
        return not any(numbers(item["lowest"]) <= numbers(card) for item in older)
    if numbers(card)[0] <= numbers(cudnn_range["highest"])[0]:
        return True
    return "ptx" in cudnn_range


# ---------------------------------------------------------------- drivers


def find_toolkit_driver(cuda: str, system: str) -> str | None:
    """Return the driver that came with this CUDA on a system; None if the table has none."""
    releases = [
        item
        for item in load_table("cuda.toml")["release"]
        if numbers(item["version"])[:2] == numbers(cuda)[:2]
    ]
    if not releases:
        return None
    not_newer = [item for item in releases if numbers(item["version"]) <= numbers(cuda)]
    return (not_newer[-1] if not_newer else releases[0]).get(system)


def find_minimum_driver(cuda: str, system: str) -> str | None:
    """Return the oldest driver that runs this CUDA on a system; None if unknown."""
    family = next(item for item in load_table("cuda.toml")["family"] if item["major"] == numbers(cuda)[0])
    toolkit_driver = find_toolkit_driver(cuda, system)
    if not family["minor_version_compatibility"]:
        return toolkit_driver
    floor = family.get(system)
    if toolkit_driver is not None and floor is not None and numbers(toolkit_driver) < numbers(floor):
        return toolkit_driver
    return floor


def find_end_of_support(card: str) -> dict[str, Any] | None:
    """Return the table entry of the last driver branch for a card; None if current drivers support it."""
    return next(
        (item for item in load_table("cards.toml")["ended"] if numbers(card) < numbers(item["below"])), None
    )


def does_driver_support_cards(machine: BruteMachine) -> bool:
    """Return whether the machine's driver supports its cards: it is neither too new nor too old for them."""
    newest_cuda = None
    if machine.driver is not None:
        column = "windows" if machine.windows else "linux"
        is_branch = "." not in machine.driver
        cudas = [
            numbers(item["version"])[:2]
            for item in load_table("cuda.toml")["release"]
            if column in item
            and (
                numbers(item[column])[0] <= numbers(machine.driver)[0]
                if is_branch
                else numbers(item[column]) <= numbers(machine.driver)
            )
        ]
        newest_cuda = max(cudas, default=None)
    later_series = [
        item
        for item in load_table("cuda.toml")["series"]
        if newest_cuda is not None and numbers(item["version"]) >= newest_cuda
    ]
    for card in machine.cards:
        if later_series and numbers(card) > max(map(numbers, later_series[0]["capabilities"])):
            return False
        ended = find_end_of_support(card)
        if (
            machine.driver is not None
            and ended is not None
            and numbers(machine.driver)[0] >= numbers(ended["first_without"])[0]
        ):
            return False
    return True


def count_caveats(
    release: dict[str, Any] | None, cuda: str, cudnn: str | None, machine: BruteMachine
) -> int | None:
    """Return how many serious caveats this combination has on a machine; None if it does not run.

    `release` is None for NVIDIA's own build.
    """
    serious, system = 0, "windows" if machine.windows else "linux"
    if not does_driver_support_cards(machine):
        return None
    for card in dict.fromkeys(machine.cards):
        if not do_libraries_support_card(cuda, card) or not does_cudnn_support_card(cudnn, card):
            return None
        ended = find_end_of_support(card)
        minimum = find_minimum_driver(cuda, "linux")
        if ended is not None and minimum is not None and numbers(minimum)[0] > numbers(ended["last"])[0]:
            return None
        if release is None:
            continue
        code = classify_code(release, card)
        if code == "none":
            return None
        if code == "ptx":
            serious += 1 + count_warnings(release, card)
        compiler = find_ptx_cuda(release, card)
        toolkit_driver = find_toolkit_driver(compiler, system) if compiler is not None else None
        if (
            machine.driver is not None
            and toolkit_driver is not None
            and not is_driver_at_least(machine.driver, toolkit_driver)
        ):
            return None
    minimum = find_minimum_driver(cuda, system)
    if (
        release is not None
        and machine.driver is not None
        and minimum is not None
        and not is_driver_at_least(machine.driver, minimum)
    ):
        return None
    return serious


# ---------------------------------------------------------------- recipes


def has_lock(release: dict[str, Any], python: str) -> bool:
    return f"{release['package']}-{release['version']}-cp{python.replace('.', '')}" in list_locks()


def find_wheel_set(release: dict[str, Any]) -> dict[str, Any] | None:
    """Return the set of CUDA wheels for a release; None if there is none."""
    for item in load_table("cuda_wheels.toml")["set"]:
        if SpecifierSet(item["tensorflow"]).contains(release["version"], prereleases=True):
            wheel_set: dict[str, Any] = item
            return wheel_set
    return None


def format_soname(stem: str, cuda: str) -> str | None:
    family = next(item for item in load_table("libraries.toml")["library"] if item["stem"] == stem)["sonames"]
    minor = ".".join(cuda.split(".")[:2])
    ending = family.get(minor, family.get(cuda.split(".", maxsplit=1)[0]))
    return None if ending is None else f"lib{stem}.so.{ending.replace('x', minor.split('.')[1])}"


def list_system_pythons(system: str) -> tuple[list[str], Numbers]:
    """Return the Python versions of a system, and its glibc version."""
    entry = next(python for python in load_table("pythons.toml")["system"] if python["name"] == system)
    return [
        python for python in (entry["default"], *entry["others"]) if python not in entry.get("prerelease", ())
    ], numbers(entry["glibc"])


def find_cuda_images(release: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (CUDA, cuDNN, system) of the runtime images that have all required libraries."""
    if not release.get("cuda") or not release.get("cudnn"):
        return
    matches = [re.fullmatch(r"lib(\w+)\.so\.(.+)", name) for name in release["required_libraries"]]
    stems = {match[1]: match[0] for match in matches if match is not None}
    cudnn = next((name for stem, name in stems.items() if stem == "cudnn"), None)
    if cudnn is None:
        return
    for image in load_table("images.toml")["cuda"]:
        if (
            "runtime" not in image.get("cudnn_flavours", ())
            or numbers(image["version"])[0] != numbers(release["cuda"])[0]
        ):
            continue
        for system in image["cudnn_systems"]:
            image_cudnn = image.get("cudnn", {}).get(system)
            if image_cudnn is None or image_cudnn.split(".")[0] != cudnn.rpartition(".")[2]:
                continue
            if numbers(image_cudnn) < numbers(release["cudnn"]):
                continue
            if all(
                format_soname(stem, image["version"]) == name
                for stem, name in stems.items()
                if stem != "cudnn"
            ):
                yield image["version"], image_cudnn, system


def has_conda_cuda(release: dict[str, Any]) -> bool:
    """Return whether conda-forge has the CUDA of a release for which no wheels exist."""
    if find_wheel_set(release) is not None or not release.get("cuda") or numbers(release["cuda"]) < (10,):
        return False
    return find_conda_cudnn(release) is not None


def find_conda_cudnn(release: dict[str, Any]) -> str | None:
    major = numbers(release["cudnn"])[0] if release.get("cudnn") else None
    for item in load_table("cudnn.toml")["conda"]:
        if numbers(item["cuda"]) == numbers(release["cuda"])[:2] and item.get("built") in (None, major):
            return str(item["cudnn"])
    return None


Stack = tuple[str, str | None, str, int]
"""(CUDA, cuDNN, Python, number of caveats)."""


@cache
def _list_stacks(recipe: str, package: str, version: str) -> tuple[Stack, ...]:
    """Return the stacks that a recipe can provide for a release, on any machine."""
    release = next(
        item for item in list_releases() if (item["package"], item["version"]) == (package, version)
    )
    return tuple(_find_stacks(recipe, release))


def _find_stacks(recipe: str, release: dict[str, Any]) -> Iterator[Stack]:
    pythons = [item for item in release["linux_pythons"] if has_lock(release, item)]
    if recipe in ("pip-cuda", "cuda-base", "conda-cuda"):  # these recipes create a virtual environment
        pythons = [item for item in pythons if item != "2.7"]
    wheels = find_wheel_set(release)
    slim = [item["python"] for item in load_table("images.toml")["python"]]
    if recipe in ("venv", "pip-cuda") and wheels is not None:
        for python in pythons:
            if recipe == "venv" or python in slim:
                yield wheels["cuda"], wheels["cudnn"], python, 0
    if recipe == "cuda-base":
        for cuda, cudnn, system in find_cuda_images(release):
            system_pythons, glibc = list_system_pythons(system)
            for python in pythons:
                if python in system_pythons and (
                    not release.get("glibc") or glibc >= numbers(release["glibc"])
                ):
                    yield cuda, cudnn, python, int(numbers(cuda)[:2] < numbers(release["cuda"])[:2])
    if recipe == "official":
        for image in load_table("images.toml")["official"]:
            if (
                not SpecifierSet(image["versions"]).contains(release["version"], prereleases=True)
                or not image["works"]
            ):
                continue
            is_older = int(
                "cudnn" in image
                and "." in (release.get("cudnn") or "")
                and numbers(image["cudnn"]) < numbers(release["cudnn"])
            )
            for python in pythons:
                if python == image["python"] or (python == "2.7" and len(image["tags"]) > 1):
                    yield image["cuda"], image.get("cudnn"), python, is_older
            break
    if recipe == "conda-cuda" and has_conda_cuda(release):
        for python in pythons:
            if python in slim:
                yield release["cuda"], find_conda_cudnn(release), python, 1


def find_installations(
    machine: BruteMachine, recipe: str, release: dict[str, Any], python: str | None = None
) -> Iterator[Installation]:
    """Yield every installation of a release by one recipe that runs on a machine."""
    if machine.arm:
        return  # no wheel for ARM has GPU code
    caveats = int(bool(release.get("yanked"))) + int(Version(release["version"]).is_prerelease)
    if recipe == "ngc":
        for image in load_table("images.toml")["ngc"]:
            if image.get("tensorflow") != release["version"] or "python" not in image:
                continue
            own_caveats = _fit_ngc(image, machine)
            if own_caveats is not None and python in (None, image["python"]):
                yield Installation(
                    recipe, release["version"], image["python"], own_caveats + caveats, image["cuda"]
                )
        return
    for cuda, cudnn, stack_python, stack_caveats in _list_stacks(
        recipe, release["package"], release["version"]
    ):
        own_caveats = count_caveats(release, cuda, cudnn, machine) if python in (None, stack_python) else None
        if own_caveats is not None:
            yield Installation(
                recipe, release["version"], stack_python, own_caveats + stack_caveats + caveats, cuda
            )


def _fit_ngc(image: dict[str, Any], machine: BruteMachine) -> int | None:
    lowest_known = [item["lowest"] for item in load_table("images.toml")["ngc"] if "lowest" in item]
    lowest = image.get("lowest", min(lowest_known, key=numbers))
    if any(numbers(card) < numbers(lowest) for card in machine.cards):
        return None
    caveats = count_caveats(None, image["cuda"], image.get("cudnn"), machine)
    if (
        caveats is None
        or machine.driver is None
        or "driver" not in image
        or is_driver_at_least(machine.driver, image["driver"])
    ):
        return caveats
    minimum = find_minimum_driver(image["cuda"], "windows" if machine.windows else "linux")
    return caveats + 1 if minimum is not None and is_driver_at_least(machine.driver, minimum) else None


def list_installations(
    machine: BruteMachine, *, tf: str | None = None, python: str | None = None, method: str | None = None
) -> list[Installation]:
    """Return every installation that runs on a machine.

    `tf` is a version prefix or a specifier; None means final releases.
    """
    installations = []
    for release in list_releases():
        if tf is None and (release.get("yanked") or Version(release["version"]).is_prerelease):
            continue
        if tf is not None and not _matches_spec(tf, release["version"]):
            continue
        for recipe in RECIPES if method is None else ("venv",) if method == "pip" else CONTAINERS:
            installations += find_installations(machine, recipe, release, python)
    return installations


def _matches_spec(tf: str, version: str) -> bool:
    if tf[0] in "<>=~!":
        return SpecifierSet(tf).contains(version, prereleases=False)
    if tf.count(".") > 1:
        return version == tf
    return version.startswith(f"{tf}.") and not Version(version).is_prerelease


def find_best(machine: BruteMachine, **filters: str | None) -> Installation | None:
    """Return the installation with the fewest caveats, then with the newest TensorFlow; None if there is none."""
    return max(list_installations(machine, **filters), key=lambda item: item.order, default=None)
