"""What users wrote, and what tfdoctor says of it: placement (S6), memory (S8), refusals (S9), typing errors
(S12). The five pages are material of the project, not in the repository: where they are not there, nothing is shown.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tfdoctor.compat import Compat
from tfdoctor.explain import lookup
from tfdoctor.findings import Cause
from tfdoctor.lint import LintTarget, lint_text
from tfdoctor.logs.report import diagnose_log
from tfdoctor.placement import Placement, evaluate_placement, read_placement

SEEDS = Path(__file__).parents[2] / "shared" / "seeds"
pytestmark = pytest.mark.skipif(not SEEDS.is_dir(), reason="the users' pages are not here")


def page(number: str) -> str:
    return next(SEEDS.glob(f"{number}_*.txt")).read_text(encoding="utf-8")


def placement(text: str) -> Placement:
    return evaluate_placement(read_placement([text.encode()]))


def counts(answer: Placement) -> dict[tuple[str, str], int]:
    return {(one.op, one.device): one.count for one in answer.found.ops}


def mappings(number: str, end: str) -> list[str]:
    """Each "Device mapping:" of a page, up to what the program printed next."""
    return [part.partition(end)[0] for part in page(number).split("Device mapping:")[1:]]


def test_s6_three_outputs_of_tensorflow_0_and_1() -> None:
    """One K40c; two operations on the CPU by hand; four K20m of which two get work."""
    alone, by_hand, towers = map(placement, mappings("000", "[[ "))
    assert counts(alone) == {("MatMul", "GPU:0"): 1, ("a", "GPU:0"): 1, ("b", "GPU:0"): 1}
    assert counts(by_hand) == {("MatMul", "GPU:0"): 1, ("a", "CPU:0"): 1, ("b", "CPU:0"): 1}
    assert counts(towers) == {
        ("AddN", "CPU:0"): 1,
        **{(op, gpu): count for gpu in ("GPU:2", "GPU:3") for op, count in (("Const", 2), ("MatMul", 1))},
    }
    assert towers.summary.endswith("GPU:0 and GPU:1 got nothing.")


def test_s6_devices_of_xla_are_no_placement() -> None:
    answer = placement(mappings("004", "```")[0])
    assert answer.found.ops == ()
    assert answer.summary.startswith("Nothing of placement is printed; TensorFlow lists XLA_GPU:0")


def test_s6_no_known_devices() -> None:
    on_cpu, on_gpu = (
        placement(line.partition("########")[2])
        for line in page("002").splitlines()
        if "no known devices" in line
    )
    assert counts(on_cpu) == {("AddN", "CPU:0"): 1, ("Const", "CPU:0"): 2}
    assert counts(on_gpu) == {("AddN", "GPU:0"): 1, ("Const", "GPU:0"): 2}


def test_s6_eager_operations() -> None:
    first = re.findall(r"(?:Executing op [^\n]+\n)+", page("001"))[0]
    assert counts(placement(first)) == {("MatMul", "GPU:0"): 1, ("_EagerConst", "GPU:0"): 2}


@pytest.mark.parametrize("kind", ["Physical", "Virtual"])
def test_s8_a_setting_that_comes_too_late(kind: str) -> None:
    line = re.findall(rf"^{kind} devices cannot be modified[^\n]+$", page("001"), re.MULTILINE)[0]
    report = diagnose_log([line.encode()], Compat.load(), "train.log")
    assert any("`tfdoctor lint` finds the line" in one.explanation for one in report.findings)
    assert [rule.name for rule in lookup(line).rules] == ["configured-too-late"]


def test_s8_the_pages_own_ways_to_limit_memory_are_right() -> None:
    """Growth on all, one logical device: what the page recommends has no finding."""
    text = page("001")
    for call in ("set_memory_growth(gpu, True)", "LogicalDeviceConfiguration(memory_limit=1024)])"):
        at = text.index(call)
        start = text.rindex("gpus = tf.config", 0, at)
        code = "import tensorflow as tf\n" + text[start : text.index("    print(e)\n", at)] + "    print(e)\n"
        assert lint_text(code, "python", LintTarget()) == ([], None)


@pytest.mark.parametrize(
    ("number", "begins", "ends"),
    [
        ("000", "InvalidArgumentError: Invalid argument: Cannot", "()]]"),
        ("001", ".../device:GPU:2 unknown", "\n"),
    ],
)
def test_s9_a_device_that_is_not_there(number: str, begins: str, ends: str) -> None:
    text = page(number)
    start = text.index(begins)
    said = text[start : text.index(ends, start) + len(ends)]
    assert diagnose_log([said.encode()], Compat.load(), "train.log").cause is Cause.PLACEMENT_ERROR
    (refused,) = placement(said).found.refused
    assert refused.wanted == "GPU:2"


def test_s12_typing_errors() -> None:
    """A variable that nothing reads, os.environ called, an option that no release has."""
    line = next(line for line in page("003").splitlines() if "DEVIES" in line)
    shell, code = " ".join(line.split()[:3]), line[line.index("import os") :].rstrip("| ")
    problems, _ = lint_text(f"{shell}\n", "shell", LintTarget())
    assert [one.name for one in problems] == ["misspelt-variable"]
    problems, _ = lint_text(code.replace("import os ", "import os\n"), "python", LintTarget())
    assert [one.name for one in problems] == ["variable-set-wrongly"]
    config = next(line for line in page("003").splitlines() if "allow_grouth" in line)
    lines = re.findall(r"(?:config|sess)(?:\.[\w.]+)? = [^#|]*?(?= #| config\.| sess|\|)", config)
    code = "import tensorflow as tf\n" + "\n".join(map(str.strip, lines)) + "\n"
    problems, _ = lint_text(code, "python", LintTarget((1, 14)))
    assert [(one.name, one.line) for one in problems] == [("misspelt-option", 3)], code
