"""The planner against the tables it plans from, and against `check`'s own rules."""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from tfdoctor import versions
from tfdoctor.compat import Compat, UnknownReleaseError
from tfdoctor.compat.folder import data_dir
from tfdoctor.findings import Cause, Severity
from tfdoctor.fit import Card, Host, constraints
from tfdoctor.plan import (
    Method,
    Option,
    Recipe,
    Recommendation,
    Rejected,
    Request,
    make_predicted_facts,
    recommend,
)
from tfdoctor.plan.recipes import RECIPES, tries
from tfdoctor.report.diagnose import diagnose

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tfdoctor.compat import Release

COMPAT = Compat.load()
RELEASES = {
    row.version: row
    for row in COMPAT.releases
    if row.gpu and not row.is_prerelease and COMPAT.release(row.version) is row
}
FINAL = [version for version in RELEASES if versions.is_at_least(version, "1.4")]
GENERATIONS = (
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
OF_THE_MACHINE = frozenset({Cause.GPU_TOO_OLD, Cause.GPU_TOO_NEW, Cause.DRIVER_TOO_OLD})


def host(*capabilities: str, driver: str | None = None, **more: Any) -> Host:
    cards = tuple(Card(f"a card of {capability}", capability) for capability in capabilities)
    return Host(cards=cards, driver=driver, **more)


def ask(tensorflow: str | None = None, machine: Host | None = None, **more: Any) -> Recommendation:
    return recommend(COMPAT, Request(tensorflow=tensorflow, **more), machine or Host())


def option_of(answer: Recommendation, recipe: Recipe) -> Option:
    found = [option for option in answer.options if option.recipe is recipe]
    assert len(found) == 1, f"no {recipe.value}"
    return found[0]


def causes(answer: Recommendation) -> list[Cause]:
    assert answer.conflict is not None
    return [reason.cause for reason in answer.conflict.reasons]


# ---------------------------------------------------------------- what every answer has


@cache
def blocks(table: str) -> tuple[tuple[str, str], ...]:
    """(kind, text) of each row of a TOML table."""
    parts = re.split(r"^\[\[(\w+)\]\]$", (data_dir("compat") / table).read_text(encoding="utf-8"), flags=re.M)
    return tuple(zip(parts[1::2], parts[2::2], strict=True))


@cache
def named_row_exists(source: str) -> bool:
    table, _, rest = source.partition(": ")
    if table == "locks":  # the reason is that there is none
        return bool(rest)
    if table == "tensorflow.json":
        return not rest or any(f"{row.package} {row.version}" == rest for row in COMPAT.releases)
    if table == "problems.toml":
        return any(problem.id == rest for problem in COMPAT.problems)
    match = re.fullmatch(r"\[\[(\w+)\]\](?: (.+))?", rest)
    if match is None:
        return not rest and bool(blocks(table))
    key = match[2]
    return any(
        kind == match[1] and (key is None or f'"{key}"\n' in text or f"= {key}\n" in text)
        for kind, text in blocks(table)
    )


def check_answer(answer: Recommendation) -> None:
    assert bool(answer.options) is (answer.conflict is None)
    told = [reason for one in answer.rejected for reason in one.reasons]
    assert all(one.reasons for one in answer.rejected)
    if answer.conflict is not None:
        assert answer.conflict.reasons
        told += answer.conflict.reasons
        told += [caveat for one in answer.conflict.nearest for caveat in one.option.caveats]
    told += [caveat for option in answer.options for caveat in option.caveats]
    for one in told:
        assert isinstance(one.cause, Cause)
        assert len(one.text) > 20
        assert "None" not in one.text
        assert named_row_exists(one.source), one.source


def test_a_source_that_is_not_there_is_noticed() -> None:
    assert named_row_exists("cuda.toml: [[family]] 12")
    assert not named_row_exists("cuda.toml: [[family]] 99")
    assert not named_row_exists("cuda.toml: [[families]]")
    assert not named_row_exists("problems.toml: no-such")
    assert not named_row_exists("tensorflow.json: tensorflow 9.9")


def test_there_are_the_releases_that_are_meant() -> None:
    assert {"1.4.0", "1.15.5", "2.4.4", "2.15.0.post1", "2.21.0"} <= {*FINAL}
    assert len(FINAL) > 90


@pytest.mark.parametrize("version", FINAL)
def test_every_release_has_a_way_or_says_why_not(version: str) -> None:
    answer = ask(version)
    check_answer(answer)
    assert all(option.tensorflow == version for option in answer.options)
    assert len({option.recipe for option in answer.options}) == len(answer.options)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "machine",
    [
        host("3.0", driver="390.157"),
        host("8.6", driver="390"),
        host("12.0", "6.1"),
        host("5.0", driver="580"),
    ],
    ids=lambda machine: f"{'+'.join(card.capability for card in machine.cards)}, {machine.driver}",
)
def test_every_minor_on_odd_machines(machine: Host) -> None:
    for wish in ("1.12", "2.4", "2.15", None):
        check_answer(ask(wish, machine))


