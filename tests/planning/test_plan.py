"""The planner against the tables that it reads, and against the rules of `check`."""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from compat.every_row import for_each
from rules.make_facts import context
from tfdoctor.compat import Compat, UnknownReleaseError
from tfdoctor.compat.folder import data_dir
from tfdoctor.core import versions
from tfdoctor.core.facts import Known
from tfdoctor.core.findings import Cause, Severity
from tfdoctor.diagnosis.report import diagnose
from tfdoctor.planning import (
    Method,
    Option,
    Recipe,
    Recommendation,
    Rejection,
    Request,
    make_predicted_facts,
    recipes,
    recommend,
)
from tfdoctor.planning.hypothetical_facts import EnvironmentSketch, make_facts_from_sketch
from tfdoctor.planning.recipes import RECIPES, try_recipe
from tfdoctor.prediction.fit import constraints
from tfdoctor.prediction.fit.models import Host, HostGpu
from tfdoctor.rules.shared.drivers import list_node_problems

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tfdoctor.compat import Release

COMPAT = Compat.load()
RELEASES = {
    row.version: row
    for row in COMPAT.releases
    if row.gpu and not row.is_prerelease and COMPAT.find_release(row.version) is row
}
FINAL_VERSIONS = [version for version in RELEASES if versions.is_at_least(version, "1.4")]
CAPABILITIES = (
    "3.0",
    "3.5",
    "3.7",
    "5.0",
    "5.2",
    "6.0",
    "6.1",
    "7.0",
    "7.5",
    "8.0",
    "8.6",
    "8.9",
    "9.0",
    "10.0",
    "12.0",
)
DRIVERS = (
    None,
    "384.81",
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
LAB = bool(os.environ.get("TFDOCTOR_LAB_FULL"))
PYTHONS = (None, "2.7", "3.5", "3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
MACHINE_CAUSES = frozenset({Cause.GPU_TOO_OLD, Cause.GPU_TOO_NEW, Cause.DRIVER_TOO_OLD})


def make_host(*capabilities: str, driver: str | None = None, **fields: Any) -> Host:
    cards = tuple(HostGpu(f"a card of {capability}", capability) for capability in capabilities)
    return Host(cards=cards, driver=driver, **fields)


def recommend_for(
    tensorflow: str | None = None, machine: Host | None = None, **fields: Any
) -> Recommendation:
    return recommend(COMPAT, Request(tensorflow=tensorflow, **fields), machine or Host())


def find_option(answer: Recommendation, recipe: Recipe) -> Option:
    matches = [option for option in answer.options if option.recipe is recipe]
    assert len(matches) == 1, f"no {recipe.value}"
    return matches[0]


def conflict_causes(answer: Recommendation) -> list[Cause]:
    assert answer.conflict is not None
    return [reason.cause for reason in answer.conflict.reasons]


# ---------------------------------------------------------------- every answer


@cache
def parse_tables(table: str) -> tuple[tuple[str, str], ...]:
    """Return the (kind, text) of each entry of a TOML table."""
    parts = re.split(r"^\[\[(\w+)\]\]$", (data_dir("compat") / table).read_text(encoding="utf-8"), flags=re.M)
    return tuple(zip(parts[1::2], parts[2::2], strict=True))


@cache
def has_table_entry(source: str) -> bool:
    table, _, rest = source.partition(": ")
    if table == "locks":  # the reason is that no lock exists
        return bool(rest)
    if table == "tensorflow.json":
        return not rest or any(f"{release.package} {release.version}" == rest for release in COMPAT.releases)
    if table == "problems.toml":
        return any(problem.id == rest for problem in COMPAT.problems)
    match = re.fullmatch(r"\[\[(\w+)\]\](?: (.+))?", rest)
    if match is None:
        return not rest and bool(parse_tables(table))
    key = match[2]
    return any(
        kind == match[1] and (key is None or f'"{key}"\n' in text or f"= {key}\n" in text)
        for kind, text in parse_tables(table)
    )


def check_answer(answer: Recommendation) -> None:
    assert bool(answer.options) is (answer.conflict is None)
    texts = [reason for item in answer.rejections for reason in item.reasons]
    assert all(item.reasons for item in answer.rejections)
    if answer.conflict is not None:
        assert answer.conflict.reasons
        texts += answer.conflict.reasons
        texts += [caveat for item in answer.conflict.suggestions for caveat in item.option.caveats]
    texts += [caveat for option in answer.options for caveat in option.caveats]
    for item in texts:
        assert isinstance(item.cause, Cause)
        assert len(item.text) > 20
        assert "None" not in item.text
        assert has_table_entry(item.source), item.source


def test_missing_table_entry_is_noticed() -> None:
    assert has_table_entry("cuda.toml: [[family]] 12")
    assert not has_table_entry("cuda.toml: [[family]] 99")
    assert not has_table_entry("cuda.toml: [[families]]")
    assert not has_table_entry("problems.toml: no-such")
    assert not has_table_entry("tensorflow.json: tensorflow 9.9")


def test_final_releases_are_complete() -> None:
    assert {"1.4.0", "1.15.5", "2.4.4", "2.15.0.post1", "2.21.0"} <= {*FINAL_VERSIONS}
    assert len(FINAL_VERSIONS) > 90


@for_each(FINAL_VERSIONS)
def test_every_release_has_options_or_reasons(version: str) -> None:
    answer = recommend_for(version)
    check_answer(answer)
    assert all(option.tensorflow == version for option in answer.options)
    assert len({option.recipe for option in answer.options}) == len(answer.options)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "machine",
    [
        make_host("3.0", driver="390.157"),
        make_host("8.6", driver="390"),
        make_host("12.0", "6.1"),
        make_host("5.0", driver="580"),
    ],
    ids=lambda machine: f"{'+'.join(card.capability for card in machine.cards)}, {machine.driver}",
)
def test_minors_on_unusual_machines(machine: Host) -> None:
    for tensorflow in ("1.12", "2.4", "2.15", None):
        check_answer(recommend_for(tensorflow, machine))


def test_reason_with_a_wrong_source_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constraints, "format_release_source", lambda _: "tensorflow.json: nothing 0.0")
    with pytest.raises(AssertionError):
        check_answer(recommend_for("1.14", make_host("8.9")))


