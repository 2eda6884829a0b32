"""`python` in this shell is not the Python of the active environment.

What it means
-------------
VIRTUAL_ENV or CONDA_PREFIX names an environment, but another folder comes before it on PATH: the shims of pyenv, or a
folder that ~/.bashrc puts first after the activation (terminals of editors, tmux, `sudo`). `python train.py` then runs
a different Python, with other packages.

How it is seen
--------------
The check compares the first `python` on PATH with the environment, and asks it for its prefix and for the folder of its
`tensorflow` package, which it does not import.

What to do
----------
Put the environment's folder first on PATH, or start its Python with the full path.
"""

from __future__ import annotations

import posixpath

from tfdoctor.core.facts import Known
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.remedies.pip import format_check_command, quote
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext


def check(context: RuleContext) -> Result:
    choice = context.facts.choice
    if choice is None or not choice.on_path:
        return NotApplicable("`python` on PATH is the examined one, or no environment is active")
    if not isinstance(context.facts.tensorflow, Known):
        return NotApplicable("the environment has no TensorFlow")
    package = choice.on_path_tensorflow
    content = (
        "which has no TensorFlow"
        if package == ""
        else f"which imports TensorFlow from {package}"
        if package
        else "and it is not known whether that has TensorFlow"
    )
    folder = posixpath.dirname(choice.path)
    return [
        RULE.make_finding(
            Cause.PYTHON_UNUSABLE,
            Severity.ERROR if package == "" else Severity.WARNING,
            f"{choice.how} names {posixpath.dirname(folder)}, which was examined, but {posixpath.dirname(choice.on_path)} "
            f"comes before it on PATH. A program that is started with `python` runs in {choice.on_path}, {content}.",
            title=f"`python` in this shell starts {choice.on_path}, not the environment's Python",
            evidence=[Evidence(choice.how, choice.path), Evidence("`python` on PATH", choice.on_path)],
            remedies=[
                Remedy(
                    "Put the environment first on PATH. If ~/.bashrc or the editor puts the other folder first in each "
                    "new shell, activate the environment after that.",
                    (
                        f'export PATH={quote(folder)}:"$PATH"',
                        "hash -r",
                        format_check_command(context.target),
                    ),
                ),
                Remedy("Or examine the other Python.", (f"tfdoctor check --python {quote(choice.on_path)}",)),
            ],
        )
    ]


RULE = Rule(
    "TFD323",
    "python-on-path",
    "`python` is not the active environment's",
    (Cause.PYTHON_UNUSABLE,),
    check,
    short_title="`python` is a different one",
    fix_order=9,
)
