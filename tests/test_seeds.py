"""Texts of users, and the results of tfdoctor: placement (S6), memory (S8), refusals (S9), typing errors (S12).

The five pages belong to the project but are not in the repository. Without them the tests are skipped.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tfdoctor.cli.explain import load_documentation
from tfdoctor.compat import Compat
from tfdoctor.core.findings import Cause
from tfdoctor.diagnosis.explain import find_entries
from tfdoctor.extensions.lint.analysis import lint_text
from tfdoctor.extensions.lint.models import LintTarget
from tfdoctor.logs.placement import Placement, evaluate_placement, read_placement
from tfdoctor.logs.report import diagnose_log

SEEDS = Path(__file__).parents[2] / "shared" / "seeds"
pytestmark = pytest.mark.skipif(not SEEDS.is_dir(), reason="the users' pages are not here")


def read_page(number: str) -> str:
    return next(SEEDS.glob(f"{number}_*.txt")).read_text(encoding="utf-8")


def parse_placement(text: str) -> Placement:
    return evaluate_placement(read_placement([text.encode()]))


def count_operations(result: Placement) -> dict[tuple[str, str], int]:
    return {(op.op, op.device): op.count for op in result.data.op_counts}


def split_mappings(number: str, end: str) -> list[str]:
    """Return each "Device mapping:" of a page, up to `end`."""
    return [part.partition(end)[0] for part in read_page(number).split("Device mapping:")[1:]]


def test_s6_device_mappings_of_tensorflow_0_and_1() -> None:
    """One K40c; two operations placed on the CPU by hand; four K20m of which two get work."""
    one_gpu, by_hand, towers = map(parse_placement, split_mappings("000", "[[ "))
    assert count_operations(one_gpu) == {("MatMul", "GPU:0"): 1, ("a", "GPU:0"): 1, ("b", "GPU:0"): 1}
    assert count_operations(by_hand) == {("MatMul", "GPU:0"): 1, ("a", "CPU:0"): 1, ("b", "CPU:0"): 1}
    assert count_operations(towers) == {
        ("AddN", "CPU:0"): 1,
        **{(op, gpu): count for gpu in ("GPU:2", "GPU:3") for op, count in (("Const", 2), ("MatMul", 1))},
    }
    assert towers.summary.endswith("GPU:0 and GPU:1 got nothing.")


def test_s6_xla_devices_are_no_placement() -> None:
    answer = parse_placement(split_mappings("004", "```")[0])
    assert answer.data.op_counts == ()
    assert answer.summary.startswith("Nothing of placement is printed; TensorFlow lists XLA_GPU:0")


def test_s6_no_known_devices_are_counted() -> None:
    on_cpu, on_gpu = (
        parse_placement(line.partition("########")[2])
        for line in read_page("002").splitlines()
        if "no known devices" in line
    )
    assert count_operations(on_cpu) == {("AddN", "CPU:0"): 1, ("Const", "CPU:0"): 2}
    assert count_operations(on_gpu) == {("AddN", "GPU:0"): 1, ("Const", "GPU:0"): 2}


def test_s6_eager_operations_are_counted() -> None:
    first = re.findall(r"(?:Executing op [^\n]+\n)+", read_page("001"))[0]
    assert count_operations(parse_placement(first)) == {("MatMul", "GPU:0"): 1, ("_EagerConst", "GPU:0"): 2}


@pytest.mark.parametrize("kind", ["Physical", "Virtual"])
def test_s8_late_setting_is_found(kind: str) -> None:
    line = re.findall(rf"^{kind} devices cannot be modified[^\n]+$", read_page("001"), re.MULTILINE)[0]
    report = diagnose_log([line.encode()], Compat.load(), "train.log")
    assert any("`tfdoctor lint` finds the line" in finding.explanation for finding in report.findings)
    assert [rule.name for rule in find_entries(line, load_documentation()).rules] == ["configured-too-late"]


def test_s8_memory_limits_of_the_page_are_accepted() -> None:
    """The page's examples (growth on all GPUs, one logical device) have no finding."""
    text = read_page("001")
    for call in ("set_memory_growth(gpu, True)", "LogicalDeviceConfiguration(memory_limit=1024)])"):
        index = text.index(call)
        start = text.rindex("gpus = tf.config", 0, index)
        code = (
            "import tensorflow as tf\n" + text[start : text.index("    print(e)\n", index)] + "    print(e)\n"
        )
        assert lint_text(code, "python", LintTarget()) == ([], None)


@pytest.mark.parametrize(
    ("number", "begins", "ends"),
    [
        ("000", "InvalidArgumentError: Invalid argument: Cannot", "()]]"),
        ("001", ".../device:GPU:2 unknown", "\n"),
    ],
)
def test_s9_missing_device_is_found(number: str, begins: str, ends: str) -> None:
    text = read_page(number)
    start = text.index(begins)
    message = text[start : text.index(ends, start) + len(ends)]
    assert diagnose_log([message.encode()], Compat.load(), "train.log").cause is Cause.PLACEMENT_ERROR
    (refused,) = parse_placement(message).data.refusals
    assert refused.requested_device == "GPU:2"


def test_s12_typing_errors_are_found() -> None:
    """An unused variable, a call of os.environ, and an option that no release has."""
    line = next(line for line in read_page("003").splitlines() if "DEVIES" in line)
    shell, code = " ".join(line.split()[:3]), line[line.index("import os") :].rstrip("| ")
    problems, _ = lint_text(f"{shell}\n", "shell", LintTarget())
    assert [problem.kind_name for problem in problems] == ["misspelt-variable"]
    problems, _ = lint_text(code.replace("import os ", "import os\n"), "python", LintTarget())
    assert [problem.kind_name for problem in problems] == ["variable-set-wrongly"]
    config = next(line for line in read_page("003").splitlines() if "allow_grouth" in line)
    lines = re.findall(r"(?:config|sess)(?:\.[\w.]+)? = [^#|]*?(?= #| config\.| sess|\|)", config)
    code = "import tensorflow as tf\n" + "\n".join(map(str.strip, lines)) + "\n"
    problems, _ = lint_text(code, "python", LintTarget((1, 14)))
    assert [(problem.kind_name, problem.line) for problem in problems] == [("misspelt-option", 3)], code


def test_first_remedy_of_the_refused_libraries() -> None:
    report = diagnose_log([read_page("004").encode()], Compat.load())
    root = report.root_finding
    assert root is not None
    assert (report.cause, root.remedies[0].commands) == (
        Cause.LIBS_WRONG_VERSION,
        ("tfdoctor build --tf 1.14.0 --gpu 'Tesla M60'",),
    )
    assert "4 cards (Tesla M60) are present, but none is registered" in root.explanation
