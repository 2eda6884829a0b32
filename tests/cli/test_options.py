"""Options that exclude each other or have a wrong value, and the values that options are parsed to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cli.planner import call_tfdoctor
from recorded import HOSTS, load_report
from tfdoctor.cli.build import choose_run_user
from tfdoctor.cli.capture import describe_differences
from tfdoctor.cli.completion import Shell, _format_completion, _join_words
from tfdoctor.cli.options import FailOn
from tfdoctor.cli.parse import iter_leaves
from tfdoctor.cli.simulation_options import MAX_GPUS, parse_simulation
from tfdoctor.cli.verify import _parse_devices, _parse_memory, _parse_stages
from tfdoctor.compat import Compat
from tfdoctor.core.errors import UsageError
from tfdoctor.core.findings import Severity
from tfdoctor.verification.stages import STAGES


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("check --deep --from x", "--deep runs TensorFlow here"),
        ("check --fix --from x", "--fix changes this machine"),
        ("check --fix --against x", "--fix changes this machine"),
        ("check --fix --fail-on never", "--fail-on cannot be combined"),
        ("check --yes", "--yes needs --fix"),
        ("check --html x.html --fix", "--html cannot be combined"),
        ("check --simulate T4", "--simulate can only be combined"),
        ("check --deep --simulate T4 --fail-on never", "--simulate can only be combined"),
        ("check --deep --simulate T4 --from x", "--deep runs TensorFlow here"),
        ("check --deep --simulate T4 .", "--simulate can only be combined"),
        ("check --simulate T4 --driver 470", "tfdoctor check --deep --simulate T4 --driver 470"),
        ("check --deep --driver 550.54", "--driver belongs to --simulate"),
        ("verify", "needs an IMAGE"),
        ("verify --python p --driver 550.54", "--driver belongs to --simulate"),
        ("verify --python p --simulate T4 --devices CPU", "cannot be combined"),
        ("verify --python p --simulate T4 --gpu-count 0", "from 1 to 32"),
        ("verify --python p --simulate T4 --gpu-count 33", "from 1 to 32"),
        ("verify --python p --simulate T4 --simulate P100 --gpu-count 2", "with one --simulate"),
        ("verify --python p --stages runtime,none", "there is no stage `none`"),
        ("verify --python p --devices x", "expected CPU, all, none"),
        ("verify --python p --memory 8x", "expected a size"),
        ("verify --python p --timeout nan", "expected a number of seconds"),
        ("matrix --json --format markdown", "exclude each other"),
        ("matrix --html x.html --tf 2.4", "--html writes all releases"),
        ("matrix --html x.html --all", "--html writes all releases"),
        ("matrix --gpu 86,75", "is written with a point"),
        ("matrix --cuda x", "--cuda: "),
        ("matrix --package tf-nightly-x", "there is no table"),
        ("matrix --tf 9.9", "--tf: no TensorFlow 9.9 is known"),
        ("matrix --tf 1.x!", "--tf: "),
        ("matrix --gpu Voodoo", "no NVIDIA GPU called"),
        ("diagnose - -", "only once"),
        ("diagnose -f a b", "one log can be followed"),
        ("diagnose -f --html x.html a", "follows one that grows"),
        ("run", "no command to run"),
        ("fix --undo TFD203", "it takes no CODE"),
        ("fix --undo --dry-run", "no --dry-run"),
        ("fix --even-if-changed", "--even-if-changed needs --undo"),
        ("build --json --print", "give one of them"),
        ("build --json --emit context", "give one of them"),
        ("build --emit context", "give the folder"),
        ("build folder", "only --emit context takes a folder"),
        ("build --force", "--force needs --emit context"),
        ("build --print --emit compose", "two forms of the plan"),
        ("build --push", "--push: only an image"),
        ("build --push --tag a --dry-run", "--push: only an image"),
        ("build --platform linux/arm64", "only linux/amd64"),
        ("build --proxy x", "--proxy: expected"),
        ("build --simulate T4 --no-verify", "which --no-verify leaves out"),
        ("install --index https://a:b@c/simple/ --into x", "can be read by everybody"),
        ("install --index ftp://c --into x", "is not the address"),
        ("install --anywhere --gpu T4 --into x", "give only one of"),
    ],
)
def test_wrong_options_are_refused(line: str, message: str) -> None:
    result = call_tfdoctor(*line.split())
    assert result.status == 2
    assert message in " ".join(
        (result.out + result.err).split()
    )  # with --json, the error is on standard output


@pytest.mark.parametrize(
    ("text", "stages"),
    [
        (None, STAGES),
        ("driver", STAGES[:2]),
        ("import,driver", ("driver", "import")),
        (" import ", STAGES[:4]),
    ],
)
def test_stages(text: str | None, stages: tuple[str, ...]) -> None:
    assert _parse_stages(text) == stages


def test_gpus_and_memory() -> None:
    for text in (None, "all", "none", "0,1", "0:1", "gpu0", "GPU-1a2b", "MIG-1a2b/3/4"):
        assert _parse_devices(text) == text
    for text in ("", "0,", "all,0", "GPU-1"):
        with pytest.raises(UsageError):
            _parse_devices(text)
    assert [_parse_memory(text) for text in (None, "8g", "500MB", " 1k")] == [
        None,
        8 << 30,
        500 << 20,
        1 << 10,
    ]


def test_simulated_gpus() -> None:
    compat = Compat.load()
    assert parse_simulation(compat, ()) is None
    assert parse_simulation(compat, ["T4"] * MAX_GPUS) is not None
    assert parse_simulation(compat, ["T4"], count=MAX_GPUS) is not None
    with pytest.raises(UsageError, match="33 cards; 32 are possible"):
        parse_simulation(compat, ["T4"] * (MAX_GPUS + 1))


def test_user_of_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfdoctor.cli.build._get_user_id", lambda: 1000)
    users = [choose_run_user(uid, rootless=rootless) for uid in (0, 1000, 1001) for rootless in (False, True)]
    own = '"$(id -u):$(id -g)"'
    assert users == [own, "", "", "0:0", own, "0:0"]


def test_severity_that_fails() -> None:
    class Item:
        def __init__(self, severity: Severity) -> None:
            self.severity = severity

    info, warning, error = map(Item, (Severity.INFO, Severity.WARNING, Severity.ERROR))
    assert [FailOn.error.is_reached(items) for items in ([], [warning], [info, error])] == [
        False,
        False,
        True,
    ]
    assert [FailOn.warning.is_reached(items) for items in ([info], [warning], [error])] == [False, True, True]
    assert not FailOn.never.is_reached([error])


def test_leaves_of_parsed_output() -> None:
    data = {"a": [{"b": 1, "c": None}, []], "d": "x", "e": {"f": 0}}
    assert list(iter_leaves(data)) == [
        ("a[0].b", 1),
        ("a[0].c", "none"),
        ("a[1]", "none"),
        ("d", "x"),
        ("e.f", 0),
    ]


def test_completion_of_each_shell() -> None:
    assert _format_completion(Shell.bash, "a", "b") == "a"
    assert [_format_completion(Shell.zsh, *pair) for pair in (("a:b", "c"), ("a", ""), (":files", ""))] == [
        "a\\:b:c",
        "a",
        ":files",
    ]
    assert _join_words(["check", "--tf", "="]) == (["check", "--tf="], "--tf=")
    assert _join_words(["check", "--tf", "=", "2"]) == (["check", "--tf=2"], "--tf=")
    assert _join_words(["="]) == (["="], "")


def test_differences_of_a_recording() -> None:
    healthy, hidden = (load_report(HOSTS / name) for name in ("healthy-one-gpu", "hidden-by-minus-one"))
    assert describe_differences(healthy, healthy) == ()
    assert {"the verdict", "the prediction", "TFD601"} <= set(describe_differences(healthy, hidden))
    counted = replace(healthy, prediction=replace(healthy.prediction, gpu_count=2))
    assert describe_differences(healthy, counted) == ("the prediction",)
    shorter = replace(healthy, outcomes=healthy.outcomes[1:])
    assert describe_differences(healthy, shorter) == (healthy.outcomes[0].code,)
