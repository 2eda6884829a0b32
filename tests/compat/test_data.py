"""Invariants of the data in compat/: they hold for every release and every entry, whatever is measured next."""

# decode.py evaluates the annotations of the dataclasses at run time: no `from __future__ import annotations` here.

import datetime as dt
import itertools
import json
import re
from dataclasses import field

from compat.every_row import for_each
from tfdoctor.compat import Compat, Release, decode, split_soname
from tfdoctor.compat.folder import data_dir
from tfdoctor.core import versions
from tfdoctor.core.records import dataclass

COMPAT = Compat.load()
GPU_RELEASES = [row for row in COMPAT.releases if row.gpu]
CPU_RELEASES = [row for row in COMPAT.releases if not row.gpu]
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


def release_id(release: Release) -> str:
    return f"{release.package}-{release.version}"


def is_sorted(version_texts: tuple[str, ...]) -> bool:
    keys = [versions.parse_numbers(re.sub("[af]$", "", text)) for text in version_texts]
    return keys == sorted(set(keys))


def test_tables_have_at_least_their_known_size() -> None:
    assert len(COMPAT.releases) >= 181
    assert len(GPU_RELEASES) >= 120
    assert len(COMPAT.gpus) >= 990
    keys = [(release.parsed, release.package) for release in COMPAT.releases]
    assert keys == sorted(set(keys))


def test_every_release_was_measured() -> None:
    assert {release.evidence for release in COMPAT.releases} == {"measured"}


def test_data_has_no_paths_of_a_build_machine() -> None:
    for path in (path for path in data_dir("compat").rglob("*") if path.is_file()):
        text = path.read_text(encoding="utf-8")
        assert "/work/" not in text, path.name


@for_each(COMPAT.releases, release_id)
def test_every_release_is_well_formed(row: Release) -> None:
    versions.parse(row.version)
    dt.date.fromisoformat(row.release_date)
    assert re.fullmatch(r"[0-9a-f]{64}", row.sha256)
    assert row.size_bytes > 1_000_000
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


@for_each(COMPAT.releases, release_id)
def test_gpu_fields_agree(row: Release) -> None:
    assert row.gpu == (row.linkage != "none")
    assert row.gpu == bool(row.required_libraries) == bool(row.cuda) == bool(row.cubin)
    assert (row.registration_floor is None) == (row.registration_floor_evidence is None)
    if not row.gpu:
        assert not row.driver_libraries
        assert row.registration_floor is None
    assert (row.linkage == "needed") == (row.gpu and versions.compare(row.minor, "1.14") < 0)


@for_each(COMPAT.releases, release_id)
def test_sonames_are_those_of_the_version(row: Release) -> None:
    if not row.gpu:
        return
    stems = []
    for soname in row.required_libraries:
        parts = split_soname(soname)
        assert parts is not None
        assert parts[1]
        stems.append(parts[0])
    # Linked libraries are loaded in an order that the linker chose for each release.
    order = sorted if row.linkage == "needed" else list
    assert order(stems) == order(COMPAT.find_registration(row.version).opened_stems)
    assert row.driver_libraries == COMPAT.list_driver_libraries(row.version)


@for_each(COMPAT.releases, release_id)
def test_sonames_match_the_cuda(row: Release) -> None:
    """Compare the linkage with the sonames of the CUDA toolkit in cuda_config.h."""
    if row.cuda is None:
        return
    for soname in row.required_libraries:
        parts = split_soname(soname)
        assert parts is not None
        if parts[0] != "cudnn":
            assert soname == COMPAT.find_soname(parts[0], row.cuda)
        else:
            assert row.cudnn is not None
            assert parts[1] == str(versions.major(row.cudnn))


@for_each(COMPAT.releases, release_id)
def test_libraries_are_derived_from_the_header(row: Release) -> None:
    if row.gpu and row.defines:
        derived = COMPAT.find_required_libraries(row.defines, row)
        assert derived is not None
        order = sorted if row.linkage == "needed" else list
        assert order(derived) == order(row.required_libraries)


@for_each(COMPAT.releases, release_id)
def test_pip_extra_contains_the_libraries(row: Release) -> None:
    assert (row.pip_extra is None) == (not row.extra_pins)
    if row.pip_extra is None or row.cuda is None:
        return
    projects = {re.split(r"[<>=!~ ]", pin, maxsplit=1)[0] for pin in row.extra_pins}
    for soname in row.required_libraries:
        wheel = COMPAT.find_wheel(soname, versions.major(row.cuda))
        assert wheel is not None
        assert wheel.project in projects


