"""Invariants of the data in compat/: what must hold for every row, whatever is measured next."""

# The annotations of rows are read when this runs (compat/decode.py): they are no texts here.

import datetime as dt
import itertools
import json
import re
from dataclasses import field
from pathlib import Path

import pytest

from tfdoctor import versions
from tfdoctor.compat import Compat, Release, decode, split_soname
from tfdoctor.compat.folder import data_dir
from tfdoctor.records import dataclass

COMPAT = Compat.load()
GPU_ROWS = [row for row in COMPAT.releases if row.gpu]
CPU_ROWS = [row for row in COMPAT.releases if not row.gpu]
CAUSES = frozenset(
    {
        "cpu-only-build",
        "cublas-init-failed",
        "cudnn-version-mismatch",
        "glibc-too-old",
        "gpu-too-new",
        "gpu-too-old",
        "inconclusive",
        "libs-not-on-path",
        "libs-unlisted",
        "libs-wrong-version",
        "no-matching-wheel",
        "numpy-abi",
        "nvml-missing",
        "protobuf-conflict",
        "windows-native-unsupported",
    }
)


def name(row: Release) -> str:
    return f"{row.package}-{row.version}"


def is_sorted(texts: tuple[str, ...]) -> bool:
    keys = [versions.numbers(re.sub("[af]$", "", text)) for text in texts]
    return keys == sorted(set(keys))


def test_enough_rows() -> None:
    assert len(COMPAT.releases) >= 181
    assert len(GPU_ROWS) >= 120
    assert len(COMPAT.gpus) >= 990
    keys = [(row.parsed, row.package) for row in COMPAT.releases]
    assert keys == sorted(set(keys))


def test_every_row_was_measured() -> None:
    assert {row.evidence for row in COMPAT.releases} == {"measured"}


def test_no_path_of_a_machine_in_the_data() -> None:
    for path in (path for path in data_dir("compat").rglob("*") if path.is_file()):
        text = path.read_text(encoding="utf-8")
        assert "/work/" not in text, path.name