# ---------------------------------------------------------------- plans pass check


def find_check_errors(
    release: Release, recipe: Recipe, machine: Host, python: str | None = None
) -> list[str] | None:
    """Return the errors that `check` would report for the finished plan; None if there is no plan."""
    answer = try_recipe(COMPAT, release, Request(python=python), machine, recipe)
    if isinstance(answer, Rejection):
        assert answer.reasons
        return None
    assert python in (None, answer.python)
    report = diagnose(make_predicted_facts(COMPAT, answer, machine), COMPAT)
    case = f"{release.version} {recipe.value} py{answer.python} {machine.cards} {machine.driver}"
    errors = [
        f"{case}: {finding.code} {finding.title}"
        for finding in report.findings
        if finding.severity is Severity.ERROR
    ]
    if report.verdict.gpu_usable is not True:
        errors.append(f"{case}: {report.verdict.summary}")
    return errors


def iter_combinations(
    pythons: Iterable[str | None],
) -> Iterator[tuple[str, Recipe, str, str | None, str | None]]:
    return itertools.product(RELEASES, RECIPES, CAPABILITIES, DRIVERS, pythons)


def check_plans(
    combinations: Iterable[tuple[str, Recipe, str, str | None, str | None]],
) -> tuple[int, list[str]]:
    """Return the number of plans, and what is wrong with them."""
    plans, problems = 0, []
    for version, recipe, capability, driver, python in combinations:
        errors = find_check_errors(RELEASES[version], recipe, make_host(capability, driver=driver), python)
        plans += errors is not None
        problems += errors or []
    return plans, problems


def test_sampled_plans_pass_check() -> None:
    # 499 is prime to the lengths of all axes, so each value is combined with many others.
    plans, problems = check_plans(itertools.islice(iter_combinations(PYTHONS), 7, None, 499))
    assert not problems
    assert plans > 50


def test_plans_for_suitable_machines_pass_check() -> None:
    """One new and one old machine for each release and recipe give mostly plans."""
    combinations = [
        (version, recipe, *machine, None)
        for number, version in enumerate(RELEASES)
        for recipe in RECIPES
        for machine in [(("6.1", "580.65.06"), ("7.0", None))[number % 2]]
    ]
    plans, problems = check_plans(combinations)
    assert not problems
    assert plans > 150