def test_reasons_that_cannot_be_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constraints, "format_row", lambda _: "tensorflow.json: nothing 0.0")
    with pytest.raises(AssertionError):
        check_answer(ask("1.14", host("8.9")))


# ---------------------------------------------------------------- a plan's own facts raise no error


def errors_of(release: Release, recipe: Recipe, machine: Host, python: str | None = None) -> list[str] | None:
    """What `check` would say of the finished plan; None where there is no plan."""
    answer = tries(COMPAT, release, Request(python=python), machine, recipe)
    if isinstance(answer, Rejected):
        assert answer.reasons
        return None
    assert python in (None, answer.python)
    report = diagnose(make_predicted_facts(COMPAT, answer, machine), COMPAT)
    what = f"{release.version} {recipe.value} py{answer.python} {machine.cards} {machine.driver}"
    found = [f"{what}: {f.code} {f.title}" for f in report.findings if f.severity is Severity.ERROR]
    if report.verdict.gpu_usable is not True:
        found.append(f"{what}: {report.verdict.summary}")
    return found


def combinations(pythons: Iterable[str | None]) -> Iterator[tuple[str, Recipe, str, str | None, str | None]]:
    return itertools.product(RELEASES, RECIPES, GENERATIONS, DRIVERS, pythons)


def sweep(chosen: Iterable[tuple[str, Recipe, str, str | None, str | None]]) -> tuple[int, list[str]]:
    """How many plans there were, and what is wrong with them."""
    plans, wrong = 0, []
    for version, recipe, capability, driver, python in chosen:
        found = errors_of(RELEASES[version], recipe, host(capability, driver=driver), python)
        plans += found is not None
        wrong += found or []
    return plans, wrong


def test_no_plan_raises_an_error_sampled() -> None:
    # 499 is prime to the lengths of all axes: each value of each meets many of the others.
    plans, wrong = sweep(itertools.islice(combinations(PYTHONS), 7, None, 499))
    assert not wrong
    assert plans > 50


def test_no_plan_of_a_fitting_machine_raises_an_error() -> None:
    """One new and one old machine for each release and recipe: most of them are plans."""
    chosen = [
        (version, recipe, *machine, None)
        for number, version in enumerate(RELEASES)
        for recipe in RECIPES
        for machine in [(("6.1", "580.65.06"), ("7.0", None))[number % 2]]
    ]
    plans, wrong = sweep(chosen)
    assert not wrong
    assert plans > 150


@pytest.mark.skipif(not LAB, reason="every combination takes minutes: TFDOCTOR_LAB_FULL=1")
@pytest.mark.timeout(3600)
def test_no_plan_raises_an_error() -> None:
    plans, wrong = sweep(combinations([None]))
    assert not wrong[:20]
    assert plans > 10_000
    plans, wrong = sweep(
        (version, recipe, "7.0", None, python)
        for version, recipe, python in itertools.product(RELEASES, RECIPES, PYTHONS)
    )
    assert not wrong[:20]


@pytest.mark.parametrize(
    ("name", "version", "machine"),
    [
        ("check_cards", "2.21.0", host("5.0", driver="570.86.10")),
        ("check_cards", "2.18.1", host("12.0", driver="570.86.10")),
        ("check_driver", "2.21.0", host("7.0", driver="470.82.01")),
        ("check_driver", "2.10.1", host("7.0", driver="418.39")),
    ],
)
def test_the_property_can_fail(
    monkeypatch: pytest.MonkeyPatch, name: str, version: str, machine: Host
) -> None:
    assert all(errors_of(RELEASES[version], recipe, machine) is None for recipe in RECIPES)
    monkeypatch.setattr(constraints, name, lambda *_: None)
    found = [errors_of(RELEASES[version], recipe, machine) for recipe in RECIPES]
    assert any(found), f"nobody else would notice that {name} is gone"


