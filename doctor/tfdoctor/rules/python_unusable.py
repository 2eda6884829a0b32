"""The examined Python does not work.

What it means
-------------
The Python does not start, ends at once, prints something unexpected, or hangs. No program can run in it,
and so TensorFlow cannot either. This concerns only this Python and says nothing about the driver.

How it is seen
--------------
tfdoctor starts it with a small script, a second time with a longer time limit, once without its
site-packages (`-S`), and once with a log of its startup (`-v`), which shows the last file that it read. If
PYTHONHOME is set, it is also started without it. Another Python asks the driver.

What to do
----------
If the startup of this Python hangs, read the sitecustomize.py or .pth file that the finding names. If the
Python from which an environment was created is missing, create the environment again with another Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import advice
from tfdoctor.facts.python import UnusablePython
from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Result, Rule, RuleContext, make_unknown_result
from tfdoctor.rules.environment_gone import build_restore_remedies
from tfdoctor.rules.shared import variable_origins
from tfdoctor.rules.shared.pythons import (
    describe_python_choice,
    list_other_python_evidence,
    make_other_python_remedies,
)

if TYPE_CHECKING:
    from tfdoctor.facts.python import StartupFailure

HOME_VARIABLE = "PYTHONHOME"
TITLE_BY_TROUBLE_KIND = {
    "base-gone": "The Python of this environment is gone",
    "not-started": "This Python does not start",
    "exited": "This Python ends at once",
    "killed": "This Python is killed when it starts",
    "home": "PYTHONHOME keeps this Python from starting",
    "site": "This Python does not get through its own start",
    "silent": "This Python does not answer",
    "rubbish": "This is no Python that answers as one",
}
"""The title of the finding for each `StartupFailure.kind`."""


def check(context: RuleContext) -> Result:
    fact = context.facts.python
    if not isinstance(fact, UnusablePython) or fact.trouble is None:
        outcome = make_unknown_result(fact, "the Python")
        return outcome if isinstance(outcome, CouldNotCheck) else ()
    trouble = fact.trouble
    if trouble.kind == "denied":
        return NotApplicable("this user may not run it, which TFD319 explains")
    evidence = [Evidence(trouble.path, f"{trouble.how}{f': {trouble.detail}' if trouble.detail else ''}")]
    if trouble.said:
        evidence.append(Evidence(f"{trouble.path} (what it printed)", trouble.said))
    evidence += [Evidence(path, "is the last file that it read (python -v)") for path in trouble.files]
    return [
        RULE.make_finding(
            Cause.PYTHON_UNUSABLE,
            Severity.ERROR,
            _explain_startup_failure(context, trouble),
            title=_format_title(trouble),
            evidence=[*evidence, *list_other_python_evidence(context)],
            remedies=[
                *_list_remedies(context, trouble),
                *(make_other_python_remedies(context) if _has_other_pythons(context) else ()),
            ],
        )
    ]


def _format_title(trouble: StartupFailure) -> str:
    if trouble.files:
        return f"{TITLE_BY_TROUBLE_KIND['site']}: {trouble.files[0]}"
    return f"{TITLE_BY_TROUBLE_KIND.get(trouble.kind, RULE.title)}: {trouble.path}"


def _has_other_pythons(context: RuleContext) -> bool:
    return context.facts.choice is not None and bool(context.facts.choice.others)


def _explain_startup_failure(context: RuleContext, trouble: StartupFailure) -> str:
    """Return a sentence or more about how the Python failed to start."""
    name = f"{trouble.path} ({describe_python_choice(context)})"
    output = f' It says: "{trouble.said}".' if trouble.said else ""
    detail = f": {trouble.detail}" if trouble.detail else ""
    lost_env = next(iter(context.facts.choice.lost), None) if context.facts.choice is not None else None
    if trouble.kind == "base-gone" and lost_env is not None:
        version = f", made with Python {lost_env.version}," if lost_env.version else ""
        return (
            f"{lost_env.prefix} is a virtual environment{version} whose bin/python is a link to {lost_env.target}, which is not "
            "there: that Python was removed or replaced. No program starts in it; its packages are still there."
        )
    if trouble.kind == "home":
        value = context.facts.environment.variables.get(HOME_VARIABLE, "")
        return (
            f"{HOME_VARIABLE} is {value!r}: Python then looks for its own library there, and {name} {trouble.how}. Without the "
            f"variable it starts.{variable_origins.format_origin_sentence(context, HOME_VARIABLE)}{output}"
        )
    if trouble.kind == "site":
        location = f" It stops in {trouble.files[0]}." if trouble.files else ""
        return f"With its site-packages {name} {trouble.how}; without them (`python -S`) it starts.{location}{output}"
    if trouble.kind == "silent":
        return (
            f"{name} {trouble.how}, also without its site-packages (`python -S`): it hangs, or it starts very slowly "
            "(a network file system, a cold disk). Nothing could be learned of its TensorFlow; the driver was asked by "
            "another Python."
        )
    if trouble.kind == "rubbish":
        return f"{name} runs and does not answer as a Python does: another program goes by that name.{output}"
    return f"{name} {trouble.how}{detail}.{output}"


def _list_remedies(context: RuleContext, trouble: StartupFailure) -> list[Remedy]:
    python = advice.quote(trouble.path)
    lost_env = next(iter(context.facts.choice.lost), None) if context.facts.choice is not None else None
    if trouble.kind == "base-gone" and lost_env is not None:
        return build_restore_remedies(lost_env)
    if trouble.kind == "home":
        return [
            variable_origins.make_unset_remedy(
                context, HOME_VARIABLE, f"Unset {HOME_VARIABLE}: hardly any Python needs it.", steps=False
            )
        ]
    if trouble.kind == "site":
        remedies = [
            Remedy("See where its start hangs (Ctrl-C ends it).", (f"{python} -v -c pass 2>&1 | tail -n 20",))
        ]
        if trouble.files:
            path = advice.quote(trouble.files[0])
            remedies.insert(
                0,
                Remedy(
                    "Read the file in which the start stops, and put it aside if that is the reason.",
                    (f"cat {path}", f"mv {path} {path}.aside", advice.format_check_command(context.target)),
                ),
            )
        return remedies
    if trouble.kind == "silent":
        return [
            Remedy("Start it once by hand, and see how long it takes.", (f"time {python} -S -c pass",)),
            Remedy("Then allow more time.", ("tfdoctor check --timeout 60",)),
        ]
    is_shim = "/shims/" in trouble.path
    if is_shim:
        return [
            Remedy(
                "It is a shim of pyenv or the like, which starts the version that is chosen here. See which are there, "
                "and choose one.",
                ("pyenv versions", "pyenv local VERSION", advice.format_check_command(context.target)),
            )
        ]
    return [
        Remedy(
            "Run it by hand and read what it says.",
            (f"{python} -c 'import sys; print(sys.version)'", f"file -L {python}"),
        )
    ]


RULE = Rule(
    "TFD317",
    "python-unusable",
    "The examined Python does not work",
    (Cause.PYTHON_UNUSABLE,),
    check,
    short_title="this Python does not work",
    explains_broken_python=True,
)