@pytest.mark.parametrize("row", COMPAT.releases, ids=name)
class TestRelease:
    def test_is_well_formed(self, row: Release) -> None:
        versions.parse(row.version)
        dt.date.fromisoformat(row.released)
        assert re.fullmatch(r"[0-9a-f]{64}", row.sha256)
        assert row.size > 1_000_000
        assert row.wheel.startswith(f"{row.package.replace('-', '_')}-{row.version}-cp")
        assert row.platform_tag in row.wheel
        assert row.sources
        assert row.linux_pythons
        assert is_sorted(row.linux_pythons)
        assert is_sorted(row.windows_pythons)
        assert (row.windows_gpu is None) == (not row.windows_pythons)
        assert is_sorted(row.cubin)
        assert is_sorted(row.ptx)
        assert (row.evidence == "inferred") == (row.inferred_from is not None)
        if row.inferred_from is not None:
            assert versions.parse(row.inferred_from).release[:2] == row.parsed.release[:2]

    def test_gpu_or_not(self, row: Release) -> None:
        assert row.gpu == (row.linkage != "none")
        assert row.gpu == bool(row.required_libraries) == bool(row.cuda) == bool(row.cubin)
        assert (row.registration_floor is None) == (row.registration_floor_evidence is None)
        if not row.gpu:
            assert not row.driver_libraries
            assert row.registration_floor is None
        assert (row.linkage == "needed") == (row.gpu and versions.compare(row.minor, "1.14") < 0)

    def test_sonames_are_those_of_its_era(self, row: Release) -> None:
        if not row.gpu:
            return
        stems = []
        for soname in row.required_libraries:
            parts = split_soname(soname)
            assert parts is not None
            assert parts[1]
            stems.append(parts[0])
        # What is linked is loaded in an order that the linker chose anew for each release.
        order = sorted if row.linkage == "needed" else list
        assert order(stems) == order(COMPAT.registration(row.version).opens)
        assert row.driver_libraries == COMPAT.driver_libraries_for(row.version)

    def test_sonames_fit_its_cuda(self, row: Release) -> None:
        """What cuda_config.h and the linkage say agrees with what that toolkit has."""
        if row.cuda is None:
            return
        for soname in row.required_libraries:
            parts = split_soname(soname)
            assert parts is not None
            if parts[0] != "cudnn":
                assert soname == COMPAT.soname_for(parts[0], row.cuda)
            else:
                assert row.cudnn is not None
                assert parts[1] == str(versions.major(row.cudnn))

    def test_its_own_header_derives_its_libraries(self, row: Release) -> None:
        if row.gpu and row.defines:
            derived = COMPAT.required_libraries_for(row.defines, row)
            assert derived is not None
            order = sorted if row.linkage == "needed" else list
            assert order(derived) == order(row.required_libraries)

    def test_its_extra_brings_its_libraries(self, row: Release) -> None:
        assert (row.pip_extra is None) == (not row.extra_pins)
        if row.pip_extra is None or row.cuda is None:
            return
        projects = {re.split(r"[<>=!~ ]", pin, maxsplit=1)[0] for pin in row.extra_pins}
        for soname in row.required_libraries:
            wheel = COMPAT.wheel_for(soname, versions.major(row.cuda))
            assert wheel is not None
            assert wheel.project in projects

    def test_its_cuda_compiles_for_what_is_inside(self, row: Release) -> None:
        series = COMPAT.cuda_series(row.cuda) if row.cuda else None
        if series is not None:
            assert {*row.cubin, *row.ptx} <= {*series.capabilities}

    def test_runpath(self, row: Release) -> None:
        assert all(folder.isidentifier() for folders in row.runpath.values() for folder in folders)
        assert set(row.runpath_misses) <= set(row.required_libraries)
        if row.runpath_misses:
            assert any(
                problem.cause == "libs-not-on-path"
                for problem in COMPAT.problems_of(row.package, row.version)
            )


def test_same_minor_same_needs() -> None:
    """Within one minor no patch changes CUDA, cuDNN's major, libraries or linkage."""
    for _, rows in itertools.groupby(GPU_ROWS, key=lambda row: row.parsed.release[:2]):
        assert len({(row.cuda, row.required_libraries, row.linkage) for row in rows}) == 1


def test_the_two_packages_are_one_build_from_2_1() -> None:
    for row in GPU_ROWS:
        twin = COMPAT.release(row.version, "tensorflow-gpu")
        if row.package == "tensorflow" and twin is not None and row.version != "1.15.0":
            assert (twin.cubin, twin.ptx, twin.defines, twin.glibc) == (
                row.cubin,
                row.ptx,
                row.defines,
                row.glibc,
            )


def test_cpu_only_releases() -> None:
    names = {name(row) for row in CPU_ROWS if versions.compare(row.version, "1.15") >= 0}
    assert names == {
        *(f"tensorflow-1.15.{patch}" for patch in (2, 3, 4, 5)),
        *(f"tensorflow-2.0.{patch}" for patch in range(5)),
    }


def test_gpu_wheels_on_windows_end_with_2_10() -> None:
    last = [row for row in COMPAT.releases if row.windows_gpu][-1]
    assert last.version == "2.10.1"


def test_floors_of_glibc() -> None:
    floors = {row.minor: row.glibc for row in GPU_ROWS}
    assert floors["1.14"] == "2.23"
    assert floors["2.8"] == "2.12"
    assert floors["2.20"] == "2.17"
    assert floors["2.21"] == "2.27"