@pytest.mark.skipif(not LAB, reason="every combination takes minutes: TFDOCTOR_LAB_FULL=1")
@pytest.mark.timeout(3600)
def test_all_plans_pass_check() -> None:
    plans, problems = check_plans(iter_combinations([None]))
    assert not problems[:20]
    assert plans > 10_000
    plans, problems = check_plans(
        (version, recipe, "7.0", None, python)
        for version, recipe, python in itertools.product(RELEASES, RECIPES, PYTHONS)
    )
    assert not problems[:20]


@pytest.mark.parametrize(
    ("name", "version", "machine"),
    [
        ("_collect_gpu_results", "2.21.0", make_host("5.0", driver="570.86.10")),
        ("_collect_gpu_results", "2.18.1", make_host("12.0", driver="570.86.10")),
        ("_check_driver", "2.21.0", make_host("7.0", driver="470.82.01")),
        ("_check_driver", "2.10.1", make_host("7.0", driver="418.39")),
    ],
)
def test_missing_constraint_is_noticed(
    monkeypatch: pytest.MonkeyPatch, name: str, version: str, machine: Host
) -> None:
    assert all(find_check_errors(RELEASES[version], recipe, machine) is None for recipe in RECIPES)
    monkeypatch.setattr(constraints, name, lambda *_: ((), ()))
    errors = [find_check_errors(RELEASES[version], recipe, machine) for recipe in RECIPES]
    assert any(errors), f"nobody else would notice that {name} is gone"


# ---------------------------------------------------------------- unknown facts


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.value)
def test_unknown_machine_gives_no_machine_reason(recipe: Recipe) -> None:
    for release in RELEASES.values():
        answer = try_recipe(COMPAT, release, Request(), Host(), recipe)
        if isinstance(answer, Rejection):
            assert not MACHINE_CAUSES & {reason.cause for reason in answer.reasons}, release.version
        else:
            assert not {caveat.cause for caveat in answer.caveats if caveat.is_serious} & MACHINE_CAUSES, (
                release.version
            )


def test_unknown_facts_remove_no_option() -> None:
    for version in FINAL_VERSIONS[::9]:
        for recipe in RECIPES:
            for capability, driver in itertools.product(CAPABILITIES[::3], DRIVERS[1::3]):
                full = try_recipe(
                    COMPAT, RELEASES[version], Request(), make_host(capability, driver=driver), recipe
                )
                if isinstance(full, Option):
                    for machine in (make_host(capability), make_host(driver=driver), Host()):
                        answer = try_recipe(COMPAT, RELEASES[version], Request(), machine, recipe)
                        assert isinstance(answer, Option), (version, recipe, capability, driver)


def test_unknown_glibc_or_cpu_gives_no_reason() -> None:
    release = RELEASES["2.21.0"]
    assert isinstance(try_recipe(COMPAT, release, Request(), Host(), Recipe.VENV), Option)
    old = try_recipe(COMPAT, release, Request(), Host(glibc="2.17"), Recipe.VENV)
    assert isinstance(old, Rejection)
    assert old.reasons[0].cause is Cause.GLIBC_TOO_OLD
    plain = try_recipe(COMPAT, release, Request(), Host(cpu_flags=frozenset({"sse4_2"})), Recipe.VENV)
    assert isinstance(plain, Rejection)
    assert Cause.ILLEGAL_INSTRUCTION_AVX in {reason.cause for reason in plain.reasons}


# ---------------------------------------------------------------- named cases


def test_tensorflow_1_14_on_ada() -> None:
    answer = recommend_for("1.14", make_host("8.9", driver="530.30.02"))
    assert conflict_causes(answer)[0] is Cause.GPU_TOO_NEW
    assert answer.conflict is not None
    bases = [
        request.option.base.image
        for request in answer.conflict.suggestions
        if request.option.base is not None
    ]
    assert "nvcr.io/nvidia/tensorflow:23.03-tf1-py3" in bases
    without_driver = recommend_for("1.15", make_host("8.0")).options[0]
    assert any("on data-center cards" in caveat.text for caveat in without_driver.caveats)
    older = recommend_for("1.14", make_host("8.6", driver="470.82.01")).conflict
    assert older is not None
    ngc = [
        request.option.base.image
        for request in older.suggestions
        if request.option.recipe is Recipe.NGC
        if request.option.base
    ]
    assert ngc == ["nvcr.io/nvidia/tensorflow:21.10-tf1-py3"]