@for_each(COMPAT.releases, release_id)
def test_cuda_can_compile_for_the_capabilities(row: Release) -> None:
    series = COMPAT.find_cuda_series(row.cuda) if row.cuda else None
    if series is not None:
        assert {*row.cubin, *row.ptx} <= {*series.capabilities}


@for_each(COMPAT.releases, release_id)
def test_runpath_is_well_formed(row: Release) -> None:
    assert all(folder.isidentifier() for folders in row.runpath.values() for folder in folders)
    assert set(row.runpath_misses) <= set(row.required_libraries)
    if row.runpath_misses:
        assert any(
            problem.cause == "libs-not-on-path" for problem in COMPAT.list_problems(row.package, row.version)
        )


def test_patches_of_a_minor_need_the_same_libraries() -> None:
    """Within one minor no patch changes CUDA, the libraries or the linkage."""
    for _, releases in itertools.groupby(GPU_RELEASES, key=lambda release: release.parsed.release[:2]):
        assert len({(release.cuda, release.required_libraries, release.linkage) for release in releases}) == 1


def test_both_packages_are_one_build_from_2_1() -> None:
    for release in GPU_RELEASES:
        gpu_release = COMPAT.find_release(release.version, "tensorflow-gpu")
        if release.package == "tensorflow" and gpu_release is not None and release.version != "1.15.0":
            assert (gpu_release.cubin, gpu_release.ptx, gpu_release.defines, gpu_release.glibc) == (
                release.cubin,
                release.ptx,
                release.defines,
                release.glibc,
            )


def test_cpu_only_releases() -> None:
    names = {
        release_id(release) for release in CPU_RELEASES if versions.compare(release.version, "1.15") >= 0
    }
    assert names == {
        *(f"tensorflow-1.15.{patch}" for patch in (2, 3, 4, 5)),
        *(f"tensorflow-2.0.{patch}" for patch in range(5)),
    }


def test_gpu_wheels_on_windows_end_with_2_10() -> None:
    last = [release for release in COMPAT.releases if release.windows_gpu][-1]
    assert last.version == "2.10.1"


def test_required_glibc() -> None:
    floors = {release.minor: release.glibc for release in GPU_RELEASES}
    assert floors["1.14"] == "2.23"
    assert floors["2.8"] == "2.12"
    assert floors["2.20"] == "2.17"
    assert floors["2.21"] == "2.27"


def test_arch_specific_ptx_is_the_blackwell_problem() -> None:
    faulty = {release.minor for release in GPU_RELEASES if release.ptx_arch_specific}
    assert faulty == {"2.16", "2.17", "2.18", "2.19", "2.20"}
    assert {target for release in GPU_RELEASES for target in release.ptx_arch_specific} == {"9.0a"}
    problem = COMPAT.find_problem("ptx-sm90a-on-blackwell")
    assert problem is not None
    for release in GPU_RELEASES:
        assert problem.affects_release(release.package, release.version) == bool(release.ptx_arch_specific)


# --- CUDA ---


def test_newer_cuda_needs_a_newer_driver() -> None:
    for os in ("linux", "windows"):
        drivers = [
            getattr(release, os) for release in COMPAT.cuda_releases if getattr(release, os) is not None
        ]
        for older, newer in itertools.pairwise(drivers):
            assert versions.compare(older, newer) <= 0
    keys = [versions.parse_numbers(release.version) for release in COMPAT.cuda_releases]
    assert keys == sorted(set(keys))


def test_minimum_driver_of_a_family_is_within_it() -> None:
    for major, floor in ((11, "450.80.02"), (12, "525.60.13"), (13, "580.65.06")):
        for release in COMPAT.cuda_releases:
            if versions.major(release.version) < major and release.linux is not None:
                assert versions.compare(release.linux, floor) < 0
            if versions.major(release.version) == major and not release.version.startswith("11.0"):
                assert versions.is_at_least(release.linux or floor, floor)


def test_only_major_cuda_versions_drop_capabilities() -> None:
    series = COMPAT._cuda.all_series
    for entry in series:
        assert is_sorted(entry.capabilities)
    for older, newer in itertools.pairwise(series):
        dropped = {*older.capabilities} - {*newer.capabilities}
        if versions.major(older.version) == versions.major(newer.version):
            assert not dropped
    assert [versions.parse_numbers(entry.version) for entry in series] == sorted(
        versions.parse_numbers(entry.version) for entry in series
    )


