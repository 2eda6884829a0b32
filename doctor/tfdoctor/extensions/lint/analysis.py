"""Find problems in the text of a file. The code is not run or imported, and nothing else is read."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.core.causes.codes import LINT_CODES
from tfdoctor.core.python_size import MAX_TOKENS, has_many_tokens
from tfdoctor.extensions.lint import non_python
from tfdoctor.extensions.lint.codes import find_kind_name, get_severity
from tfdoctor.extensions.lint.fixes import drop_unsafe_fixes
from tfdoctor.extensions.lint.notebooks import convert_magics, list_code_cells
from tfdoctor.extensions.lint.parser import parse
from tfdoctor.extensions.lint.reporter import MAX_FINDINGS, MAX_STEPS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tfdoctor.extensions.lint.models import LintProblem, LintTarget

__all__ = ["detect_file_kind", "is_conda_environment", "is_requirements_file", "lint_text", "parse_noqa"]

MAX_FILE_BYTES = 4 * 1024 * 1024
"""The maximum size in bytes of a file that is checked."""
_SHELL_SUFFIXES = ("sh", "bash", "zsh", "ksh", "dash", "csh", "tcsh", "fish", "envrc")
_JOB_SUFFIXES = ("sbatch", "slurm", "pbs", "job", "lsf", "bsub", "sub")
_SHEBANG = re.compile(
    r"#!\s*\S*?(?:/env\s+(?:-S\s+)?)?(python|bash|zsh|dash|ksh|tcsh|csh|fish|sh)[\d.]*(?:\s|\Z)"
)
_TENSORFLOW_IMPORT = re.compile(
    r"^[ \t>.]*(?:import[ \t]+(?:[\w., \t]{0,200},[ \t]*)?"
    r"(?:tensorflow|keras|tf_keras)\b(?!\.python\.(?!client\.device_lib))|"
    r"from[ \t]+(?:tensorflow|keras|tf_keras)[ \t]+import|"
    r"from[ \t]+tensorflow\.(?:contrib|compat|config|distribute|keras|train|python\.client)\b)|multi_gpu_model",
    re.M,
)
"""An import of TensorFlow or Keras, but not of its internals (tensorflow.python), or multi_gpu_model."""
_ENVIRON_TEXTS = ("environ", "putenv", "setenv", "export ", "env=", "env =", "TF_CONFIG")
"""Python code without any of these sets no environment variable."""
_VARIABLE_PARTS = re.compile(
    r"['\"\s%!(,]C?[CUD]{2,3}A[A-Z_\-]*_|VISI|['\"\s(,]T?F_[A-Z]|NC?CL_|XLA|NVIDIA|LIBR?A?R?Y_PATH|"
    r"DEVI[A-Z]*ES?['\"=]|TENSORFLOW|KERAS|cuda_vis|tf_c"
)
"""Parts of the variables that TensorFlow, CUDA and NCCL read, correct or misspelt, in Python code."""
_RELEVANT_PARTS = re.compile(r"CU?D?A?_?|TF_|NCCL|XLA|NVIDIA|DEVI|_hosts|LIBR?A?RY|VISI|KERAS|task_", re.I)
"""Parts of such variables, or of the options of a cluster, in a file that is not Python."""
_NOQA = re.compile(
    r"#\s*noqa(?::\s*((?:[A-Za-z]+\d+|[a-z]+(?:-[a-z]+)+)(?:[\s,]+(?:[A-Za-z]+\d+|[a-z]+(?:-[a-z]+)+))*))?",
    re.I,
)
"""A comment that disables findings on its line.

