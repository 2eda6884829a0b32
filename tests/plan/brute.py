"""What works on a machine, by trying everything in the tables. Shares no code with fit and plan, nor with compat.

The files of compat/ are read as they lie there; the rules are written down once more, as plainly as they go.
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
def table(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / name).read_text(encoding="utf-8"))


@cache
def locks() -> frozenset[str]:
    return frozenset(path.stem for path in (FOLDER / "locks").iterdir())


@cache
def nums(text: str) -> Numbers:
    return tuple(int(one) for one in text.split("."))


def reaches(driver: str, least: str) -> bool:
    """A driver given in part (450) stands for the newest that begins so."""
    return nums(driver)[: len(nums(least))] >= nums(least)[: len(nums(driver))]


@dataclass(frozen=True)
class Machine:
    cards: tuple[str, ...] = ()
    driver: str | None = None
    arm: bool = False
    windows: bool = False
    """Below WSL."""


@dataclass(frozen=True)
class Way:
    """One thing that works."""

    recipe: str
    version: str
    python: str
    serious: int
    cuda: str

    @property
    def order(self) -> tuple[int, Version]:
        """Higher is better."""
        return -self.serious, Version(self.version)


@cache
def releases() -> tuple[dict[str, Any], ...]:
    raw = json.loads((FOLDER / "tensorflow.json").read_text(encoding="utf-8"))
    keys = ("linux_pythons", "required_libraries", "cubin", "ptx", "ptx_arch_specific")
    rows = []
    for row in raw["releases"]:
        spread = {
            key: raw["shared"][row[key]] if isinstance(row.get(key), int) else row.get(key, [])
            for key in keys
        }
        rows.append({**row, **spread})
    return tuple(row for row in rows if row["gpu"])


# ---------------------------------------------------------------- cards


def code(row: dict[str, Any], card: str) -> str:
    floor = row.get("registration_floor")
    if floor is None:
        floor = min(row["cubin"], key=nums) if row["linkage"] == "needed" and row["cubin"] else "3.5"
    if nums(card) < nums(floor):
        return "none"
    if not row["cubin"] and not row["ptx"]:
        return "unknown"
    wanted = nums(card)
    if any(nums(one)[0] == wanted[0] and nums(one)[1] <= wanted[1] for one in row["cubin"]):
        return "machine"
    if any(nums(one) <= wanted for one in row["ptx"]):
        return "none" if row["ptx_arch_specific"] else "ptx"
    return "none"


@cache
def kernels() -> dict[str, dict[str, int]]:
    raw = json.loads((FOLDER / "fat_binaries.json").read_text(encoding="utf-8"))
    return {one["version"]: one["counts"] for one in raw["releases"]}


def read_wheel(row: dict[str, Any]) -> dict[str, int] | None:
    """The fat binaries of this release, or of a patch of it that is alike."""
    if row["version"] in kernels():
        return kernels()[row["version"]]
    alike = ("cubin", "ptx", "ptx_arch_specific", "cuda")
    for one in releases():
        if (
            one["version"] in kernels()
            and one["version"].split(".")[:2] == row["version"].split(".")[:2]
            and all(one.get(key) == row.get(key) for key in alike)
        ):
            return kernels()[one["version"]]
    return None


def cuda_of_the_compiler(row: dict[str, Any], card: str) -> str | None:
    """The CUDA of a driver that takes the newest PTX that this card has to have compiled."""
    counts = read_wheel(row)
    if counts is None:
        return row.get("cuda") if code(row, card) == "ptx" else None
    wanted, versions = nums(card), []
    for kinds in counts:
        cubins, texts = (half.split(",") if half else [] for half in kinds.split("|"))
        if not cubins or any(one[:-1] == str(wanted[0]) and int(one[-1]) <= wanted[1] for one in cubins):
            continue
        taken = []
        for text in texts:
            name, _, isa = text.partition(":")
            digits = name.rstrip("af")
            have = (int(digits[:-1]), int(digits[-1]))
            if (have == wanted if name.endswith("a") else have <= wanted) and isa:
                taken.append((have, nums(isa)))
        if taken:
            versions.append(max(taken)[1])
    if not versions:
        return None
    knowing = [
        one["version"]
        for one in table("cuda.toml")["series"]
        if nums(one.get("ptx_isa", "0")) >= max(versions)
    ]
    return min(knowing, key=nums)


def list_warnings(row: dict[str, Any], card: str) -> int:
    """Known problems that are warnings, of a card that compiles PTX."""
    found = 0
    for problem in table("problems.toml")["problem"]:
        when = problem.get("when", {})
        if problem["area"] != "gpu" or set(when) - {"capability"} or problem["severity"] != "warning":
            continue
        if row["package"] not in problem["package"]:
            continue
        if not SpecifierSet(problem["versions"]).contains(row["version"], prereleases=True):
            continue
        found += Version(card) in SpecifierSet(when.get("capability", ""))
    return found


def libraries_take(cuda: str, card: str) -> bool:
    series = [one for one in table("cuda.toml")["series"] if nums(one["version"]) == nums(cuda)[:2]]
    if not series or not series[0]["capabilities"]:
        return True
    have = [nums(one) for one in series[0]["capabilities"]]
    return nums(card) >= min(have) and nums(card)[0] <= max(have)[0]


def cudnn_takes(cudnn: str | None, card: str) -> bool:
    if cudnn is None:
        return True
    ranges = table("cudnn.toml")["range"]
    inside = [
        row
        for row in ranges
        if nums(cudnn) >= nums(row["first"])[: len(nums(cudnn))] and nums(cudnn) < nums(row["below"])
    ]
    if not inside:
        return True
    row = inside[0]
    if nums(card) < nums(row["lowest"]):
        older = [one for one in ranges if nums(one["below"]) <= nums(row["first"])]
        return not any(nums(one["lowest"]) <= nums(card) for one in older)
    if nums(card)[0] <= nums(row["highest"])[0]:
        return True
    return "ptx" in row


# ---------------------------------------------------------------- drivers


def make_own_driver(cuda: str, system: str) -> str | None:
    rows = [one for one in table("cuda.toml")["release"] if nums(one["version"])[:2] == nums(cuda)[:2]]
    if not rows:
        return None
    fitting = [one for one in rows if nums(one["version"]) <= nums(cuda)]
    return (fitting[-1] if fitting else rows[0]).get(system)


def least_driver(cuda: str, system: str) -> str | None:
    family = next(one for one in table("cuda.toml")["family"] if one["major"] == nums(cuda)[0])
    own = make_own_driver(cuda, system)
    if not family["minor_version_compatibility"]:
        return own
    floor = family.get(system)
    if own is not None and floor is not None and nums(own) < nums(floor):
        return own
    return floor


def run_to_end(card: str) -> dict[str, Any] | None:
    return next((one for one in table("cards.toml")["ended"] if nums(card) < nums(one["below"])), None)


def make_driven(machine: Machine) -> bool:
    """Whether the driver that is there drives its cards: still, and already."""
    spoken = None
    if machine.driver is not None:
        column = "windows" if machine.windows else "linux"
        branch = "." not in machine.driver
        speaks = [
            nums(one["version"])[:2]
            for one in table("cuda.toml")["release"]
            if column in one
            and (
                nums(one[column])[0] <= nums(machine.driver)[0]
                if branch
                else nums(one[column]) <= nums(machine.driver)
            )
        ]
        spoken = max(speaks, default=None)
    knows = [
        one for one in table("cuda.toml")["series"] if spoken is not None and nums(one["version"]) >= spoken
    ]
    for card in machine.cards:
        if knows and nums(card) > max(map(nums, knows[0]["capabilities"])):
            return False
        row = run_to_end(card)
        if (
            machine.driver is not None
            and row is not None
            and nums(machine.driver)[0] >= nums(row["first_without"])[0]
        ):
            return False
    return True


def fits(row: dict[str, Any] | None, cuda: str, cudnn: str | None, machine: Machine) -> int | None:
    """How much speaks against it; None: it does not run. `row` None: NVIDIA's own build."""
    serious, system = 0, "windows" if machine.windows else "linux"
    if not make_driven(machine):
        return None
    for card in dict.fromkeys(machine.cards):
        if not libraries_take(cuda, card) or not cudnn_takes(cudnn, card):
            return None
        last = run_to_end(card)
        least = least_driver(cuda, "linux")
        if last is not None and least is not None and nums(least)[0] > nums(last["last"])[0]:
            return None
        if row is None:
            continue
        have = code(row, card)
        if have == "none":
            return None
        if have == "ptx":
            serious += 1 + list_warnings(row, card)
        compiler = cuda_of_the_compiler(row, card)
        own = make_own_driver(compiler, system) if compiler is not None else None
        if machine.driver is not None and own is not None and not reaches(machine.driver, own):
            return None
    least = least_driver(cuda, system)
    if (
        row is not None
        and machine.driver is not None
        and least is not None
        and not reaches(machine.driver, least)
    ):
        return None
    return serious