def test_arch_specific_ptx_is_the_blackwell_fault() -> None:
    faulty = {row.minor for row in GPU_ROWS if row.ptx_arch_specific}
    assert faulty == {"2.16", "2.17", "2.18", "2.19", "2.20"}
    assert {text for row in GPU_ROWS for text in row.ptx_arch_specific} == {"9.0a"}
    problem = COMPAT.problem("ptx-sm90a-on-blackwell")
    assert problem is not None
    for row in GPU_ROWS:
        assert problem.applies(row.package, row.version) == bool(row.ptx_arch_specific)


# --- CUDA ---


def test_drivers_grow_with_cuda() -> None:
    for os in ("linux", "windows"):
        rows = [getattr(row, os) for row in COMPAT.cuda_releases if getattr(row, os) is not None]
        for older, newer in itertools.pairwise(rows):
            assert versions.compare(older, newer) <= 0
    keys = [versions.numbers(row.version) for row in COMPAT.cuda_releases]
    assert keys == sorted(set(keys))


def test_family_floors_lie_within_the_family() -> None:
    for major, floor in ((11, "450.80.02"), (12, "525.60.13"), (13, "580.65.06")):
        for row in COMPAT.cuda_releases:
            if versions.major(row.version) < major and row.linux is not None:
                assert versions.compare(row.linux, floor) < 0
            if versions.major(row.version) == major and not row.version.startswith("11.0"):
                assert versions.is_at_least(row.linux or floor, floor)


def test_capabilities_of_cuda_are_sorted_and_only_dropped_by_majors() -> None:
    series = COMPAT._cuda.all_series
    for row in series:
        assert is_sorted(row.capabilities)
    for older, newer in itertools.pairwise(series):
        lost = {*older.capabilities} - {*newer.capabilities}
        if versions.major(older.version) == versions.major(newer.version):
            assert not lost
    assert [versions.numbers(row.version) for row in series] == sorted(
        versions.numbers(row.version) for row in series
    )


# --- cuDNN ---


def test_cudnn_ranges_do_not_overlap_and_only_raise_their_floor() -> None:
    for older, newer in itertools.pairwise(COMPAT.cudnn_ranges):
        assert versions.compare(older.first, older.below) < 0
        assert versions.compare(older.below, newer.first) <= 0
        assert versions.parse_capability(older.lowest) <= versions.parse_capability(newer.lowest)
        assert versions.parse_capability(older.highest) <= versions.parse_capability(newer.highest)
    for row in COMPAT.cudnn_ranges:
        assert (row.evidence == "measured") == bool(row.measured)
        for version in row.measured:
            assert COMPAT.cudnn_range(version) is row


# --- GPUs ---


def test_gpus_are_sorted_and_ids_never_disagree() -> None:
    keys = [(versions.parse_capability(gpu.capability), gpu.name.lower(), gpu.pci_ids) for gpu in COMPAT.gpus]
    assert keys == sorted(keys)
    seen: dict[str, str] = {}
    for gpu in COMPAT.gpus:
        for pci_id in gpu.pci_ids:
            assert re.fullmatch(r"[0-9a-f]{4}", pci_id)
            assert seen.setdefault(pci_id, gpu.capability) == gpu.capability


def test_the_ambiguous_names_are_those_marked() -> None:
    marked = json.loads((data_dir("compat") / "gpus.json").read_bytes())["ambiguous"]
    for gpu_name, capabilities in marked.items():
        match = COMPAT.gpus_named(gpu_name)
        assert match is not None
        assert match.ambiguous
        assert list(match.capabilities) == capabilities.split(", ")
    by_name: dict[str, set[str]] = {}
    for gpu in COMPAT.gpus:
        by_name.setdefault(gpu.name, set()).add(gpu.capability)
    assert {gpu_name for gpu_name, values in by_name.items() if len(values) > 1} == {*marked}


# --- libraries and problems ---