# ---------------------------------------------------------------- what is not known


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.value)
def test_an_unknown_machine_is_no_reason(recipe: Recipe) -> None:
    for release in RELEASES.values():
        answer = tries(COMPAT, release, Request(), Host(), recipe)
        if isinstance(answer, Rejected):
            assert not OF_THE_MACHINE & {reason.cause for reason in answer.reasons}, release.version
        else:
            assert not {c.cause for c in answer.caveats if c.serious} & OF_THE_MACHINE, release.version


def test_knowing_less_never_takes_an_option_away() -> None:
    for version in FINAL[::9]:
        for recipe in RECIPES:
            for capability, driver in itertools.product(GENERATIONS[::3], DRIVERS[1::3]):
                known = tries(COMPAT, RELEASES[version], Request(), host(capability, driver=driver), recipe)
                if isinstance(known, Option):
                    for less in (host(capability), host(driver=driver), Host()):
                        answer = tries(COMPAT, RELEASES[version], Request(), less, recipe)
                        assert isinstance(answer, Option), (version, recipe, capability, driver)


def test_an_unknown_glibc_or_processor_is_no_reason() -> None:
    release = RELEASES["2.21.0"]
    assert isinstance(tries(COMPAT, release, Request(), Host(), Recipe.VENV), Option)
    old = tries(COMPAT, release, Request(), Host(glibc="2.17"), Recipe.VENV)
    assert isinstance(old, Rejected)
    assert old.reasons[0].cause is Cause.GLIBC_TOO_OLD
    plain = tries(COMPAT, release, Request(), Host(cpu_flags=frozenset({"sse4_2"})), Recipe.VENV)
    assert isinstance(plain, Rejected)
    assert Cause.ILLEGAL_INSTRUCTION_AVX in {reason.cause for reason in plain.reasons}


# ---------------------------------------------------------------- named cases


def test_tf_114_on_ada() -> None:
    answer = ask("1.14", host("8.9", driver="530.30.02"))
    assert causes(answer)[0] is Cause.GPU_TOO_NEW
    assert answer.conflict is not None
    bases = [one.option.base.image for one in answer.conflict.nearest if one.option.base is not None]
    assert "nvcr.io/nvidia/tensorflow:23.03-tf1-py3" in bases
    older = ask("1.14", host("8.6", driver="470.82.01")).conflict
    assert older is not None
    ngc = [
        one.option.base.image for one in older.nearest if one.option.recipe is Recipe.NGC if one.option.base
    ]
    assert ngc == ["nvcr.io/nvidia/tensorflow:21.10-tf1-py3"]


def test_blackwell() -> None:
    answer = ask(None, host("12.0", driver="570.86.10"))
    best = answer.options[0]
    assert best.base is not None
    assert best.base.image == "nvcr.io/nvidia/tensorflow:25.02-tf2-py3", (
        "the one build with machine code for it"
    )
    assert not best.serious
    for option in answer.options[1:]:
        assert COMPAT.code_for(option.release, "12.0") == "jit"
        assert option.serious
    assert causes(ask("2.19", host("12.0", driver="570.86.10")))[0] is Cause.GPU_TOO_NEW
    old = ask("2.10", host("12.0", driver="570.86.10"))
    assert causes(old)[0] is Cause.GPU_TOO_NEW


def test_k80_ends_with_214() -> None:
    answer = ask(None, host("3.7", driver="470.82.01"))
    assert {versions.major_minor(option.tensorflow) for option in answer.options[:1]} == {"2.14"}
    assert causes(ask("2.15", host("3.7", driver="470.82.01")))[0] in OF_THE_MACHINE


def test_pascal_keeps_a_cudnn_with_its_code() -> None:
    answer = ask(None, host("6.0", driver="580.65.06"))
    best = option_of(answer, Recipe.PIP_CUDA)
    assert best.tensorflow == "2.21.0"
    assert best.cudnn is not None
    assert versions.major_minor(best.cudnn) == "9.10"


def test_two_cards_of_which_each_alone_is_served() -> None:
    assert ask("2.14", host("3.7")).options
    assert ask("2.21", host("9.0")).options
    answer = ask("2.21", host("9.0", "3.7"))
    assert causes(answer)[0] is Cause.GPU_TOO_OLD


def test_a_python_without_a_wheel() -> None:
    answer = ask("2.10", python="3.12")
    assert causes(answer)[0] is Cause.NO_MATCHING_WHEEL
    assert answer.conflict is not None
    assert "3.10" in answer.conflict.reasons[0].text
    assert any(one.option.python == "3.10" for one in answer.conflict.nearest)