# ---------------------------------------------------------------- the recipes


def list_locked(row: dict[str, Any], python: str) -> bool:
    return f"{row['package']}-{row['version']}-cp{python.replace('.', '')}" in locks()


def is_in_wheels_folder(row: dict[str, Any]) -> dict[str, Any] | None:
    for one in table("cuda_wheels.toml")["set"]:
        if SpecifierSet(one["tensorflow"]).contains(row["version"], prereleases=True):
            found: dict[str, Any] = one
            return found
    return None


def soname(stem: str, cuda: str) -> str | None:
    family = next(one for one in table("libraries.toml")["library"] if one["stem"] == stem)["sonames"]
    minor = ".".join(cuda.split(".")[:2])
    ending = family.get(minor, family.get(cuda.split(".", maxsplit=1)[0]))
    return None if ending is None else f"lib{stem}.so.{ending.replace('x', minor.split('.')[1])}"


def systems_pythons(system: str) -> tuple[list[str], Numbers]:
    row = next(one for one in table("pythons.toml")["system"] if one["name"] == system)
    return [one for one in (row["default"], *row["others"]) if one not in row.get("prerelease", ())], nums(
        row["glibc"]
    )


def cuda_images(row: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(CUDA, cuDNN, system) of the runtime images that have all libraries."""
    if not row.get("cuda") or not row.get("cudnn"):
        return
    wanted = [re.fullmatch(r"lib(\w+)\.so\.(.+)", name) for name in row["required_libraries"]]
    stems = {match[1]: match[0] for match in wanted if match is not None}
    cudnn = next((name for stem, name in stems.items() if stem == "cudnn"), None)
    if cudnn is None:
        return
    for image in table("images.toml")["cuda"]:
        if (
            "runtime" not in image.get("cudnn_flavours", ())
            or nums(image["version"])[0] != nums(row["cuda"])[0]
        ):
            continue
        for system in image["cudnn_systems"]:
            inside = image.get("cudnn", {}).get(system)
            if inside is None or inside.split(".")[0] != cudnn.rpartition(".")[2]:
                continue
            if nums(inside) < nums(row["cudnn"]):
                continue
            if all(soname(stem, image["version"]) == name for stem, name in stems.items() if stem != "cudnn"):
                yield image["version"], inside, system


def is_in_conda_folder(row: dict[str, Any]) -> bool:
    """Whether conda-forge has what no wheel has."""
    if is_in_wheels_folder(row) is not None or not row.get("cuda") or nums(row["cuda"]) < (10,):
        return False
    return conda_cudnn(row) is not None


def conda_cudnn(row: dict[str, Any]) -> str | None:
    built = nums(row["cudnn"])[0] if row.get("cudnn") else None
    for one in table("cudnn.toml")["conda"]:
        if nums(one["cuda"]) == nums(row["cuda"])[:2] and one.get("built") in (None, built):
            return str(one["cudnn"])
    return None


Brought = tuple[str, str | None, str, int]
"""(CUDA, cuDNN, Python, what speaks against it)."""


@cache
def _brought(recipe: str, package: str, version: str) -> tuple[Brought, ...]:
    """What a recipe can bring to a release, on any machine."""
    row = next(one for one in releases() if (one["package"], one["version"]) == (package, version))
    return tuple(_of_recipe(recipe, row))


def _of_recipe(recipe: str, row: dict[str, Any]) -> Iterator[Brought]:
    pythons = [one for one in row["linux_pythons"] if list_locked(row, one)]
    if recipe in ("pip-cuda", "cuda-base", "conda-cuda"):  # a virtual environment of ours
        pythons = [one for one in pythons if one != "2.7"]
    wheels = is_in_wheels_folder(row)
    slim = [one["python"] for one in table("images.toml")["python"]]
    if recipe in ("venv", "pip-cuda") and wheels is not None:
        for python in pythons:
            if recipe == "venv" or python in slim:
                yield wheels["cuda"], wheels["cudnn"], python, 0
    if recipe == "cuda-base":
        for cuda, cudnn, system in cuda_images(row):
            have, glibc = systems_pythons(system)
            for python in pythons:
                if python in have and (not row.get("glibc") or glibc >= nums(row["glibc"])):
                    yield cuda, cudnn, python, int(nums(cuda)[:2] < nums(row["cuda"])[:2])
    if recipe == "official":
        for image in table("images.toml")["official"]:
            if (
                not SpecifierSet(image["versions"]).contains(row["version"], prereleases=True)
                or not image["works"]
            ):
                continue
            old = int(
                "cudnn" in image
                and "." in (row.get("cudnn") or "")
                and nums(image["cudnn"]) < nums(row["cudnn"])
            )
            for python in pythons:
                if python == image["python"] or (python == "2.7" and len(image["tags"]) > 1):
                    yield image["cuda"], image.get("cudnn"), python, old
            break
    if recipe == "conda-cuda" and is_in_conda_folder(row):
        for python in pythons:
            if python in slim:
                yield row["cuda"], conda_cudnn(row), python, 1


def ways(machine: Machine, recipe: str, row: dict[str, Any], python: str | None = None) -> Iterator[Way]:
    """Everything of one recipe and one release that runs there."""
    if machine.arm:
        return  # no wheel has GPU code for it
    withdrawn = int(bool(row.get("yanked"))) + int(Version(row["version"]).is_prerelease)
    if recipe == "ngc":
        for image in table("images.toml")["ngc"]:
            if image.get("tensorflow") != row["version"] or "python" not in image:
                continue
            against = _ngc(image, machine)
            if against is not None and python in (None, image["python"]):
                yield Way(recipe, row["version"], image["python"], against + withdrawn, image["cuda"])
        return
    for cuda, cudnn, have, before in _brought(recipe, row["package"], row["version"]):
        against = fits(row, cuda, cudnn, machine) if python in (None, have) else None
        if against is not None:
            yield Way(recipe, row["version"], have, against + before + withdrawn, cuda)


def _ngc(image: dict[str, Any], machine: Machine) -> int | None:
    told = [one["lowest"] for one in table("images.toml")["ngc"] if "lowest" in one]
    lowest = image.get("lowest", min(told, key=nums))
    if any(nums(card) < nums(lowest) for card in machine.cards):
        return None
    against = fits(None, image["cuda"], image.get("cudnn"), machine)
    if (
        against is None
        or machine.driver is None
        or "driver" not in image
        or reaches(machine.driver, image["driver"])
    ):
        return against
    least = least_driver(image["cuda"], "windows" if machine.windows else "linux")
    return against + 1 if least is not None and reaches(machine.driver, least) else None


def list_every(
    machine: Machine, *, tf: str | None = None, python: str | None = None, method: str | None = None
) -> list[Way]:
    """Everything that runs there. `tf`: versions that begin so, or conditions; None: the final ones."""
    found = []
    for row in releases():
        if tf is None and (row.get("yanked") or Version(row["version"]).is_prerelease):
            continue
        if tf is not None and not _meant(tf, row["version"]):
            continue
        for recipe in RECIPES if method is None else ("venv",) if method == "pip" else CONTAINERS:
            found += ways(machine, recipe, row, python)
    return found


def _meant(tf: str, version: str) -> bool:
    if tf[0] in "<>=~!":
        return SpecifierSet(tf).contains(version, prereleases=False)
    if tf.count(".") > 1:
        return version == tf
    return version.startswith(f"{tf}.") and not Version(version).is_prerelease


def best(machine: Machine, **more: str | None) -> Way | None:
    """The best of everything: the least that speaks against it, then the newest TensorFlow."""
    return max(list_every(machine, **more), key=lambda way: way.order, default=None)