def test_blackwell_prefers_a_build_with_its_code() -> None:
    answer = recommend_for(None, make_host("12.0", driver="570.86.10"))
    best = answer.options[0]
    assert best.base is not None
    assert best.base.image == "nvcr.io/nvidia/tensorflow:25.02-tf2-py3", (
        "the one build with machine code for it"
    )
    assert not best.serious_count
    for option in answer.options[1:]:
        assert COMPAT.find_code(option.release, "12.0") == "jit"
        assert option.serious_count
    assert (
        conflict_causes(recommend_for("2.19", make_host("12.0", driver="570.86.10")))[0] is Cause.GPU_TOO_NEW
    )
    old = recommend_for("2.10", make_host("12.0", driver="570.86.10"))
    assert conflict_causes(old)[0] is Cause.GPU_TOO_NEW


def test_k80_is_supported_up_to_2_14() -> None:
    answer = recommend_for(None, make_host("3.7", driver="470.82.01"))
    assert {versions.major_minor(option.tensorflow) for option in answer.options[:1]} == {"2.14"}
    assert conflict_causes(recommend_for("2.15", make_host("3.7", driver="470.82.01")))[0] in MACHINE_CAUSES


def test_pascal_gets_a_cudnn_with_its_code() -> None:
    answer = recommend_for(None, make_host("6.0", driver="580.65.06"))
    best = find_option(answer, Recipe.PIP_CUDA)
    assert best.tensorflow == "2.21.0"
    assert best.cudnn is not None
    assert versions.major_minor(best.cudnn) == "9.10"


def test_two_cards_without_a_common_release() -> None:
    assert recommend_for("2.14", make_host("3.7")).options
    assert recommend_for("2.21", make_host("9.0")).options
    answer = recommend_for("2.21", make_host("9.0", "3.7"))
    assert conflict_causes(answer)[0] is Cause.GPU_TOO_OLD


def test_python_without_a_wheel_is_rejected() -> None:
    answer = recommend_for("2.10", python="3.12")
    assert conflict_causes(answer)[0] is Cause.NO_MATCHING_WHEEL
    assert answer.conflict is not None
    assert "3.10" in answer.conflict.reasons[0].text
    assert any(request.option.python == "3.10" for request in answer.conflict.suggestions)


def test_tensorflow_2_4_has_no_cuda_wheels() -> None:
    answer = recommend_for("2.4")
    assert [option.recipe for option in answer.options[-1:]] == [Recipe.CONDA_CUDA]
    assert {option.recipe for option in answer.options[:-1]} == {Recipe.OFFICIAL, Recipe.CUDA_BASE}
    base = find_option(answer, Recipe.CUDA_BASE).base
    assert base is not None
    assert base.image.startswith("nvidia/cuda:11.0.3-cudnn8-runtime-ubuntu")
    assert Cause.LIBS_NOT_INSTALLED in {
        reason.cause
        for rejected in answer.rejections
        if rejected.recipe in (Recipe.VENV, Recipe.PIP_CUDA)
        for reason in rejected.reasons
    }


def test_old_driver_limits_the_release() -> None:
    supported = recommend_for(None, make_host("6.1", driver="390"))
    assert versions.satisfies(supported.options[0].tensorflow, "<1.13")
    too_new = recommend_for(None, make_host("8.6", driver="390"))
    assert Cause.DRIVER_TOO_OLD in conflict_causes(too_new)
    assert too_new.conflict is not None
    assert any("driver" in request.text for request in too_new.conflict.suggestions)


@pytest.mark.parametrize(
    ("machine", "cause"),
    [
        (Host(system="Darwin", machine="arm64"), Cause.NO_DRIVER),
        (Host(machine="aarch64"), Cause.CPU_ONLY_BUILD),
        (Host(system="Darwin", machine="x86_64"), Cause.NO_DRIVER),
    ],
)
def test_unsupported_systems_have_a_conflict(machine: Host, cause: Cause) -> None:
    for tensorflow in (None, "2.15", "1.14"):
        answer = recommend_for(tensorflow, machine)
        assert conflict_causes(answer)[0] is cause
        assert answer.conflict is not None
        assert not answer.conflict.suggestions


def test_windows_has_containers_only() -> None:
    machine = Host(cards=(HostGpu("RTX 3060", "8.6"),), driver="576.02", system="Windows", machine="AMD64")
    answer = recommend_for("2.15", machine)
    assert {option.method for option in answer.options} == {Method.CONTAINER}
    pip_answer = recommend_for("2.15", machine, method=Method.PIP)
    assert Cause.WINDOWS_NATIVE_UNSUPPORTED in conflict_causes(pip_answer)


