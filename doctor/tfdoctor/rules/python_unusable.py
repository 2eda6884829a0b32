"""The examined Python does not work.

What it means
-------------
It does not start, ends at once, prints something that is no answer, or hangs: then no program can run in it, and
TensorFlow cannot either. That concerns only this Python and says nothing about the driver.

How it is seen
--------------
It is started with a small script, a second time with more patience, once without its site-packages (`-S`), and once
with a log of its start (`-v`), which shows the last file that it read; where PYTHONHOME is set also without it. The
driver is asked by another Python.

What to do
----------
Where its own start hangs, look into the sitecustomize.py or .pth file that is named. Where the Python that an
environment was made from is gone, create the environment again with one that is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import advice
from tfdoctor.facts.python import Unusable
from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Result, Rule, RuleContext, outcome_if_unknown
from tfdoctor.rules.environment_gone import restore_remedies
from tfdoctor.rules.shared import variable_origins
from tfdoctor.rules.shared.pythons import describe_python_choice, evidence_of_other_pythons, examine_others

if TYPE_CHECKING:
    from tfdoctor.facts.python import Trouble

HOME = "PYTHONHOME"
TITLES = {
    "base-gone": "The Python of this environment is gone",
    "not-started": "This Python does not start",
    "exited": "This Python ends at once",
    "killed": "This Python is killed when it starts",
    "home": "PYTHONHOME keeps this Python from starting",
    "site": "This Python does not get through its own start",
    "silent": "This Python does not answer",
    "rubbish": "This is no Python that answers as one",
}


def check(context: RuleContext) -> Result:
    fact = context.facts.python
    if not isinstance(fact, Unusable) or fact.trouble is None:
        refused = outcome_if_unknown(fact, "the Python")
        return refused if isinstance(refused, CouldNotCheck) else ()
    trouble = fact.trouble
    if trouble.kind == "denied":
        return NotApplicable("this user may not run it, which TFD319 explains")
    evidence = [Evidence(trouble.path, f"{trouble.how}{f': {trouble.detail}' if trouble.detail else ''}")]
    if trouble.said:
        evidence.append(Evidence(f"{trouble.path} (what it printed)", trouble.said))
    evidence += [Evidence(path, "is the last file that it read (python -v)") for path in trouble.files]
    return [
        RULE.finding(
            Cause.PYTHON_UNUSABLE,
            Severity.ERROR,
            _explain_startup_failure(context, trouble),
            title=_title(trouble),
            evidence=[*evidence, *evidence_of_other_pythons(context)],
            remedies=[
                *_remedies(context, trouble),
                *(examine_others(context) if _has_other_pythons(context) else ()),
            ],
        )
    ]


def _title(trouble: Trouble) -> str:
    if trouble.files:
        return f"{TITLES['site']}: {trouble.files[0]}"
    return f"{TITLES.get(trouble.kind, RULE.title)}: {trouble.path}"


def _has_other_pythons(context: RuleContext) -> bool:
    return context.facts.choice is not None and bool(context.facts.choice.others)


def _explain_startup_failure(context: RuleContext, trouble: Trouble) -> str:
    name = f"{trouble.path} ({describe_python_choice(context)})"
    said = f' It says: "{trouble.said}".' if trouble.said else ""
    detail = f": {trouble.detail}" if trouble.detail else ""
    lost = next(iter(context.facts.choice.lost), None) if context.facts.choice is not None else None
    if trouble.kind == "base-gone" and lost is not None:
        made = f", made with Python {lost.version}," if lost.version else ""
        return (
            f"{lost.prefix} is a virtual environment{made} whose bin/python is a link to {lost.target}, which is not "
            "there: that Python was removed or replaced. No program starts in it; its packages are still there."
        )
    if trouble.kind == "home":
        value = context.facts.environment.variables.get(HOME, "")
        return (
            f"{HOME} is {value!r}: Python then looks for its own library there, and {name} {trouble.how}. Without the "
            f"variable it starts.{variable_origins.origin_sentence(context, HOME)}{said}"
        )
    if trouble.kind == "site":
        at = f" It stops in {trouble.files[0]}." if trouble.files else ""
        return f"With its site-packages {name} {trouble.how}; without them (`python -S`) it starts.{at}{said}"
    if trouble.kind == "silent":
        return (
            f"{name} {trouble.how}, also without its site-packages (`python -S`): it hangs, or it starts very slowly "
            "(a network file system, a cold disk). Nothing could be learned of its TensorFlow; the driver was asked by "
            "another Python."
        )
    if trouble.kind == "rubbish":
        return f"{name} runs and does not answer as a Python does: another program goes by that name.{said}"
    return f"{name} {trouble.how}{detail}.{said}"


def _remedies(context: RuleContext, trouble: Trouble) -> list[Remedy]:
    python = advice.quote(trouble.path)
    lost = next(iter(context.facts.choice.lost), None) if context.facts.choice is not None else None
    if trouble.kind == "base-gone" and lost is not None:
        return restore_remedies(lost)
    if trouble.kind == "home":
        return [
            variable_origins.unset_remedy(
                context, HOME, f"Unset {HOME}: hardly any Python needs it.", steps=False
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
                    (f"cat {path}", f"mv {path} {path}.aside", advice.check_again(context.target)),
                ),
            )
        return remedies
    if trouble.kind == "silent":
        return [
            Remedy("Start it once by hand, and see how long it takes.", (f"time {python} -S -c pass",)),
            Remedy("Then allow more time.", ("tfdoctor check --timeout 60",)),
        ]
    shim = "/shims/" in trouble.path
    if shim:
        return [
            Remedy(
                "It is a shim of pyenv or the like, which starts the version that is chosen here. See which are there, "
                "and choose one.",
                ("pyenv versions", "pyenv local VERSION", advice.check_again(context.target)),
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
    row="this Python does not work",
    no_python=True,
)