# --- cuDNN ---


def test_cudnn_ranges_are_ordered_and_never_lower() -> None:
    for older, newer in itertools.pairwise(COMPAT.cudnn_ranges):
        assert versions.compare(older.first_version, older.end_version) < 0
        assert versions.compare(older.end_version, newer.first_version) <= 0
        assert versions.parse_capability(older.min_capability) <= versions.parse_capability(
            newer.min_capability
        )
        assert versions.parse_capability(older.max_capability) <= versions.parse_capability(
            newer.max_capability
        )
    for entry in COMPAT.cudnn_ranges:
        assert (entry.evidence == "measured") == bool(entry.measured_versions)
        for version in entry.measured_versions:
            assert COMPAT.find_cudnn_range(version) is entry


# --- GPUs ---


def test_gpus_are_sorted_and_pci_ids_agree() -> None:
    keys = [(versions.parse_capability(gpu.capability), gpu.name.lower(), gpu.pci_ids) for gpu in COMPAT.gpus]
    assert keys == sorted(keys)
    capabilities: dict[str, str] = {}
    for gpu in COMPAT.gpus:
        for pci_id in gpu.pci_ids:
            assert re.fullmatch(r"[0-9a-f]{4}", pci_id)
            assert capabilities.setdefault(pci_id, gpu.capability) == gpu.capability


def test_ambiguous_names_are_marked() -> None:
    marked = json.loads((data_dir("compat") / "gpus.json").read_bytes())["ambiguous"]
    for gpu_name, capabilities in marked.items():
        match = COMPAT.find_gpus_by_name(gpu_name)
        assert match is not None
        assert match.is_ambiguous
        assert list(match.capabilities) == capabilities.split(", ")
    by_name: dict[str, set[str]] = {}
    for gpu in COMPAT.gpus:
        by_name.setdefault(gpu.name, set()).add(gpu.capability)
    assert {gpu_name for gpu_name, values in by_name.items() if len(values) > 1} == {*marked}


# --- libraries and problems ---


def test_libraries_match_the_registration_data() -> None:
    stems = [row.stem for row in COMPAT.libraries]
    assert len(stems) == len(set(stems))
    needed = {stem for row in GPU_RELEASES for stem in COMPAT.find_registration(row.version).opened_stems}
    assert needed == {row.stem for row in COMPAT.libraries if row.role == "registration"}
    for row in COMPAT.libraries:
        if row.role == "registration" and row.stem != "cudart":
            assert row.first_tf is not None
            assert row.stem in COMPAT.find_registration(row.first_tf).opened_stems
            if row.last_tf is not None:
                assert row.stem in COMPAT.find_registration(row.last_tf).opened_stems
                assert row.stem not in COMPAT.find_registration(COMPAT.newest.version).opened_stems
        for wheel in row.wheels.values():
            assert re.fullmatch(r"nvidia/\w+/lib", wheel.folder)
            assert wheel.project.startswith("nvidia-")


def test_problems_are_well_formed() -> None:
    ids = [problem.id for problem in COMPAT.problems]
    assert len(ids) == len(set(ids))
    packages = {release.name for release in COMPAT.distributions}
    for problem in COMPAT.problems:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", problem.id)
        assert set(problem.packages) <= packages
        assert problem.cause in CAUSES
        assert problem.text.endswith(".")
        assert not problem.title.endswith(".")
        affected = [
            release
            for release in COMPAT.releases
            if problem.affects_release(release.package, release.version)
        ]
        assert affected or problem.id == "tensorflow-gpu-removed"


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One contradiction between sources, and how it was settled."""

    NAMED = ("subject",)
    subject: str
    releases: decode.ReleaseSet
    says: tuple[str, ...]
    settled: str
    reason: str


@dataclass(frozen=True, slots=True)
class Disagreements:
    """The table compat/disagreements.toml."""

    as_of: str
    rows: tuple[Disagreement, ...] = field(metadata={"key": "disagreement"})


def test_disagreements_are_settled_with_a_reason() -> None:
    for disagreement in decode.read_table(Disagreements, data_dir("compat") / "disagreements.toml").rows:
        assert disagreement.says
        assert disagreement.reason.endswith(".")
        spec = disagreement.releases
        assert spec == "==1.13.0" or any(versions.satisfies(r.version, spec) for r in COMPAT.releases)
