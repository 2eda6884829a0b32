"""The text of a file → its findings. Pure: nothing is run, nothing is imported, nothing is read."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.causes.codes import LINT
from tfdoctor.lint import non_python
from tfdoctor.lint.codes import kind_called, severity_of
from tfdoctor.lint.fixes import drop_ambiguous_fixes
from tfdoctor.lint.notebooks import code_cells, plain
from tfdoctor.lint.parser import parse
from tfdoctor.lint.reporter import MAX_FINDINGS, MAX_STEPS
from tfdoctor.parse.python_size import MAX_TOKENS, has_many_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfdoctor.lint.models import LintProblem, LintTarget

__all__ = ["kind_of_file", "lint_text"]

MAX_FILE_BYTES = 4 * 1024 * 1024
"""Bytes of a file that are taken."""
_SHELLS = ("sh", "bash", "zsh", "ksh", "dash", "sbatch", "slurm", "pbs", "job", "lsf", "bsub", "sub")
_SHEBANG = re.compile(r"#!\s*\S*?(?:/env\s+(?:-S\s+)?)?(python|bash|zsh|dash|ksh|sh)[\d.]*(?:\s|\Z)")
_TENSORFLOW = re.compile(
    r"^[ \t>.]*(?:import[ \t]+(?:[\w., \t]{0,200},[ \t]*)?"
    r"(?:tensorflow|keras|tf_keras)\b(?!\.python\.(?!client\.device_lib))|"
    r"from[ \t]+(?:tensorflow|keras|tf_keras)[ \t]+import|"
    r"from[ \t]+tensorflow\.(?:contrib|compat|config|distribute|keras|train|python\.client)\b)|multi_gpu_model",
    re.M,
)
_ENVIRON = ("environ", "putenv", "setenv", "export ", "env=", "env =", "TF_CONFIG")
_VARIABLES = re.compile(
    r"['\"\s%!(,]C?[CUD]{2,3}A[A-Z_\-]*_|VISI|['\"\s(,]T?F_[A-Z]|NC?CL_|XLA|NVIDIA|LIBR?A?R?Y_PATH|"
    r"DEVI[A-Z]*ES?['\"=]|TENSORFLOW|KERAS|cuda_vis|tf_c"
)
_OTHERS = re.compile(r"CU?D?A?_?|TF_|NCCL|XLA|NVIDIA|DEVI|_hosts|LIBR?A?RY|VISI|KERAS|task_", re.I)
_NOQA = re.compile(
    r"#\s*noqa(?::\s*((?:[A-Za-z]+\d+|[a-z]+(?:-[a-z]+)+)(?:[\s,]+(?:[A-Za-z]+\d+|[a-z]+(?:-[a-z]+)+))*))?",
    re.I,
)


def kind_of_file(name: str, first: str = "") -> str | None:
    """Return python, notebook, shell, job, dockerfile, yaml or env, by its name (without folders) and first line."""
    lower = name.lower()
    suffix = lower.rpartition(".")[2] if "." in lower else ""
    if suffix in ("py", "pyw"):
        return "python"
    if suffix == "ipynb":
        return "notebook"
    if lower.startswith(("dockerfile", "containerfile")) or suffix in ("dockerfile", "containerfile"):
        return "dockerfile"
    if suffix in ("yaml", "yml"):
        return "yaml"
    if lower == ".env" or suffix == "env":
        return "env"
    if suffix in _SHELLS:
        return "job" if suffix in _SHELLS[5:] or "#SBATCH" in first else "shell"
    match = _SHEBANG.match(first)
    if match is not None and not suffix:
        return "python" if match[1] == "python" else "shell"
    return None


def lint_text(text: str, kind: str, asked: LintTarget) -> tuple[list[LintProblem], str | None]:
    """Return (what is wrong, in order; why it could not be judged as a whole, or None).

    `kind`: as `kind_of_file` says.
    """
    text = _with_line_feeds(text.removeprefix("\ufeff"))
    if kind == "python":
        return _python([(None, text)], asked) if _may_matter(text) else ([], None)
    if kind == "notebook":
        try:
            parts = [(cell.number, _with_line_feeds(cell.source)) for cell in code_cells(text)]
        except ValueError as error:
            return [], f"{error}"
        return _python(parts, asked)
    if _OTHERS.search(text) is None:
        return [], None
    try:
        found = _lint_other(text, kind)
    except ValueError as error:
        return [], f"{error}"
    lines = text.split("\n")
    return drop_ambiguous_fixes(_finish_problems(found, {None: lines}), {None: text}, kind), None


def _with_line_feeds(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _may_matter(text: str) -> bool:
    """Return a cheap look: whether Python uses TensorFlow by its public names, or sets variables that it reads."""
    if ("tensorflow" in text or "keras" in text or "multi_gpu_model" in text) and _TENSORFLOW.search(text):
        return True
    return any(word in text for word in _ENVIRON) and _VARIABLES.search(text) is not None


def _lint_other(text: str, kind: str) -> list[LintProblem]:
    if kind == "dockerfile":
        return non_python.dockerfile(text)
    if kind == "yaml":
        return non_python.yaml_text(text)
    if kind == "env":
        return non_python.env_file(text)
    return non_python.shell(text, job=kind == "job" or "#SBATCH" in text[:4000])


def _python(
    parts: Sequence[tuple[int | None, str]], asked: LintTarget
) -> tuple[list[LintProblem], str | None]:
    from tfdoctor.lint.evaluator import Walk

    whole = "\n".join(source for _, source in parts)
    if has_many_tokens(whole):
        return [], f"it has more than {MAX_TOKENS:,} words and signs; nothing was checked"
    trees = [
        (number, source, parse(plain(source) if number is not None else source)) for number, source in parts
    ]
    walk = Walk(asked, whole)
    walk.python_2 = any(tree.old for _, _, tree in trees)
    walk.tf_names = {"tf", *_tf_names(whole)} if "tensorflow" in whole else set()
    loaded = [
        frozenset(
            one.id
            for one in ast.walk(tree.root)
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)
        )
        for number, _, tree in trees
        if number is not None
    ]
    walk.cells_loading = Counter(name for names in loaded for name in names)
    line, broken = 0, ""
    for place, (number, source, tree) in enumerate(trees):
        walk.first_line = line
        walk.names_loaded = loaded[place] if number is not None else frozenset()
        before = len(walk.problems)
        try:
            walk.cell(tree.root.body, number, source.split("\n"))
        except RecursionError:
            broken = broken or "it is nested too deep to be read as a whole"
        line += source.count("\n") + 1
        if tree.broken and len(walk.problems) == before:
            where = f"cell {number}, line {tree.broken}" if number is not None else f"line {tree.broken}"
            broken = broken or f"{where} is not Python; what is around it was read"
    try:
        walk.end()
    except RecursionError:
        broken = broken or "it is nested too deep to be read as a whole"
    walk.judge_growth()
    walk.judge_pins()
    if walk.steps > MAX_STEPS:
        broken = (
            broken or f"it has more than {MAX_STEPS:,} statements and expressions; the rest was not checked"
        )
    if len(walk.problems) >= MAX_FINDINGS:
        broken = broken or f"it has {MAX_FINDINGS:,} findings or more; only these are shown"
    lines = {number: source.split("\n") for number, source in parts}
    kind = "notebook" if parts and parts[0][0] is not None else "python"
    found = _finish_problems(walk.problems.values(), lines)
    return drop_ambiguous_fixes(found, dict(parts), kind, walk.names_read), broken or None


_NAMED = (
    re.compile(r"\bimport[ \t]+(?:\w[\w., \t]{0,200},[ \t]*)?tensorflow[\w.]*[ \t]+as[ \t]+(\w+)"),
    re.compile(r"^[ \t]*(\w+)[ \t]*=[ \t]*[\w.]*\b(?:v1|compat)[ \t]*$", re.M),
)
_TAKEN = re.compile(
    r"^[ \t]*from[ \t]+tensorflow[\w.]*[ \t]+import[ \t]+([^\n()#]{1,400}|\([^()]{1,2000}\))", re.M
)


def _tf_names(text: str) -> set[str]:
    """Return names that stand for TensorFlow or a part of it."""
    names = {"tensorflow", *(match[1] for pattern in _NAMED for match in pattern.finditer(text))}
    for match in _TAKEN.finditer(text):
        for part in match[1].strip("()").split(","):
            names.update(part.split()[-1:])
    return names


def _finish_problems(found: Iterable[LintProblem], lines: dict[int | None, list[str]]) -> list[LintProblem]:
    """With codes and lines, without those that a comment turns off, in order."""
    out = []
    names_turned_off: dict[tuple[int | None, int], frozenset[str] | None] = {}
    for one in found:
        own = lines.get(one.cell, [])
        source = own[one.line - 1] if 0 < one.line <= len(own) else ""
        place = one.cell, one.line
        if place not in names_turned_off:
            names_turned_off[place] = _names_turned_off(source)
        names = names_turned_off[place]
        if names is None or one.name in names:
            continue
        out.append(replace(one, source=source, code=LINT[one.name], severity=severity_of(one.name)))
    return sorted(out, key=lambda one: (one.cell or 0, one.line, one.column, one.code))


def _names_turned_off(source: str) -> frozenset[str] | None:
    """Return the kinds of findings that a line's comment turns off; None: all."""
    match = _NOQA.search(source)
    if match is None:
        return frozenset()
    if match[1] is None:
        return None
    return frozenset(filter(None, map(kind_called, re.split(r"[\s,]+", match[1]))))