@pytest.mark.parametrize("machine", [{"is_wsl": True}, {"system": "Windows", "machine": "AMD64"}])
def test_windows_driver_counts_under_wsl(machine: dict[str, object]) -> None:
    """525.60.13 is new enough as a Linux driver; Windows needs 527.41 for the same CUDA."""
    assert recommend_for("2.15", make_host("8.6", driver="526.98"), recipe=Recipe.PIP_CUDA).options
    answer = recommend_for("2.15", make_host("8.6", driver="526.98", **machine), recipe=Recipe.PIP_CUDA)
    assert conflict_causes(answer) == [Cause.DRIVER_TOO_OLD]
    assert recommend_for("2.15", make_host("8.6", driver="528.33", **machine), recipe=Recipe.PIP_CUDA).options


# ---------------------------------------------------------------- version specifiers


@pytest.mark.parametrize(
    ("spec", "version"),
    [
        ("2.15", "2.15.1"),
        ("2.15.0", "2.15.0"),
        ("2.15.0.post1", "2.15.0.post1"),
        ("==2.15.0", "2.15.0"),
        (">=2.10,<2.13", "2.12.1"),
        ("~=2.4.1", "2.4.4"),
        ("2", "2.21.0"),
        ("latest", "2.21.0"),
        ("2.22.0rc0", "2.22.0rc0"),
    ],
)
def test_version_specifiers(spec: str, version: str) -> None:
    answer = recommend_for(spec)
    check_answer(answer)
    versions_shown = {option.tensorflow for option in answer.options} or {
        rejected.tensorflow for rejected in answer.rejections
    }
    assert version in versions_shown


@pytest.mark.parametrize(("capability", "driver"), [("3.7", "470.82"), ("8.6", "390"), ("12.0", None)])
def test_post_release_is_planned(capability: str, driver: str | None) -> None:
    """If no release fits, all are examined, including 2.15.0.post1."""
    check_answer(recommend_for("2.15.0.post1", make_host(capability, driver=driver)))
    check_answer(recommend_for("==2.15.*", make_host(capability, driver=driver)))


def test_tensorflow_2_15_0_uses_no_broken_extra() -> None:
    option = find_option(recommend_for("2.15.0"), Recipe.VENV)
    assert not any("tensorrt" in name or "and-cuda" in name for name in option.pinned_requirements)
    assert any("nvidia-cudnn-cu12==8.9" in name for name in option.pinned_requirements)


def test_prerelease_needs_an_explicit_request() -> None:
    assert not any(option.release.is_prerelease for option in recommend_for(None).options)
    named = recommend_for("2.22.0rc0")
    assert all(
        any("not a final release" in caveat.text for caveat in option.caveats) for option in named.options
    )


def test_yanked_release_needs_an_explicit_request() -> None:
    yanked = [release for release in RELEASES.values() if release.yanked]
    assert not any(option.release.yanked for option in recommend_for(None).options)
    for release in yanked:
        assert all(
            any("yanked" in caveat.text and caveat.is_serious for caveat in option.caveats)
            for option in recommend_for(release.version).options
        )


@pytest.mark.parametrize("spec", ["0.12", "99", "2.99.1"])
def test_unknown_release_is_an_error(spec: str) -> None:
    with pytest.raises(UnknownReleaseError):
        recommend_for(spec)


@pytest.mark.parametrize("spec", ["", "x", "2.x", ">=", "2.15;rm", "⅖"])
def test_invalid_specifier_is_an_error(spec: str) -> None:
    with pytest.raises(versions.VersionSyntaxError):
        recommend_for(spec)


# ---------------------------------------------------------------- commands


def test_environment_gets_links_if_tensorflow_needs_them() -> None:
    for version in ("2.10.1", "2.16.1", "2.21.0"):
        assert any(
            "links put" in text for text in find_option(recommend_for(version), Recipe.VENV).reasons
        ), version
    for version in ("2.14.1", "2.16.2", "2.20.0"):
        assert not any(
            "links put" in text for text in find_option(recommend_for(version), Recipe.VENV).reasons
        ), version