The group is the list of codes or names. Without a list, the comment disables all findings.
"""
_ALIASES = (
    re.compile(r"\bimport[ \t]+(?:\w[\w., \t]{0,200},[ \t]*)?tensorflow[\w.]*[ \t]+as[ \t]+(\w+)"),
    re.compile(r"^[ \t]*(\w+)[ \t]*=[ \t]*[\w.]*\b(?:v1|compat)[ \t]*$", re.M),
)
"""Names for TensorFlow: in `import tensorflow as NAME`, and in `NAME = tf.compat.v1`."""
_REQUIREMENTS_NAME = re.compile(
    r"(?:[\w.-]{1,100}[._-])?(?:requirements|constraints)[\w.-]{0,100}\.(?:txt|in)", re.I
)
_DEPENDENCIES_KEY = re.compile(r"^dependencies:", re.M)
_FROM_IMPORT = re.compile(
    r"^[ \t]*from[ \t]+tensorflow[\w.]*[ \t]+import[ \t]+([^\n()#]{1,400}|\([^()]{1,2000}\))", re.M
)
"""An import from TensorFlow. The group contains the imported names, with or without brackets."""


def detect_file_kind(name: str, first_line: str = "") -> str | None:
    """Return the kind of a file by its name (without folders) and its first line.

    The kinds are python, notebook, shell, job, dockerfile, devcontainer, yaml and env. None means that `lint` does not check it.
    """
    lower_name = name.lower()
    suffix = lower_name.rpartition(".")[2] if "." in lower_name else ""
    if suffix in ("py", "pyw"):
        return "python"
    if suffix == "ipynb":
        return "notebook"
    if lower_name in ("devcontainer.json", ".devcontainer.json"):
        return "devcontainer"
    if lower_name.startswith(("dockerfile", "containerfile")) or suffix in ("dockerfile", "containerfile"):
        return "dockerfile"
    if suffix in ("yaml", "yml"):
        return "yaml"
    if lower_name == ".env" or lower_name.startswith(".env.") or suffix == "env":
        return "env"
    if suffix in _JOB_SUFFIXES or (suffix in _SHELL_SUFFIXES and "#SBATCH" in first_line):
        return "job"
    if suffix in _SHELL_SUFFIXES:
        return "shell"
    match = _SHEBANG.match(first_line)
    if match is not None and not suffix:
        return "python" if match[1] == "python" else "shell"
    return None


def is_requirements_file(path: Path) -> bool:
    """Return whether a file is a requirements or constraints file, by its name or that of its folder."""
    in_folder = path.parent.name == "requirements" and path.suffix == ".txt"
    return in_folder or _REQUIREMENTS_NAME.fullmatch(path.name) is not None


def is_conda_environment(kind: str, text: str) -> bool:
    """Return whether a file of this kind is a conda environment file."""
    return kind == "yaml" and _DEPENDENCIES_KEY.search(text) is not None


def lint_text(text: str, kind: str, target: LintTarget) -> tuple[list[LintProblem], str | None]:
    """Check the text of a file, and return (findings in order, reason).

    `kind` is a value that `detect_file_kind` returns. The reason says why a part of the file was not checked. It is None if
    the whole file was checked.
    """
    text = _normalize_newlines(text.removeprefix("\ufeff"))
    if kind == "python":
        return _lint_python([(None, text)], target) if _needs_parsing(text) else ([], None)
    if kind == "notebook":
        try:
            parts = [(cell.number, _normalize_newlines(cell.source)) for cell in list_code_cells(text)]
        except ValueError as error:
            return [], f"{error}"
        return _lint_python(parts, target)
    if _RELEVANT_PARTS.search(text) is None:
        return [], None
    try:
        problems = _lint_non_python(text, kind)
    except ValueError as error:
        return [], f"{error}"
    lines = text.split("\n")
    return drop_unsafe_fixes(_finish_problems(problems, {None: lines}), {None: text}, kind), None


def _normalize_newlines(text: str) -> str:
    """Return the text with "\\n" at the end of each line."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _needs_parsing(text: str) -> bool:
    """Return whether Python code may use TensorFlow or set variables that it reads, by a fast search."""
    if ("tensorflow" in text or "keras" in text or "multi_gpu_model" in text) and _TENSORFLOW_IMPORT.search(
        text
    ):
        return True
    return any(word in text for word in _ENVIRON_TEXTS) and _VARIABLE_PARTS.search(text) is not None


def _lint_non_python(text: str, kind: str) -> list[LintProblem]:
    """Return the findings in a file that is not Python. Raise ValueError if it cannot be parsed."""
    if kind == "dockerfile":
        return non_python.lint_dockerfile(text)
    if kind == "yaml":
        return non_python.lint_yaml(text)
    if kind == "env":
        return non_python.lint_env_file(text)
    return non_python.lint_shell(text, is_batch_job=kind == "job" or "#SBATCH" in text[:4000])


