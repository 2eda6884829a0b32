"""Which release serves a machine: one answer, in `recommend`, in `check`'s remedies, and in the matrix."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recorded import FOLDERS, list_events
from rules.make_facts import healthy, remove_libraries, with_cards, with_python
from tfdoctor import versions
from tfdoctor.compat import Compat
from tfdoctor.facts import TENSORFLOW_DISTRIBUTIONS, Absent, KernelModule, Known, Unknown, value_of
from tfdoctor.findings import Cause
from tfdoctor.fit import (
    Card,
    Fit,
    Host,
    build_host,
    can_serve,
    choose_preferred,
    find_best_fit,
    find_card_reasons,
    fit_environment,
    list_candidates,
)
from tfdoctor.fit.matrix import MatrixQuery, select_rows
from tfdoctor.plan import Method, Request, recommend
from tfdoctor.report.diagnose import diagnose

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tfdoctor.facts import Facts
    from tfdoctor.findings import Remedy

COMPAT = Compat.load()
NAMED = re.compile(
    r"(?:[Tt]ensor[Ff]low(?:-gpu)?(?:\[[a-z-]+\])?(?: |==)|--tf )(\d+\.\d+\.\d+(?:\.post1|rc\d)?)(?![\w.]*\d)"
)
MADE_WITH = re.compile(r"(?:uv venv --python |\bpython)(\d\.\d+)(?: -m venv)? tf-env")
NARROWER = frozenset({"TFD202", "TFD203"})
"""Their remedies keep something: the CUDA that is there, the minor. The release then need not be the best one."""
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


def host(*capabilities: str, **more: Any) -> Host:
    cards = tuple(Card(f"a card of {capability}", capability) for capability in capabilities)
    return Host(cards=cards, **more)


def list_named(remedy: Remedy) -> set[str]:
    """The releases that a remedy names."""
    return {version for text in (remedy.text, *remedy.commands) for version in NAMED.findall(text)}


def contradictions(facts: Facts) -> Iterator[str]:
    """The releases in `check`'s remedies that are not `recommend`'s."""
    report, machine = diagnose(facts, COMPAT), build_host(facts, COMPAT)
    tensorflow, python = value_of(facts.tensorflow), value_of(facts.python)
    installed = {tensorflow.version} if tensorflow is not None else set()
    if python is not None:
        installed |= {one.version for one in python.distributions if one.name in TENSORFLOW_DISTRIBUTIONS}
    for finding in report.findings:
        for remedy in finding.remedies:
            made = next((m[1] for text in remedy.commands if (m := MADE_WITH.search(text))), None)
            own = versions.major_minor(python.version) if python is not None else None
            updated = dataclasses.replace(machine, driver=None)
            later = remedy.text.startswith("After an update of the driver")
            for version in list_named(remedy) - installed:
                if finding.code in NARROWER:
                    fits = any(can_serve(COMPAT, r, machine, own) for r in COMPAT.select(f"=={version}"))
                else:
                    fits = answers(version, updated if later else machine, made or own)
                if not fits:
                    yield f"{finding.code}: {version} on {machine} ({remedy.text})"


def answers(version: str, machine: Host, python: str | None) -> bool:
    """Whether this is the first release of `recommend` for an environment of this Python."""
    first = recommend(COMPAT, Request(python=python, method=Method.PIP), machine)
    if first.conflict is None:
        return first.options[0].tensorflow == version
    # No release whose CUDA has wheels serves here: what is named has it from conda.
    found = find_best_fit(COMPAT, machine, python=python)
    return found is not None and found.cuda is None and found.release.version == version


def drop_tensorflow(facts: Facts) -> Facts:
    """Its Python without any TensorFlow."""
    python = value_of(facts.python)
    if python is None:
        return facts
    kept = [one for one in python.distributions if one.name not in TENSORFLOW_DISTRIBUTIONS]
    return with_python(facts, distributions=tuple(kept))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
@pytest.mark.few(40)
def test_a_remedy_names_the_release_that_recommend_names(folder: Path) -> None:
    facts = list_events(folder)
    nothing = Absent("site-packages", "no tensorflow")
    without = dataclasses.replace(drop_tensorflow(facts), tensorflow=nothing, loader=nothing)
    assert not [*contradictions(facts), *contradictions(without)]


def make_sample(
    installed: str | None,
    python: str,
    cards: tuple[str, ...],
    driver: str | None,
    glibc: str,
    *,
    libraries: bool,
) -> Facts:
    """A machine with these; `installed`: its TensorFlow."""
    facts = healthy(installed or "2.18.1", python=f"{python}.1")
    facts = with_cards(facts, *cards) if cards else facts
    facts = with_python(facts, glibc=glibc)
    facts = facts if libraries else remove_libraries(facts)
    module = Known(KernelModule(driver, True), "x") if driver is not None else Unknown("closed")
    answer = value_of(facts.driver.cuda)
    assert answer is not None
    speaks = COMPAT.newest_cuda_for_driver(driver) if driver is not None else answer.version
    known = Known(dataclasses.replace(answer, version=speaks), "libcuda.so.1")
    facts = dataclasses.replace(
        facts,
        driver=dataclasses.replace(
            facts.driver, kernel_module=module, cuda=known, nvml=Unknown("x"), smi=Unknown("x")
        ),
    )
    if installed is None:
        nothing = Absent("site-packages", "no tensorflow")
        facts = dataclasses.replace(drop_tensorflow(facts), tensorflow=nothing, loader=nothing)
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
def test_a_remedy_names_the_release_that_recommend_names_on_made_hosts(
    installed: str | None,
    python: str,
    cards: tuple[str, ...],
    driver: str | None,
    glibc: str,
    libraries: bool,
) -> None:
    facts = make_sample(installed, python, cards, driver, glibc, libraries=libraries)
    assert not list(contradictions(facts))


def test_the_property_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = make_sample(None, "3.11", ("8.6",), "570.86.10", "2.35", libraries=True)
    assert not list(contradictions(facts))
    monkeypatch.setattr(
        "tfdoctor.advice.releases.fit.find_best_fit",
        lambda *_, **__: find_best_fit(COMPAT, Host(), spec="==2.20.0"),
    )
    assert list(contradictions(facts))


# ---------------------------------------------------------------- the matrix


@pytest.mark.few(12)
@pytest.mark.parametrize("driver", [None, "450.80.02", "470.82.01", "570.86.10"])
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_the_matrix_lists_what_fits_and_nothing_else(capability: str, driver: str | None) -> None:
    rows = select_rows(COMPAT, MatrixQuery(capability=capability, driver=driver, gpu=True))
    listed = {row.release.version for row in rows if row.code != "arch-specific"}
    partly = {row.release.version for row in rows if row.code == "arch-specific"}
    machine = host(capability, driver=driver)
    for release in list_candidates(COMPAT):
        assert (release.version in listed) is not find_card_reasons(COMPAT, release, machine), release.version
    for version in partly:  # some kernels fail, says the matrix
        assert find_card_reasons(COMPAT, COMPAT.select(version)[0], machine)
    for option in recommend(COMPAT, Request(), machine).options:
        if option.recipe.value != "ngc":  # NVIDIA's own build of that version
            assert option.tensorflow in listed


# ---------------------------------------------------------------- the answer


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
        ({"glibc": "2.17"}, "2.19.1"),  # cuDNN's wheels for 2.20 need 2.27
        ({"spec": "<2.15"}, "2.14.1"),
    ],
)
def test_the_best_release(conditions: dict[str, str], expected: str | None) -> None:
    more = {key: value for key, value in conditions.items() if key in ("driver", "glibc")}
    cards = [conditions["capability"]] if "capability" in conditions else []
    found = find_best_fit(
        COMPAT, host(*cards, **more), python=conditions.get("python"), spec=conditions.get("spec")
    )
    assert (None if found is None else found.release.version) == expected
    if found is not None:
        assert can_serve(COMPAT, found.release, host(*cards, **more), conditions.get("python"))


def test_of_one_version_the_package_tensorflow() -> None:
    """`tensorflow-gpu` of the same version has the same files, and nobody pinned it."""
    packages = {release.version: release.package for release in list_candidates(COMPAT)}
    assert packages["2.11.0"] == packages["2.1.0"] == "tensorflow"
    assert packages["2.0.0"] == packages["1.14.0"] == "tensorflow-gpu"


def test_reasons_are_told_all() -> None:
    release = COMPAT.select("2.21.0")[0]
    found = fit_environment(COMPAT, release, host("3.5", driver="470.82.01", glibc="2.17"), "3.8")
    assert {reason.cause for reason in found.reasons} == {
        Cause.GLIBC_TOO_OLD,
        Cause.NO_MATCHING_WHEEL,
        Cause.GPU_TOO_OLD,
        Cause.DRIVER_TOO_OLD,
    }
    assert all(reason.source for reason in found.reasons)


def test_the_first_without_a_worry_is_preferred() -> None:
    fits = [fit_environment(COMPAT, release, host("12.0")) for release in list_candidates(COMPAT, ">=2.20")]
    assert choose_preferred(iter(())) is None
    worried = [fit for fit in fits if fit.serious]
    assert worried
    assert choose_preferred(worried) is worried[0]
    easy = Fit(worried[0].release, "3.11", None, (), ())
    assert choose_preferred([*worried, easy, fits[-1]]) is easy


def test_cards_that_a_variable_hides_count_where_nothing_else_is_shown() -> None:
    facts = with_cards(healthy(), "9.0")
    assert [card.capability for card in build_host(facts, COMPAT).cards] == ["9.0"]
    both = with_cards(healthy(), "9.0", "3.5").driver.cuda
    facts = dataclasses.replace(facts, driver=dataclasses.replace(facts.driver, cuda_unhidden=both))
    assert [card.capability for card in build_host(facts, COMPAT).cards] == ["9.0"]
    hidden = with_cards(healthy()).driver.cuda
    facts = dataclasses.replace(facts, driver=dataclasses.replace(facts.driver, cuda=hidden))
    assert [card.capability for card in build_host(facts, COMPAT).cards] == ["9.0", "3.5"]
