"""The release that suits a machine: `recommend`, the remedies of `check` and the matrix agree."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recorded import FOLDERS, load_facts
from rules.make_facts import healthy, remove_libraries, with_cards, with_python
from tfdoctor.compat import Compat
from tfdoctor.core import versions
from tfdoctor.core.facts import TENSORFLOW_DISTRIBUTIONS, Absent, KernelModule, Known, Unknown, value_of
from tfdoctor.core.findings import Cause
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.planning import Method, Request, recommend
from tfdoctor.prediction.fit.compatibility import (
    Fit,
    can_use_release,
    choose_preferred,
    find_best_fit,
    find_gpu_reasons,
    fit_environment,
    list_candidates,
)
from tfdoctor.prediction.fit.host import build_host
from tfdoctor.prediction.fit.matrix import MatrixQuery, select_rows
from tfdoctor.prediction.fit.models import Host, HostGpu

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tfdoctor.core.facts import Facts
    from tfdoctor.core.findings import Remedy

COMPAT = Compat.load()
RELEASE_PATTERN = re.compile(
    r"(?:[Tt]ensor[Ff]low(?:-gpu)?(?:\[[a-z-]+\])?(?: |==)|--tf )(\d+\.\d+\.\d+(?:\.post1|rc\d)?)(?![\w.]*\d)"
)
PYTHON_PATTERN = re.compile(r"(?:uv venv --python |\bpython)(\d\.\d+)(?: -m venv)? tf-env")
CONSTRAINED_CODES = frozenset({"TFD202", "TFD203"})
"""Codes whose remedies keep the installed CUDA or the minor, so that their release need not be the best."""
CAPABILITIES = ("3.0", "3.5", "5.0", "6.1", "7.0", "7.5", "8.6", "9.0", "10.0", "12.0")
DRIVERS = (
    "390.157",
    "418.39",
    "440.33",
    "450.80.02",
    "470.82.01",
    "525.60.13",
    "550.54.14",
    "570.86.10",
    "580.65.06",
)
PYTHONS = ("3.5", "3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")


def make_host(*capabilities: str, **fields: Any) -> Host:
    cards = tuple(HostGpu(f"a card of {capability}", capability) for capability in capabilities)
    return Host(cards=cards, **fields)


def list_named_releases(remedy: Remedy) -> set[str]:
    """Return the releases that a remedy names."""
    return {version for text in (remedy.text, *remedy.commands) for version in RELEASE_PATTERN.findall(text)}


def find_contradictions(facts: Facts) -> Iterator[str]:
    """Yield the releases in the remedies of `check` that `recommend` does not give."""
    report, machine = diagnose(facts, COMPAT), build_host(facts, COMPAT)
    tensorflow, python = value_of(facts.tensorflow), value_of(facts.python)
    installed = {tensorflow.version} if tensorflow is not None else set()
    if python is not None:
        installed |= {dist.version for dist in python.distributions if dist.name in TENSORFLOW_DISTRIBUTIONS}
    for finding in report.findings:
        for remedy in finding.remedies:
            new_python = next(
                (match[1] for text in remedy.commands if (match := PYTHON_PATTERN.search(text))), None
            )
            own_version = versions.major_minor(python.version) if python is not None else None
            updated = dataclasses.replace(machine, driver=None)
            after_update = remedy.text.startswith("After an update of the driver")
            for version in list_named_releases(remedy) - installed:
                if finding.code in CONSTRAINED_CODES:
                    fits = any(
                        can_use_release(COMPAT, release, machine, own_version)
                        for release in COMPAT.select(f"=={version}")
                    )
                else:
                    fits = is_recommended(
                        version, updated if after_update else machine, new_python or own_version
                    )
                if not fits:
                    yield f"{finding.code}: {version} on {machine} ({remedy.text})"


def is_recommended(version: str, machine: Host, python: str | None) -> bool:
    """Return whether `recommend` gives this release first for an environment of this Python."""
    answer = recommend(COMPAT, Request(python=python, method=Method.PIP), machine)
    if answer.conflict is None:
        return answer.options[0].tensorflow == version
    # No release with CUDA wheels suits this machine, so the named one has its CUDA from conda.
    fit = find_best_fit(COMPAT, machine, python=python)
    return fit is not None and fit.cuda_set is None and fit.release.version == version


def drop_tensorflow(facts: Facts) -> Facts:
    """Return the facts without the TensorFlow distributions."""
    python = value_of(facts.python)
    if python is None:
        return facts
    others = [dist for dist in python.distributions if dist.name not in TENSORFLOW_DISTRIBUTIONS]
    return with_python(facts, distributions=tuple(others))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
@pytest.mark.few(40)
def test_remedies_name_the_recommended_release(folder: Path) -> None:
    facts = load_facts(folder)
    absent = Absent("site-packages", "no tensorflow")
    without = dataclasses.replace(drop_tensorflow(facts), tensorflow=absent, loader=absent)
    assert not [*find_contradictions(facts), *find_contradictions(without)]


def make_sample(
    installed: str | None,
    python: str,
    cards: tuple[str, ...],
    driver: str | None,
    glibc: str,
    *,
    libraries: bool,
) -> Facts:
    """Return the facts of a machine; `installed` is its TensorFlow, None if it has none."""
    facts = healthy(installed or "2.18.1", python=f"{python}.1")
    facts = with_cards(facts, *cards) if cards else facts
    facts = with_python(facts, glibc=glibc)
    facts = facts if libraries else remove_libraries(facts)
    module = Known(KernelModule(driver, True), "x") if driver is not None else Unknown("closed")
    answer = value_of(facts.driver.cuda)
    assert answer is not None
    newest_cuda = COMPAT.find_newest_cuda_for_driver(driver) if driver is not None else answer.version
    cuda = Known(dataclasses.replace(answer, version=newest_cuda), "libcuda.so.1")
    facts = dataclasses.replace(
        facts,
        driver=dataclasses.replace(
            facts.driver, kernel_module=module, cuda=cuda, nvml=Unknown("x"), smi=Unknown("x")
        ),
    )
    if installed is None:
        absent = Absent("site-packages", "no tensorflow")
        facts = dataclasses.replace(drop_tensorflow(facts), tensorflow=absent, loader=absent)
    return facts


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    installed=st.sampled_from([None, "2.4.1", "2.10.1", "2.15.1", "2.16.1", "2.18.1", "2.21.0"]),
    python=st.sampled_from(PYTHONS),
    cards=st.lists(st.sampled_from(CAPABILITIES), max_size=2).map(tuple),
    driver=st.sampled_from([None, *DRIVERS]),
    glibc=st.sampled_from(["2.17", "2.24", "2.27", "2.35"]),
    libraries=st.booleans(),
)
def test_remedies_of_generated_hosts_agree_with_recommend(
    installed: str | None,
    python: str,
    cards: tuple[str, ...],
    driver: str | None,
    glibc: str,
    libraries: bool,
) -> None:
    facts = make_sample(installed, python, cards, driver, glibc, libraries=libraries)
    assert not list(find_contradictions(facts))


def test_wrong_release_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = make_sample(None, "3.11", ("8.6",), "570.86.10", "2.35", libraries=True)
    assert not list(find_contradictions(facts))
    monkeypatch.setattr(
        "tfdoctor.remedies.releases.find_best_fit",
        lambda *_, **__: find_best_fit(COMPAT, Host(), spec="==2.20.0"),
    )
    assert list(find_contradictions(facts))


# ---------------------------------------------------------------- the matrix


@pytest.mark.few(12)
@pytest.mark.parametrize("driver", [None, "450.80.02", "470.82.01", "570.86.10"])
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_matrix_lists_exactly_the_suitable_releases(capability: str, driver: str | None) -> None:
    rows = select_rows(COMPAT, MatrixQuery(capability=capability, driver=driver, gpu=True))
    listed = {row.release.version for row in rows if row.code_kind != "arch-specific"}
    partial = {row.release.version for row in rows if row.code_kind == "arch-specific"}
    machine = make_host(capability, driver=driver)
    for release in list_candidates(COMPAT):
        assert (release.version in listed) is not find_gpu_reasons(COMPAT, release, machine), release.version
    for version in partial:  # the matrix says that some kernels fail
        assert find_gpu_reasons(COMPAT, COMPAT.select(version)[0], machine)
    for option in recommend(COMPAT, Request(), machine).options:
        if option.recipe.value != "ngc":  # NVIDIA's own build of that version
            assert option.tensorflow in listed


# ---------------------------------------------------------------- the best release


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({}, "2.21.0"),
        ({"python": "3.8"}, "2.13.1"),
        ({"python": "3.7"}, "2.11.0"),
        ({"capability": "5.0"}, "2.16.2"),
        ({"capability": "3.5"}, "2.14.1"),
        ({"capability": "3.0"}, "1.4.1"),
        ({"capability": "2.1"}, None),
        ({"driver": "470.82.01"}, "2.14.1"),
        ({"driver": "440.33"}, "2.3.4"),
        ({"driver": "384.81"}, "1.12.3"),
        ({"driver": "340.1"}, None),
        ({"glibc": "2.17"}, "2.19.1"),  # the cuDNN wheels for 2.20 need glibc 2.27
        ({"spec": "<2.15"}, "2.14.1"),
    ],
)
def test_best_release_for_conditions(conditions: dict[str, str], expected: str | None) -> None:
    fields = {key: value for key, value in conditions.items() if key in ("driver", "glibc")}
    cards = [conditions["capability"]] if "capability" in conditions else []
    fit = find_best_fit(
        COMPAT, make_host(*cards, **fields), python=conditions.get("python"), spec=conditions.get("spec")
    )
    assert (None if fit is None else fit.release.version) == expected
    if fit is not None:
        assert can_use_release(COMPAT, fit.release, make_host(*cards, **fields), conditions.get("python"))


def test_package_tensorflow_is_preferred() -> None:
    """`tensorflow-gpu` of the same version has the same files."""
    packages = {release.version: release.package for release in list_candidates(COMPAT)}
    assert packages["2.11.0"] == packages["2.1.0"] == "tensorflow"
    assert packages["2.0.0"] == packages["1.14.0"] == "tensorflow-gpu"


def test_all_reasons_are_returned() -> None:
    release = COMPAT.select("2.21.0")[0]
    fit = fit_environment(COMPAT, release, make_host("3.5", driver="470.82.01", glibc="2.17"), "3.8")
    assert {reason.cause for reason in fit.reasons} == {
        Cause.GLIBC_TOO_OLD,
        Cause.NO_MATCHING_WHEEL,
        Cause.GPU_TOO_OLD,
        Cause.DRIVER_TOO_OLD,
    }
    assert all(reason.source for reason in fit.reasons)


def test_first_without_caveats_is_preferred() -> None:
    fits = [
        fit_environment(COMPAT, release, make_host("12.0")) for release in list_candidates(COMPAT, ">=2.20")
    ]
    assert choose_preferred(iter(())) is None
    with_caveats = [fit for fit in fits if fit.serious_count]
    assert with_caveats
    assert choose_preferred(with_caveats) is with_caveats[0]
    without_caveats = Fit(with_caveats[0].release, "3.11", None, (), ())
    assert choose_preferred([*with_caveats, without_caveats, fits[-1]]) is without_caveats


def test_hidden_cards_count_if_no_other_is_visible() -> None:
    facts = with_cards(healthy(), "9.0")
    assert [card.capability for card in build_host(facts, COMPAT).cards] == ["9.0"]
    both = with_cards(healthy(), "9.0", "3.5").driver.cuda
    facts = dataclasses.replace(facts, driver=dataclasses.replace(facts.driver, cuda_unhidden=both))
    assert [card.capability for card in build_host(facts, COMPAT).cards] == ["9.0"]
    hidden = with_cards(healthy()).driver.cuda
    facts = dataclasses.replace(facts, driver=dataclasses.replace(facts.driver, cuda=hidden))
    assert [card.capability for card in build_host(facts, COMPAT).cards] == ["9.0", "3.5"]