def test_environment_is_installed_from_a_lock() -> None:
    for release in COMPAT.releases:
        if (
            release.package != "tensorflow"
            or COMPAT.cuda_sets.find_for_release(release.version) is None
            or release.is_prerelease
        ):
            continue
        option = find_option(recommend_for(f"=={release.version}"), Recipe.VENV)
        assert option.commands == (f"tfdoctor install --tf {release.version}",)
        assert COMPAT.locks.get_path("tensorflow", release.version, option.python).is_file()
    option = find_option(recommend_for("2.15.1", python="3.10"), Recipe.VENV)
    assert option.commands == ("tfdoctor install --tf 2.15.1 --python-version 3.10",)


def test_build_command_selects_the_same_option() -> None:
    for version in FINAL_VERSIONS[::7]:
        for option in recommend_for(version, method=Method.CONTAINER).options:
            arguments = option.commands[0].split()
            assert arguments[:2] == ["tfdoctor", "build"]
            rebuilt = recommend_for(
                arguments[arguments.index("--tf") + 1],
                recipe=Recipe(arguments[arguments.index("--recipe") + 1]),
            )
            assert rebuilt.options[0].base == option.base
            assert rebuilt.options[0].python == option.python


@pytest.mark.parametrize(
    ("machine", "spec", "words"),
    [
        (make_host("8.0", driver="525"), "1.15", " --gpu 8.0 --driver 525"),
        (make_host("3.7"), "2.13", " --gpu 3.7"),
        (make_host("8.0", "3.7", "3.7"), "2.13.1", " --gpu 8.0 --gpu 3.7"),
        (make_host("8.6"), "2.13", ""),
        (make_host("8.0", driver="525"), "2.20", ""),
    ],
)
def test_build_command_names_the_machine_if_needed(machine: Host, spec: str, words: str) -> None:
    commands = [
        option.commands[0] for option in recommend_for(spec, machine).options if option.base is not None
    ]
    assert any(command.endswith(words) for command in commands)
    assert words or not any("--gpu" in command or "--driver" in command for command in commands)


@pytest.mark.few(0)
def test_build_command_gives_the_same_base_elsewhere() -> None:
    for capability, driver in itertools.product(CAPABILITIES, DRIVERS[:: 1 if LAB else 3]):
        for spec in ("1.15", "2.13", "2.17", None) if LAB or driver is None else ("1.15", "2.13"):
            for option in recommend_for(
                spec, make_host(capability, driver=driver), method=Method.CONTAINER
            ).options:
                arguments = option.commands[0].split()
                flags = dict(zip(arguments[2::2], arguments[3::2], strict=True))
                machine = make_host(flags["--gpu"]) if "--gpu" in flags else Host()
                machine = replace(machine, driver=flags.get("--driver"))
                rebuilt = recommend_for(flags["--tf"], machine, recipe=Recipe(flags["--recipe"])).options[0]
                assert (rebuilt.base, rebuilt.python) == (option.base, option.python), option.commands


def test_image_without_caveats_is_preferred() -> None:
    """The newest image was made for a newer driver, which it may not need; an older one was made for this driver."""
    option = find_option(recommend_for("1.15", make_host("8.0", driver="520.61.05")), Recipe.NGC)
    assert option.base is not None
    assert option.base.image == "nvcr.io/nvidia/tensorflow:22.10-tf1-py3"
    assert not option.serious_count
    newer = find_option(recommend_for("2.17", make_host("9.0", driver="560.28.03")), Recipe.NGC)
    assert newer.base is not None
    assert newer.base.image == "nvcr.io/nvidia/tensorflow:25.02-tf2-py3", "the only one"
    assert newer.serious_count


@pytest.mark.parametrize(
    ("tensorflow", "recipe", "folder", "version", "is_container"),
    [
        ("2.15.1", Recipe.VENV, "/opt/tensorflow/lib/python3.11/site-packages/nvidia/", "2.15.1", False),
        ("2.15.1", Recipe.PIP_CUDA, "/opt/tensorflow/lib/python3.11/site-packages/nvidia/", "2.15.1", True),
        ("2.4.4", Recipe.CUDA_BASE, "/usr/lib/x86_64-linux-gnu/", "2.4.4", True),
        ("1.15.5", Recipe.NGC, "/usr/lib/x86_64-linux-gnu/", "1.15.5+nv23.03", True),
    ],
)
def test_predicted_facts_follow_the_recipe(
    tensorflow: str, recipe: Recipe, folder: str, version: str, is_container: bool
) -> None:
    option = recommend_for(tensorflow, recipe=recipe).options[0]
    facts = make_predicted_facts(COMPAT, option, Host(glibc="2.39"))
    loader, python, build = (getattr(facts, name).value for name in ("loader", "python", "tensorflow"))
    paths = [item.path for item in loader.resolutions if item.soname in option.release.required_libraries]
    assert paths
    assert [path for path in paths if not path.startswith(folder)] == []
    assert (build.version, facts.machine.container) == (version, "docker" if is_container else None)
    assert python.glibc == (None if is_container else "2.39")
    names = {distribution.name for distribution in python.distributions}
    assert any(name.startswith("nvidia-cudnn") for name in names) is folder.endswith("nvidia/")
    assert ("numpy" in names) is (recipe is not Recipe.NGC)
    assert ("numpy" in python.modules) is (recipe is Recipe.NGC)