def _lint_python(
    parts: Sequence[tuple[int | None, str]], target: LintTarget
) -> tuple[list[LintProblem], str | None]:
    """Check a Python file or a notebook's cells, and return (findings in order, reason).

    `parts` contains (number, source) for each cell. A file is a single part with the number None. The reason says why a
    part was not checked. It is None if everything was checked.
    """
    from tfdoctor.extensions.lint.evaluator import Evaluator

    full_text = "\n".join(source for _, source in parts)
    if has_many_tokens(full_text):
        return [], f"it has more than {MAX_TOKENS:,} words and signs; nothing was checked"
    try:
        trees = [
            (number, source, parse(convert_magics(source) if number is not None else source))
            for number, source in parts
        ]
    except ImportError:  # in the single file, which has no compiled libraries
        return [], "it is not Python 3, and this copy of tfdoctor lacks tree-sitter, which reads the rest"
    evaluator = Evaluator(target, full_text)
    evaluator.is_python_2 = any(tree.is_python_2 for _, _, tree in trees)
    evaluator.tf_names = {"tf", *_find_tf_names(full_text)} if "tensorflow" in full_text else set()
    # a variable that another cell loads counts as used
    loaded_names = [
        frozenset(
            node.id
            for node in ast.walk(tree.root)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        )
        for number, _, tree in trees
        if number is not None
    ]
    evaluator.cell_counts_by_name = Counter(name for names in loaded_names for name in names)
    lines_before, reason = 0, ""
    for index, (number, source, tree) in enumerate(trees):
        evaluator.lines_before_cell = lines_before
        evaluator.loaded_names = loaded_names[index] if number is not None else frozenset()
        count_before = len(evaluator.problems)
        try:
            evaluator.evaluate_cell(tree.root.body, number, source.split("\n"))
        except RecursionError:
            reason = reason or "it is nested too deep to be read as a whole"
        lines_before += source.count("\n") + 1
        if tree.first_error_line and len(evaluator.problems) == count_before:
            location = (
                f"cell {number}, line {tree.first_error_line}"
                if number is not None
                else f"line {tree.first_error_line}"
            )
            reason = reason or f"{location} is not Python; what is around it was read"
    try:
        evaluator.evaluate_uncalled()
    except RecursionError:
        reason = reason or "it is nested too deep to be read as a whole"
    evaluator.report_partial_growth()
    evaluator.report_pinned_operations()
    if evaluator.step_count > MAX_STEPS:
        reason = (
            reason or f"it has more than {MAX_STEPS:,} statements and expressions; the rest was not checked"
        )
    if len(evaluator.problems) >= MAX_FINDINGS:
        reason = reason or f"it has {MAX_FINDINGS:,} findings or more; only these are shown"
    lines = {number: source.split("\n") for number, source in parts}
    kind = "notebook" if parts and parts[0][0] is not None else "python"
    problems = _finish_problems(evaluator.problems.values(), lines)
    return drop_unsafe_fixes(problems, dict(parts), kind, evaluator.variables_read), reason or None


def _find_tf_names(text: str) -> set[str]:
    """Return the names by which the text refers to TensorFlow or to something imported from it."""
    names = {"tensorflow", *(match[1] for pattern in _ALIASES for match in pattern.finditer(text))}
    for match in _FROM_IMPORT.finditer(text):
        for part in match[1].strip("()").split(","):
            names.update(part.split()[-1:])  # the last word of `NAME` or `NAME as ALIAS`, if there is one
    return names


def _finish_problems(
    problems: Iterable[LintProblem], lines_by_cell: dict[int | None, list[str]]
) -> list[LintProblem]:
    """Return the findings with their codes, severities and source lines, in order.

    `lines_by_cell` maps the number of each cell to its lines. Findings that a `# noqa` comment disables are dropped.
    """
    finished_problems = []
    disabled_kinds_by_position: dict[tuple[int | None, int], frozenset[str] | None] = {}
    for problem in problems:
        cell_lines = lines_by_cell.get(problem.cell_number, [])
        source = cell_lines[problem.line - 1] if 0 < problem.line <= len(cell_lines) else ""
        position = problem.cell_number, problem.line
        if position not in disabled_kinds_by_position:
            disabled_kinds_by_position[position] = parse_noqa(source)
        disabled_kinds = disabled_kinds_by_position[position]
        if disabled_kinds is None or problem.kind_name in disabled_kinds:
            continue
        finished_problems.append(
            replace(
                problem,
                source=source,
                code=LINT_CODES[problem.kind_name],
                severity=get_severity(problem.kind_name),
            )
        )
    return sorted(
        finished_problems,
        key=lambda problem: (problem.cell_number or 0, problem.line, problem.column, problem.code),
    )


def parse_noqa(source: str) -> frozenset[str] | None:
    """Return the kinds of findings that a `# noqa` comment on a line disables. None means all kinds."""
    match = _NOQA.search(source)
    if match is None:
        return frozenset()
    if match[1] is None:
        return None
    return frozenset(filter(None, map(find_kind_name, re.split(r"[\s,]+", match[1]))))
