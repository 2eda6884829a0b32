"""Every kind of finding in the forms that occur in real code, with similar code that is correct."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

import pytest

from extensions.lint import cases
from tfdoctor.cli.explain import load_documentation
from tfdoctor.core.causes.codes import LINT_CODES
from tfdoctor.core.edits import SourceText, apply_edits
from tfdoctor.core.facts.variables import READ_VARIABLES, guess_variable
from tfdoctor.extensions.cluster.analysis import evaluate_cluster
from tfdoctor.extensions.cluster.reader import parse_cluster
from tfdoctor.extensions.lint.analysis import detect_file_kind, lint_text
from tfdoctor.extensions.lint.codes import LINT_PAGES
from tfdoctor.extensions.lint.fixes import plan_edits
from tfdoctor.extensions.lint.models import LintProblem, LintTarget

CORPUS = Path(__file__).parents[4] / "shared" / "corpus" / "lint"
MARK = re.compile(r"\s*#! ([\w-]+)$")


def apply_fixes(text: str, problems: list[LintProblem], kind: str) -> str:
    """Return the text after all safe corrections."""
    source = SourceText(text.encode(), text, "utf-8")
    return apply_edits(source.data, plan_edits(source, problems, kind)).decode()


def split_marks(text: str) -> tuple[str, list[tuple[int, str]]]:
    """Return the code without its marks, and the (line, name) of each mark."""
    lines, marks = [], []
    for number, line in enumerate(text.split("\n"), 1):
        match = MARK.search(line)
        lines.append(line[: match.start()] if match else line)
        if match:
            marks.append((number, match[1]))
    return "\n".join(lines), marks


def list_positions(problems: list[LintProblem]) -> list[tuple[int, str]]:
    return [(problem.line, problem.kind_name) for problem in problems]


def assert_python_problems(text: str, target: LintTarget | None = None) -> None:
    code, marks = split_marks(textwrap.dedent(text))
    problems, unreadable = lint_text(code, "python", target or LintTarget())
    assert list_positions(problems) == marks
    assert unreadable is None


@pytest.mark.parametrize("name", cases.PYTHON)
def test_python_file(name: str) -> None:
    assert_python_problems(cases.PYTHON[name])


@pytest.mark.parametrize(
    ("value", "device", "is_missing"),
    [
        ("-1", "/gpu:0", True),
        ("-1", "/cpu:0", False),
        ("", "/gpu:0", True),
        ("0,-1,1", "/gpu:0", False),
        ("0,-1,1", "/gpu:1", True),
        ("GPU-1f2e", "/gpu:0", False),
    ],
)
def test_device_among_the_visible_ones(value: str, device: str, *, is_missing: bool) -> None:
    text = (
        f"import os\nos.environ['CUDA_VISIBLE_DEVICES'] = {value!r}\nimport tensorflow as tf\n"
        f"with tf.device({device!r}):\n    pass\n"
    )
    problems, _ = lint_text(text, "python", LintTarget())
    assert list_positions(problems) == [(4, "no-such-device")] * is_missing
    assert lint_text(text.partition("with")[0], "python", LintTarget()) == ([], None)


@pytest.mark.parametrize("name", cases.WITH_OPTIONS)
def test_python_for_a_release_and_a_machine(name: str) -> None:
    tf, gpus, text = cases.WITH_OPTIONS[name]
    assert_python_problems(text, LintTarget(tf, gpus))


@pytest.mark.parametrize("name", cases.STARTED_ONCE)
def test_task_in_exclusive_branches_starts_once(name: str) -> None:
    assert lint_text(cases.STARTED_ONCE[name], "shell", LintTarget()) == ([], None)


@pytest.mark.parametrize("name", cases.STARTED_TWICE)
def test_task_started_twice_is_reported(name: str) -> None:
    problems, _ = lint_text(cases.STARTED_TWICE[name], "shell", LintTarget())
    assert [problem.message for problem in problems] == ["The task worker:0 is started twice."]


@pytest.mark.parametrize(
    ("kind", "text"), [("shell", cases.SHELL), ("yaml", cases.YAML), *cases.OTHER_FILES.items()]
)
def test_files_that_are_not_python(kind: str, text: str) -> None:
    code, marks = split_marks(text)
    problems, unreadable = lint_text(code, kind, LintTarget())
    assert (list_positions(problems), unreadable) == (marks, None)


@pytest.mark.parametrize(
    "line",
    [
        "#SBATCH --export={0}=0",
        "#SBATCH --export ALL,{0}=0",
        '#SBATCH --gres=gpu:1 --export="ALL,{0}=1"',
        "#PBS -v {0}=0,FOO",
        '#PBS -l select=1 -v "FOO,{0}"',
        '#BSUB -env "all, {0}=0"',
        "#BSUB -env all,{0}=0",
        "#$ -v {0}=0",
        "#flux: --env={0}=0",
        "#COBALT --env A=1:{0}=0",
    ],
)
def test_directives_of_batch_jobs_are_checked(line: str) -> None:
    name = "CUDA_VISIBLE_DEVIES"
    text = f"#!/bin/bash\n{line.format(name)}\npython x.py\n"
    (problem,), _ = lint_text(text, "job", LintTarget())
    assert (problem.kind_name, problem.line) == ("misspelt-variable", 2)
    assert problem.column == line.index("{") + 1
    remark = line.replace("#", "# ", 1)
    assert lint_text(f"#!/bin/bash\n{remark.format(name)}\n", "job", LintTarget()) == ([], None)


@pytest.mark.parametrize(
    ("kind", "line", "name"),
    [
        ("env", "CUDA_VISIBLE_DEVIES = 0", "misspelt-variable"),
        ("env", 'export CUDA_VISIBLE_DEVIES = "0"', "misspelt-variable"),
        ("shell", 'export CUDA_VISIBLE_DEVICES = "0"', "variable-set-wrongly"),
        ("shell", 'export CUDA_VISIBLE_DEVICES ="0"', "variable-set-wrongly"),
        ("shell", "export CUDA_VISIBLE_DEVICES= 0", "variable-set-wrongly"),
        ("shell", "CUDA_VISIBLE_DEVICES= python x.py", ""),
    ],
)
def test_spaces_around_the_equals_sign(kind: str, line: str, name: str) -> None:
    problems, _ = lint_text(f"{line}\n", kind, LintTarget())
    assert [problem.kind_name for problem in problems] == [name] * bool(name)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("python", "import tensorflow as tf\nwith tf.device('/gpu:{0}'):\n    pass\n"),
        ("shell", "python x.py --worker_hosts=a:1,b:1 --job_name=worker --task_index={0}\n"),
        ("shell", "python x.py --worker_hosts=a:{0} --job_name=worker --task_index=²\n"),
        (
            "env",
            'TF_CONFIG={{"cluster": {{"worker": ["a:{0}"]}}, "task": {{"type": "worker", "index": {0}}}}}\n',
        ),
        ("yaml", "a: {0}\nenv: {{TF_CONFIG: '{0}'}}\n"),
        ("notebook", '{{"cells": [], "nbformat": {0}}}'),
    ],
)
def test_very_long_numbers_are_read(kind: str, text: str) -> None:
    lint_text(text.format("9" * 4301), kind, LintTarget(gpu_count=1))


def test_dockerfile() -> None:
    code, marks = split_marks(cases.DOCKERFILE)
    problems, _ = lint_text(code, "dockerfile", LintTarget())
    assert list_positions(problems) == sorted([*marks, (4, "misspelt-variable")])


def make_notebook(source: str) -> str:
    cells = [{"cell_type": "markdown", "source": ["os.environ['CUDA_VISIBLE_DEVIES'] = 1"]}]
    cells += [
        {"cell_type": "code", "source": part.strip("\n").splitlines(keepends=True)}
        for part in source.split("# %%\n")
    ]
    return json.dumps({"cells": cells, "nbformat": 4}, indent=1)


def test_notebook() -> None:
    parts = [split_marks(part.strip("\n")) for part in cases.NOTEBOOK.split("# %%\n")]
    expected = [(cell, line, name) for cell, (_, marks) in enumerate(parts, 2) for line, name in marks]
    problems, unreadable = lint_text(
        make_notebook("# %%\n".join(f"{code}\n" for code, _ in parts)), "notebook", LintTarget()
    )
    assert [(problem.cell_number, problem.line, problem.kind_name) for problem in problems] == expected
    assert unreadable is None


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"cells": 3}', '{"cells": [1, {"cell_type": "code"}]}', "[" * 100_000]
)
def test_invalid_notebook_is_reported(text: str) -> None:
    problems, unreadable = lint_text(text, "notebook", LintTarget())
    assert problems == []
    assert unreadable is not None or text.startswith('{"cells"')


@pytest.mark.parametrize(
    ("name", "first", "kind"),
    [
        ("a.py", "", "python"),
        ("a.ipynb", "", "notebook"),
        ("run.sh", "", "shell"),
        ("job.sbatch", "", "job"),
        ("Dockerfile", "", "dockerfile"),
        ("Dockerfile.gpu", "", "dockerfile"),
        ("gpu.Dockerfile", "", "dockerfile"),
        ("k8s.yml", "", "yaml"),
        ("train", "#!/usr/bin/env python3", "python"),
        ("train", "#!/bin/bash -l", "shell"),
        (".env", "", "env"),
        ("a.txt", "", None),
        ("LICENSE", "Apache", None),
    ],
)
def test_kind_of_file(name: str, first: str, kind: str | None) -> None:
    assert detect_file_kind(name, first) == kind


def test_lines_before_a_syntax_error_are_checked() -> None:
    text = 'import os\nos.environ["CUDA_VISIBLE_DEVIES"] = "0"\n\ndef f(:\n    x = = 3\n'
    problems, unreadable = lint_text(text, "python", LintTarget())
    assert list_positions(problems) == [(2, "misspelt-variable")]
    _, unreadable = lint_text("import os, tensorflow as tf\ndef f(:\n    x = = 3\n", "python", LintTarget())
    assert unreadable is not None
    assert "is not Python" in unreadable


def test_columns_count_characters() -> None:
    problems, _ = lint_text(
        'import os; é = "ü"; os.environ["CUDA_VISIBLE_DEVIES"] = "0"\n', "python", LintTarget()
    )
    (problem,) = problems
    assert problem.column == 32
    assert problem.fix is not None
    assert (problem.fix.column, problem.fix.end_column) == (33, 52)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('os.environ["CUDA_VISIBLE_DEVIES"] = "0"', 'os.environ["CUDA_VISIBLE_DEVICES"] = "0"'),
        ('os.environ["CUDA_VISIBLE_DEVICES"] = 0', 'os.environ["CUDA_VISIBLE_DEVICES"] = "0"'),
        ('os.environ("CUDA_VISIBLE_DEVICES") = "0"', 'os.environ["CUDA_VISIBLE_DEVICES"] = "0"'),
        ('e = dict(os.environ, CUDA_VISIBLE_DEVIES="0")', 'e = dict(os.environ, CUDA_VISIBLE_DEVICES="0")'),
        ("tf.config.list_phisical_devices()", "tf.config.list_physical_devices()"),
        ("f(tf.compat.v1.GPUOptions(allow_grouth=1))", "f(tf.compat.v1.GPUOptions(allow_growth=1))"),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_fix_corrects_the_name(before: str, after: str, end: str) -> None:
    text = end.join(["import os, tensorflow as tf", before, "# é", ""])
    problems, _ = lint_text(text, "python", LintTarget())
    assert apply_fixes(text, problems, "python") == text.replace(before, after)
    assert lint_text(text.replace(before, after), "python", LintTarget())[0] == []


def test_fix_of_a_notebook_changes_nothing_else() -> None:
    text = make_notebook('import os\nos.environ["CUDA_VISIBLE_DEVIES"] = "ü"\n')
    problems, _ = lint_text(text, "notebook", LintTarget())
    assert apply_fixes(text, problems, "notebook") == text.replace(
        'environ[\\"CUDA_VISIBLE_DEVIES', 'environ[\\"CUDA_VISIBLE_DEVICES'
    )


def test_every_kind_has_a_case_and_an_explanation() -> None:
    texts = [*cases.PYTHON.values(), *(text for _, _, text in cases.WITH_OPTIONS.values())]
    assert {name for text in texts for _, name in split_marks(text)[1]} == set(LINT_CODES)
    assert {kind.name for kind in LINT_PAGES} | {"cluster-address", "cluster-task"} == set(LINT_CODES)
    assert set(LINT_CODES.values()) <= set(load_documentation().pages)


def test_known_variable_is_no_misspelling() -> None:
    assert [name for name in READ_VARIABLES if guess_variable(name) is not None] == []


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not here")
def test_corpus_has_the_expected_findings() -> None:
    missed, extra = [], []
    for entry in json.loads((CORPUS / "truth.json").read_text("utf-8")):
        text = (CORPUS / "files" / entry["file"]).read_text("utf-8")
        options = dict(zip(entry["options"][::2], entry["options"][1::2], strict=True))
        tf = options.get("--tf")
        major, _, minor = tf.partition(".") if tf else ("", "", "")
        target = LintTarget(
            (int(major), int(minor)) if tf else None, int(options["--gpus"]) if "--gpus" in options else None
        )
        kind = detect_file_kind(entry["file"], text.partition("\n")[0])
        assert kind is not None
        reported = [
            (problem.kind_name, problem.line, problem.cell_number)
            for problem in lint_text(text, kind, target)[0]
        ]
        for expected in entry["findings"]:
            lines = {expected["line"], *expected.get("also_lines", [])}
            match = next(
                (
                    item
                    for item in reported
                    if item[0] == expected["name"] and item[1] in lines and item[2] == expected["cell"]
                ),
                None,
            )
            if match is None:
                missed.append((entry["file"], expected["name"]))
            else:
                reported.remove(match)
        extra += [(entry["file"], *problem) for problem in reported]
    assert (missed, extra) == ([], [])


@pytest.mark.parametrize(
    ("members", "index"),
    [
        ('["a:1", "b:1"]', "1"),
        ('["a:1", "b:1"]', "2"),
        ('["a:1", "b:1"]', '"1"'),
        ('{"0": "a:1", "5": "b:1"}', "5"),
        ('{"0": "a:1", "5": "b:1"}', "1"),
    ],
)
def test_lint_and_cluster_report_the_same_faults(members: str, index: str) -> None:
    config = f'{{"cluster": {{"worker": {members}}}, "task": {{"type": "worker", "index": {index}}}}}'
    (cluster,) = parse_cluster(config, "text").specifications
    faults = {item.kind for item in evaluate_cluster(cluster, "text").faults}
    problems, _ = lint_text(f"TF_CONFIG='{config}'\n", "env", LintTarget())
    assert {item.kind_name for item in problems} == faults