def test_libraries() -> None:
    stems = [row.stem for row in COMPAT.libraries]
    assert len(stems) == len(set(stems))
    needed = {stem for row in GPU_ROWS for stem in COMPAT.registration(row.version).opens}
    assert needed == {row.stem for row in COMPAT.libraries if row.role == "registration"}
    for row in COMPAT.libraries:
        if row.role == "registration" and row.stem != "cudart":
            assert row.first_tf is not None
            assert row.stem in COMPAT.registration(row.first_tf).opens
            if row.last_tf is not None:
                assert row.stem in COMPAT.registration(row.last_tf).opens
                assert row.stem not in COMPAT.registration(COMPAT.newest.version).opens
        for wheel in row.wheels.values():
            assert re.fullmatch(r"nvidia/\w+/lib", wheel.folder)
            assert wheel.project.startswith("nvidia-")


def test_problems() -> None:
    ids = [problem.id for problem in COMPAT.problems]
    assert len(ids) == len(set(ids))
    packages = {row.name for row in COMPAT.distributions}
    for problem in COMPAT.problems:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", problem.id)
        assert set(problem.package) <= packages
        assert problem.cause in CAUSES
        assert problem.text.endswith(".")
        assert not problem.title.endswith(".")
        hit = [row for row in COMPAT.releases if problem.applies(row.package, row.version)]
        assert hit or problem.id == "tensorflow-gpu-removed"


# --- against the researched facts, where they are ---

FACTS = Path(__file__).resolve().parents[2].parent / "shared" / "facts"


@pytest.mark.skipif(not FACTS.is_dir(), reason="the researched facts are not beside this checkout")
def test_agrees_with_the_researched_facts() -> None:
    entries = json.loads((FACTS / "wheels.json").read_bytes())["entries"]
    assert len(entries) == 181
    for entry in entries:
        row = COMPAT.release(entry["version"], entry["project"])
        assert row is not None, entry["version"]
        assert (row.released, row.yanked) == (entry["upload_date"], entry["yanked"])
        assert row.platform_tag == entry["platform_tag"]
        tags = [versions.python_of_tag(tag) for tag in entry["linux_x86_64_python_tags"]]
        assert set(row.linux_pythons) == set(tags)
        windows = [versions.python_of_tag(tag) for tag in entry["windows_amd64_python_tags"]]
        assert set(row.windows_pythons) == set(windows)
        scanned = entry.get("shared_objects")
        if row.gpu and scanned:
            assert {text.replace(".", "") for text in row.cubin} == {*scanned["cubin_archs"]}
            assert {text.replace(".", "") for text in row.ptx} == {*scanned["ptx_archs"]}
            assert row.glibc == scanned["max_symbol_versions"]["GLIBC"]
            assert row.cxxabi == scanned["max_symbol_versions"]["CXXABI"]
            hard = {*scanned["hard_linked_cuda"]}
            if row.linkage == "needed":
                assert hard | {"libcuda.so.1"} == {*row.required_libraries, *row.driver_libraries}
        ran = entry.get("gpu_registration")
        if ran:
            assert {*row.required_libraries} == {*ran["required_libs"]}
            assert row.driver_libraries == tuple(ran["driver_libs"])
            assert {*row.optional_libraries} == {*ran["optional_at_import"]}
        header = entry["cuda_config_h"]
        if row.gpu and header.get("CUDA_VERSION"):
            assert row.cuda == header["CUDA_VERSION"]


@dataclass(frozen=True, slots=True)
class Disagreement:
    NAMED = ("subject",)
    subject: str
    releases: decode.ReleaseSet
    says: tuple[str, ...]
    settled: str
    reason: str


@dataclass(frozen=True, slots=True)
class Disagreements:
    as_of: str
    rows: tuple[Disagreement, ...] = field(metadata={"key": "disagreement"})


def test_disagreements_are_settled_with_a_reason() -> None:
    for row in decode.read(Disagreements, data_dir("compat") / "disagreements.toml").rows:
        assert row.says
        assert row.reason.endswith(".")
        spec = row.releases
        assert spec == "==1.13.0" or any(versions.satisfies(r.version, spec) for r in COMPAT.releases)