@pytest.mark.parametrize(
    ("driver", "module", "cuda"),
    [
        (None, None, COMPAT.cuda_releases[-1].version),
        ("550", "550.9999", "12.4"),
        ("535.104.05", "535.104.05", "12.2"),
    ],
)
def test_predicted_driver(driver: str | None, module: str | None, cuda: str) -> None:
    option = recommend_for("2.15.1", recipe=Recipe.VENV).options[0]
    facts = make_predicted_facts(COMPAT, option, make_host("8.6", "7.5", driver=driver)).driver
    assert getattr(getattr(facts.kernel_module, "value", None), "version", None) == module
    assert facts.cuda.value.version == versions.major_minor(cuda)
    assert [device.compute_capability for device in facts.cuda.value.devices] == ["8.6", "7.5"]
    assert [device.pci_bus_id for device in facts.nvml.value.devices] == ["0000:01:00.0", "0000:02:00.0"]


@pytest.mark.parametrize(
    ("python", "requested", "reason"),
    [
        ("3.8", None, None),
        ("3.8", "3.8", None),
        ("3.8", "3.9", "has Python 3.8, and not 3.9"),
        (None, "3.9", "has Python of an unknown version, and not 3.9"),
        (None, None, "has is not known"),
    ],
)
@pytest.mark.parametrize("driver", [None, "550.54.14"])
def test_image_of_nvidia_needs_the_requested_python(
    python: str | None, requested: str | None, reason: str | None, driver: str | None
) -> None:
    release = COMPAT.find_release("2.10.1")
    image = replace(COMPAT.images.ngc_images[0], python=python)
    reasons: list[Any] = []
    host = Host(driver=driver)
    options = list(
        recipes._plan_ngc_images(COMPAT, release, Request(python=requested), host, [image] * 2, reasons)
    )
    assert [option.python for option in options] == ([] if reason else [python, python])
    assert [each.text for each in reasons if not each.text.endswith(reason or "")] == []
    assert len(reasons) == bool(reason)
    for option in options:
        assert any("needs driver" in caveat.text for caveat in option.caveats) == (driver is None)


def test_predicted_machine_has_the_nodes_that_the_driver_needs() -> None:
    packages = (("tensorflow", "2.16.2"),)
    sketch = EnvironmentSketch("2.16.2", "tensorflow", "3.11", packages, host=Host(driver="550.54.14"))
    facts = make_facts_from_sketch(COMPAT, sketch)
    assert isinstance(facts.driver.cuda, Known)
    failure = replace(facts.driver.cuda.value, count=None, init=999)
    failing = replace(facts, driver=replace(facts.driver, cuda=Known(failure, "x")))
    assert list_node_problems(context(failing)) == []


@pytest.mark.parametrize(
    ("version", "cause"),
    [("2.15.0", Cause.LIBS_WRONG_VERSION), ("2.18.1", Cause.CUDNN_VERSION_MISMATCH)],
)
def test_image_that_does_not_work_has_the_cause_of_its_libraries(version: str, cause: Cause) -> None:
    rejection = try_recipe(COMPAT, RELEASES[version], Request(), Host(), Recipe.OFFICIAL)
    assert isinstance(rejection, Rejection)
    assert [reason.cause for reason in rejection.reasons] == [cause]


@pytest.mark.parametrize(("version", "is_only_image"), [("2.3.4", True), ("2.10.1", False)])
def test_image_of_an_old_cuda_is_to_be_kept(version: str, is_only_image: bool) -> None:
    option = try_recipe(COMPAT, RELEASES[version], Request(), Host(driver="550.54.14"), Recipe.OFFICIAL)
    assert isinstance(option, Option)
    assert ("is the only image left" in option.reasons[0]) is is_only_image