def test_24_has_no_wheels_of_cuda() -> None:
    answer = ask("2.4")
    assert [option.recipe for option in answer.options[-1:]] == [Recipe.CONDA_CUDA]
    assert {option.recipe for option in answer.options[:-1]} == {Recipe.OFFICIAL, Recipe.CUDA_BASE}
    base = option_of(answer, Recipe.CUDA_BASE).base
    assert base is not None
    assert base.image.startswith("nvidia/cuda:11.0.3-cudnn8-runtime-ubuntu")
    assert Cause.LIBS_NOT_INSTALLED in {
        reason.cause
        for one in answer.rejected
        if one.recipe in (Recipe.VENV, Recipe.PIP_CUDA)
        for reason in one.reasons
    }


def test_a_driver_of_long_ago() -> None:
    fits = ask(None, host("6.1", driver="390"))
    assert versions.satisfies(fits.options[0].tensorflow, "<1.13")
    too_new = ask(None, host("8.6", driver="390"))
    assert Cause.DRIVER_TOO_OLD in causes(too_new)
    assert too_new.conflict is not None
    assert any("driver" in one.text for one in too_new.conflict.nearest)


@pytest.mark.parametrize(
    ("machine", "cause"),
    [
        (Host(system="Darwin", machine="arm64"), Cause.NO_DRIVER),
        (Host(machine="aarch64"), Cause.CPU_ONLY_BUILD),
        (Host(system="Darwin", machine="x86_64"), Cause.NO_DRIVER),
    ],
)
def test_systems_without_a_way(machine: Host, cause: Cause) -> None:
    for wish in (None, "2.15", "1.14"):
        answer = ask(wish, machine)
        assert causes(answer)[0] is cause
        assert answer.conflict is not None
        assert not answer.conflict.nearest


def test_windows_has_containers_alone() -> None:
    machine = Host(cards=(Card("RTX 3060", "8.6"),), driver="576.02", system="Windows", machine="AMD64")
    answer = ask("2.15", machine)
    assert {option.method for option in answer.options} == {Method.CONTAINER}
    alone = ask("2.15", machine, method=Method.PIP)
    assert Cause.WINDOWS_NATIVE_UNSUPPORTED in causes(alone)


@pytest.mark.parametrize("machine", [{"wsl": True}, {"system": "Windows", "machine": "AMD64"}])
def test_below_windows_its_driver_counts(machine: dict[str, object]) -> None:
    """525.60.13 is new enough as a Linux driver; Windows needs 527.41 for the same CUDA."""
    assert ask("2.15", host("8.6", driver="526.98"), recipe=Recipe.PIP_CUDA).options
    answer = ask("2.15", host("8.6", driver="526.98", **machine), recipe=Recipe.PIP_CUDA)
    assert causes(answer) == [Cause.DRIVER_TOO_OLD]
    assert ask("2.15", host("8.6", driver="528.33", **machine), recipe=Recipe.PIP_CUDA).options


# ---------------------------------------------------------------- how TensorFlow is named


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
def test_specifications(spec: str, version: str) -> None:
    answer = ask(spec)
    check_answer(answer)
    shown = {option.tensorflow for option in answer.options} or {one.tensorflow for one in answer.rejected}
    assert version in shown


@pytest.mark.parametrize(("capability", "driver"), [("3.7", "470.82"), ("8.6", "390"), ("12.0", None)])
def test_a_post_release_is_a_release(capability: str, driver: str | None) -> None:
    """All releases are looked at where none fits, 2.15.0.post1 among them."""
    check_answer(ask("2.15.0.post1", host(capability, driver=driver)))
    check_answer(ask("==2.15.*", host(capability, driver=driver)))


def test_2150_has_our_set_where_its_extra_cannot_be_installed() -> None:
    option = option_of(ask("2.15.0"), Recipe.VENV)
    assert not any("tensorrt" in name or "and-cuda" in name for name in option.packages)
    assert any("nvidia-cudnn-cu12==8.9" in name for name in option.packages)


def test_a_prerelease_is_for_those_who_name_it() -> None:
    assert not any(option.release.is_prerelease for option in ask(None).options)
    named = ask("2.22.0rc0")
    assert all(
        any("not a final release" in caveat.text for caveat in option.caveats) for option in named.options
    )


def test_a_yanked_release_is_for_those_who_name_it() -> None:
    yanked = [row for row in RELEASES.values() if row.yanked]
    assert not any(option.release.yanked for option in ask(None).options)
    for row in yanked:
        assert all(
            any("yanked" in caveat.text and caveat.serious for caveat in option.caveats)
            for option in ask(row.version).options
        )


