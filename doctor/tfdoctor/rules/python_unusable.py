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

from tfdoctor.core.facts.python import INSTALL_GUARD_FILE, UnusablePython
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.remedies.pip import format_check_command, quote
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Result, Rule, RuleContext, require_known_fact
from tfdoctor.rules.environment_gone import build_restore_remedies
from tfdoctor.rules.shared import variable_origins
from tfdoctor.rules.shared.pythons import (
    describe_python_choice,
    list_other_python_evidence,
    make_other_python_remedies,
)

if TYPE_CHECKING:
    from tfdoctor.core.facts.python import StartupFailure
    from tfdoctor.core.findings import Finding

PYTHONHOME_VARIABLE = "PYTHONHOME"
TITLE_BY_FAILURE_KIND = {
    "base-gone": "The Python of this environment is gone",
    "not-started": "This Python does not start",
    "exited": "This Python ends at once",
    "killed": "This Python is killed when it starts",
    "home": "PYTHONHOME keeps this Python from starting",
    "site": "This Python does not finish starting up",
    "silent": "This Python does not answer",
    "rubbish": "This program is not a Python",
}
"""The title of the finding for each `StartupFailure.kind`."""


def check(context: RuleContext) -> Result:
    fact = context.facts.python
    if not isinstance(fact, UnusablePython) or fact.trouble is None:
        unmet_result = require_known_fact(fact, "the Python")
        return unmet_result if isinstance(unmet_result, CouldNotCheck) else ()
    failure = fact.trouble
    if failure.kind == "denied":
        return NotApplicable("this user may not run it, which TFD319 explains")
    guard_file = next((path for path in failure.files if path.endswith(f"/{INSTALL_GUARD_FILE}")), None)
    if guard_file is not None:
        return [_make_unfinished_finding(guard_file)]
    evidence = [Evidence(failure.path, f"{failure.how}{f': {failure.detail}' if failure.detail else ''}")]
    if failure.said:
        evidence.append(Evidence(f"{failure.path} (what it printed)", failure.said))
    evidence += [Evidence(path, "is the last file that it read (python -v)") for path in failure.files]
    return [
        RULE.make_finding(
            Cause.PYTHON_UNUSABLE,
            Severity.ERROR,
            _explain_startup_failure(context, failure),
            title=_format_title(failure),
            evidence=[*evidence, *list_other_python_evidence(context)],
            remedies=[
                *_list_remedies(context, failure),
                # PYTHONHOME would keep any other Python from starting, too.
                *(
                    make_other_python_remedies(context)
                    if failure.kind != "home" and _has_other_pythons(context)
                    else ()
                ),
            ],
        )
    ]


def _make_unfinished_finding(guard_file: str) -> Finding:
    """Return the finding that `tfdoctor install` did not finish this environment, and blocks it until then."""
    prefix = guard_file.rpartition("/lib/")[0]
    return RULE.make_finding(
        Cause.PYTHON_UNUSABLE,
        Severity.ERROR,
        f"`tfdoctor install` made {prefix} and was interrupted. Until it is finished, its Python does not start.",
        title=f"This environment is unfinished, because `tfdoctor install` was interrupted: {prefix}",
        evidence=[Evidence(guard_file, "blocks the unfinished environment")],
        remedies=[
            Remedy(
                "Run the same command again, with the same options: it continues where it stopped.",
                (f"tfdoctor install --into {quote(prefix)}",),
            ),
            Remedy("Remove the environment.", (f"rm -r {quote(prefix)}",)),
        ],
    )


def _format_title(failure: StartupFailure) -> str:
    if failure.files:
        return f"{TITLE_BY_FAILURE_KIND['site']}: {failure.files[0]}"
    return f"{TITLE_BY_FAILURE_KIND.get(failure.kind, RULE.title)}: {failure.path}"


def _has_other_pythons(context: RuleContext) -> bool:
    return context.facts.choice is not None and bool(context.facts.choice.others)


def _explain_startup_failure(context: RuleContext, failure: StartupFailure) -> str:
    """Return one or more sentences about how the Python failed to start."""
    name = f"{failure.path} ({describe_python_choice(context)})"
    output = f' It says: "{failure.said}".' if failure.said else ""
    detail = f": {failure.detail}" if failure.detail else ""
    lost_env = next(iter(context.facts.choice.lost), None) if context.facts.choice is not None else None
    if failure.kind == "base-gone" and lost_env is not None:
        version = f", made with Python {lost_env.version}," if lost_env.version else ""
        return (
            f"{lost_env.prefix} is a virtual environment{version} whose bin/python is a link to {lost_env.target}, which is not "
            "there: that Python was removed or replaced. No program starts in it; its packages are still there."
        )
    if failure.kind == "home":
        value = context.facts.environment.variables.get(PYTHONHOME_VARIABLE, "")
        return (
            f"{PYTHONHOME_VARIABLE} is {value!r}: Python then looks for its own library there, and {name} {failure.how}. "
            f"Without the variable it starts.{variable_origins.format_origin_sentence(context, PYTHONHOME_VARIABLE)}{output}"
        )
    if failure.kind == "site":
        location = f" It stops in {failure.files[0]}." if failure.files else ""
        return f"With its site-packages {name} {failure.how}; without them (`python -S`) it starts.{location}{output}"
    if failure.kind == "silent":
        return (
            f"{name} {failure.how}, also without its site-packages (`python -S`): it hangs, or it starts very slowly "
            "(a network file system, a cold disk). Nothing could be learned of its TensorFlow; the driver was asked by "
            "another Python."
        )
    if failure.kind == "rubbish":
        return f"{name} runs, but it is another program with the name of a Python.{output}"
    return f"{name} {failure.how}{detail}.{output}"


def _list_remedies(context: RuleContext, failure: StartupFailure) -> list[Remedy]:
    python = quote(failure.path)
    lost_env = next(iter(context.facts.choice.lost), None) if context.facts.choice is not None else None
    if failure.kind == "base-gone" and lost_env is not None:
        return build_restore_remedies(lost_env)
    if failure.kind == "home":
        return [
            variable_origins.make_unset_remedy(
                context,
                PYTHONHOME_VARIABLE,
                f"Unset {PYTHONHOME_VARIABLE}: hardly any Python needs it.",
                with_steps=context.target.image is not None,  # on a machine, other programs may need it
            )
        ]
    if failure.kind == "site":
        remedies = [
            Remedy("See where its start hangs (Ctrl-C ends it).", (f"{python} -v -c pass 2>&1 | tail -n 20",))
        ]
        if failure.files:
            path = quote(failure.files[0])
            remedies.insert(
                0,
                Remedy(
                    "Read the file in which the start stops, and put it aside if that is the reason.",
                    (f"cat {path}", f"mv {path} {path}.aside", format_check_command(context.target)),
                ),
            )
        return remedies
    if failure.kind == "silent":
        return [
            Remedy("Start it once by hand, and see how long it takes.", (f"time {python} -S -c pass",)),
            Remedy("Then allow more time.", ("tfdoctor check --timeout 60",)),
        ]
    if "/shims/" in failure.path:  # the folder in which pyenv puts its shims
        return [
            Remedy(
                "It is a shim of pyenv or the like, which starts the version that is chosen here. See which are there, "
                "and choose one.",
                ("pyenv versions", "pyenv local VERSION", format_check_command(context.target)),
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
