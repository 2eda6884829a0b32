"""Every kind of finding in the forms in which people write it, and what is near to it and right."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

import pytest

from lint import cases
from tfdoctor.causes.codes import LINT
from tfdoctor.cluster import evaluate_cluster, read_cluster
from tfdoctor.explain import LOG_NOTES
from tfdoctor.lint import LintProblem, LintTarget, kind_of_file, lint_text
from tfdoctor.lint.codes import KINDS
from tfdoctor.lint.fixes import plan_edits
from tfdoctor.lint.known_names import READ, guess_variable
from tfdoctor.parse.edits import Source, apply_edits

CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "lint"
MARK = re.compile(r"\s*#! ([\w-]+)$")


def correct(text: str, problems: list[LintProblem], kind: str) -> str:
    """Return the text after all certain corrections."""
    source = Source(text.encode(), text, "utf-8")
    return apply_edits(source.data, plan_edits(source, problems, kind)).decode()


def parse_wanted(text: str) -> tuple[str, list[tuple[int, str]]]:
    """The code without its marks, and (line, name) of them."""
    lines, marks = [], []
    for number, line in enumerate(text.split("\n"), 1):
        match = MARK.search(line)
        lines.append(line[: match.start()] if match else line)
        if match:
            marks.append((number, match[1]))
    return "\n".join(lines), marks


def summarize_answer(problems: list[LintProblem]) -> list[tuple[int, str]]:
    return [(one.line, one.name) for one in problems]


def python(text: str, asked: LintTarget | None = None) -> None:
    code, marks = parse_wanted(textwrap.dedent(text))
    problems, unreadable = lint_text(code, "python", asked or LintTarget())
    assert summarize_answer(problems) == marks
    assert unreadable is None


@pytest.mark.parametrize("name", cases.PYTHON)
def test_python(name: str) -> None:
    python(cases.PYTHON[name])


@pytest.mark.parametrize("name", cases.WITH_OPTIONS)
def test_python_for_a_release_and_a_machine(name: str) -> None:
    tf, gpus, text = cases.WITH_OPTIONS[name]
    python(text, LintTarget(tf, gpus))


@pytest.mark.parametrize("name", cases.STARTED_ONCE)
def test_a_task_in_branches_of_which_one_runs_starts_once(name: str) -> None:
    assert lint_text(cases.STARTED_ONCE[name], "shell", LintTarget()) == ([], None)


@pytest.mark.parametrize("name", cases.STARTED_TWICE)
def test_a_task_that_does_start_twice(name: str) -> None:
    problems, _ = lint_text(cases.STARTED_TWICE[name], "shell", LintTarget())
    assert [one.message for one in problems] == ["The task worker:0 is started twice."]


@pytest.mark.parametrize(("kind", "text"), [("shell", cases.SHELL), ("yaml", cases.YAML)])
def test_other_texts(kind: str, text: str) -> None:
    code, marks = parse_wanted(text)
    problems, unreadable = lint_text(code, kind, LintTarget())
    assert (summarize_answer(problems), unreadable) == (marks, None)


def test_a_dockerfile() -> None:
    code, marks = parse_wanted(cases.DOCKERFILE)
    problems, _ = lint_text(code, "dockerfile", LintTarget())
    assert summarize_answer(problems) == sorted([*marks, (4, "misspelt-variable")])


def notebook(source: str) -> str:
    cells = [{"cell_type": "markdown", "source": ["os.environ['CUDA_VISIBLE_DEVIES'] = 1"]}]
    cells += [
        {"cell_type": "code", "source": part.strip("\n").splitlines(keepends=True)}
        for part in source.split("# %%\n")
    ]
    return json.dumps({"cells": cells, "nbformat": 4}, indent=1)


def test_a_notebook() -> None:
    parts = [parse_wanted(part.strip("\n")) for part in cases.NOTEBOOK.split("# %%\n")]
    expected = [(cell, line, name) for cell, (_, marks) in enumerate(parts, 2) for line, name in marks]
    problems, unreadable = lint_text(
        notebook("# %%\n".join(f"{code}\n" for code, _ in parts)), "notebook", LintTarget()
    )
    assert [(one.cell, one.line, one.name) for one in problems] == expected
    assert unreadable is None


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"cells": 3}', '{"cells": [1, {"cell_type": "code"}]}', "[" * 100_000]
)
def test_what_is_no_notebook(text: str) -> None:
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
def test_kinds_of_files(name: str, first: str, kind: str | None) -> None:
    assert kind_of_file(name, first) == kind


def test_an_error_in_a_file_is_told_and_the_rest_is_read() -> None:
    text = 'import os\nos.environ["CUDA_VISIBLE_DEVIES"] = "0"\n\ndef f(:\n    x = = 3\n'
    problems, unreadable = lint_text(text, "python", LintTarget())
    assert summarize_answer(problems) == [(2, "misspelt-variable")]
    _, unreadable = lint_text("import os, tensorflow as tf\ndef f(:\n    x = = 3\n", "python", LintTarget())
    assert unreadable is not None
    assert "is not Python" in unreadable


def test_columns_count_characters() -> None:
    problems, _ = lint_text(
        'import os; é = "ü"; os.environ["CUDA_VISIBLE_DEVIES"] = "0"\n', "python", LintTarget()
    )
    (one,) = problems
    assert one.column == 32
    assert one.fix is not None
    assert (one.fix.column, one.fix.end_column) == (33, 52)


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
def test_fixes(before: str, after: str, end: str) -> None:
    text = end.join(["import os, tensorflow as tf", before, "# é", ""])
    problems, _ = lint_text(text, "python", LintTarget())
    assert correct(text, problems, "python") == text.replace(before, after)
    assert lint_text(text.replace(before, after), "python", LintTarget())[0] == []


def test_fixes_in_a_notebook_leave_everything_else() -> None:
    text = notebook('import os\nos.environ["CUDA_VISIBLE_DEVIES"] = "ü"\n')
    problems, _ = lint_text(text, "notebook", LintTarget())
    assert correct(text, problems, "notebook") == text.replace(
        'environ[\\"CUDA_VISIBLE_DEVIES', 'environ[\\"CUDA_VISIBLE_DEVICES'
    )


def test_every_kind_is_found_here_and_explained() -> None:
    texts = [*cases.PYTHON.values(), *(text for _, _, text in cases.WITH_OPTIONS.values())]
    assert {name for text in texts for _, name in parse_wanted(text)[1]} == set(LINT)
    assert {kind.name for kind in KINDS} | {"cluster-address", "cluster-task"} == set(LINT)
    assert set(LINT.values()) <= set(LOG_NOTES)


def test_no_name_that_programs_read_is_taken_for_a_slip() -> None:
    assert [name for name in READ if guess_variable(name) is not None] == []


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not here")
def test_the_corpus() -> None:
    missed, extra = [], []
    for entry in json.loads((CORPUS / "truth.json").read_text("utf-8")):
        text = (CORPUS / "files" / entry["file"]).read_text("utf-8")
        given = dict(zip(entry["options"][::2], entry["options"][1::2], strict=True))
        tf = given.get("--tf")
        major, _, minor = tf.partition(".") if tf else ("", "", "")
        asked = LintTarget(
            (int(major), int(minor)) if tf else None, int(given["--gpus"]) if "--gpus" in given else None
        )
        kind = kind_of_file(entry["file"], text.partition("\n")[0])
        assert kind is not None
        got = [(one.name, one.line, one.cell) for one in lint_text(text, kind, asked)[0]]
        for want in entry["findings"]:
            lines = {want["line"], *want.get("also_lines", [])}
            hit = next(
                (g for g in got if g[0] == want["name"] and g[1] in lines and g[2] == want["cell"]), None
            )
            if hit is None:
                missed.append((entry["file"], want["name"]))
            else:
                got.remove(hit)
        extra += [(entry["file"], *one) for one in got]
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
def test_a_task_is_in_a_cluster_as_the_command_cluster_says(members: str, index: str) -> None:
    config = f'{{"cluster": {{"worker": {members}}}, "task": {{"type": "worker", "index": {index}}}}}'
    (written,) = read_cluster(config, "text").written
    faults = {one.name for one in evaluate_cluster(written, "text").faults}
    found, _ = lint_text(f"TF_CONFIG='{config}'\n", "env", LintTarget())
    assert {one.name for one in found} == faults