@pytest.mark.parametrize("spec", ["0.12", "99", "2.99.1"])
def test_a_release_that_is_not_known(spec: str) -> None:
    with pytest.raises(UnknownReleaseError):
        ask(spec)


@pytest.mark.parametrize("spec", ["", "x", "2.x", ">=", "2.15;rm", "⅖"])
def test_no_specification(spec: str) -> None:
    with pytest.raises(versions.VersionSyntaxError):
        ask(spec)


# ---------------------------------------------------------------- what is typed for it


def test_an_environment_is_linked_where_tensorflow_does_not_look() -> None:
    for version in ("2.10.1", "2.16.1", "2.21.0"):
        assert any("links put" in text for text in option_of(ask(version), Recipe.VENV).reasons), version
    for version in ("2.14.1", "2.16.2", "2.20.0"):
        assert not any("links put" in text for text in option_of(ask(version), Recipe.VENV).reasons), version


def test_an_environment_is_made_by_install_and_always_from_a_lock() -> None:
    for row in COMPAT.releases:
        if row.package != "tensorflow" or COMPAT.cuda_set(row.version) is None or row.is_prerelease:
            continue
        option = option_of(ask(f"=={row.version}"), Recipe.VENV)
        assert option.commands == (f"tfdoctor install --tf {row.version}",)
        assert COMPAT.locks.path("tensorflow", row.version, option.python).is_file()
    option = option_of(ask("2.15.1", python="3.10"), Recipe.VENV)
    assert option.commands == ("tfdoctor install --tf 2.15.1 --python 3.10",)


def test_a_container_is_built_by_the_command_that_is_shown() -> None:
    for version in FINAL[::7]:
        for option in ask(version, method=Method.CONTAINER).options:
            words = option.commands[0].split()
            assert words[:2] == ["tfdoctor", "build"]
            again = ask(words[words.index("--tf") + 1], recipe=Recipe(words[words.index("--recipe") + 1]))
            assert again.options[0].base == option.base
            assert again.options[0].python == option.python


@pytest.mark.parametrize(
    ("machine", "spec", "words"),
    [
        (host("8.0", driver="525"), "1.15", " --gpu 8.0 --driver 525"),
        (host("3.7"), "2.13", " --gpu 3.7"),
        (host("8.0", "3.7", "3.7"), "2.13.1", " --gpu 8.0 --gpu 3.7"),
        (host("8.6"), "2.13", ""),
        (host("8.0", driver="525"), "2.20", ""),
    ],
)
def test_the_command_names_the_machine_where_the_base_is_chosen_for_it(
    machine: Host, spec: str, words: str
) -> None:
    commands = [option.commands[0] for option in ask(spec, machine).options if option.base is not None]
    assert any(command.endswith(words) for command in commands)
    assert words or not any("--gpu" in command or "--driver" in command for command in commands)


@pytest.mark.few(0)
def test_what_is_shown_for_a_machine_is_what_is_built_on_another() -> None:
    for capability, driver in itertools.product(GENERATIONS, DRIVERS[:: 1 if LAB else 3]):
        for spec in ("1.15", "2.13", "2.17", None) if LAB or driver is None else ("1.15", "2.13"):
            for option in ask(spec, host(capability, driver=driver), method=Method.CONTAINER).options:
                words = option.commands[0].split()
                given = dict(zip(words[2::2], words[3::2], strict=True))
                there = host(given["--gpu"]) if "--gpu" in given else Host()
                there = replace(there, driver=given.get("--driver"))
                again = ask(given["--tf"], there, recipe=Recipe(given["--recipe"])).options[0]
                assert (again.base, again.python) == (option.base, option.python), option.commands


def test_of_two_images_that_serve_the_one_without_a_worry_is_taken() -> None:
    """The newest was made for a newer driver, which it may do without; an older one was made for this driver."""
    option = option_of(ask("1.15", host("8.0", driver="525.60.13")), Recipe.NGC)
    assert option.base is not None
    assert option.base.image == "nvcr.io/nvidia/tensorflow:21.10-tf1-py3"
    assert not option.serious
    newer = option_of(ask("1.15", host("9.0", driver="525.60.13")), Recipe.NGC)
    assert newer.base is not None
    assert newer.base.image == "nvcr.io/nvidia/tensorflow:23.03-tf1-py3", "the older ones have no code for it"
    assert newer.serious
