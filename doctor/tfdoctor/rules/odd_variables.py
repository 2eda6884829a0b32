"""An environment variable does not do what it appears to do.

What it means
-------------
TF_CPP_MIN_LOG_LEVEL hides TensorFlow's own messages, so it does not say why it registers no GPU.
TF_FORCE_GPU_ALLOW_GROWTH accepts only `true` and `false`. XLA_FLAGS is a list of flags that begin with two
hyphens; any other value is read as the name of a file, and TensorFlow stops if there is none. The loader
does not expand LD_LIBRARY_PATH (`~`, `$HOME`), and an empty or relative entry in it means the working
directory.

How it is seen
--------------
The variables are read as this process has them.

What to do
----------
Each finding shows the correct line.
"""

from __future__ import annotations

import re

from tfdoctor.core.causes.steps import RemoveEntries, SetVariable, UnsetVariable
from tfdoctor.core.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.remedies.pip import format_check_command, quote
from tfdoctor.rules.base import Result, Rule, RuleContext
from tfdoctor.rules.shared import variable_origins

LOADER_TOKEN_PATTERN = re.compile(r"\$(?:ORIGIN|LIB|PLATFORM|\{(?:ORIGIN|LIB|PLATFORM)\})")
"""A token that the loader expands in LD_LIBRARY_PATH."""
LIBRARY_FILE_PATTERN = re.compile(r"\.so(\.\d+)*\Z")
"""The end of a library's file name, such as ".so.12"."""


def check(context: RuleContext) -> Result:
    variables = context.facts.environment.variables
    finders = (
        _find_log_level_problem,
        _find_allow_growth_problem,
        _find_xla_flags_problem,
        _find_library_path_problems,
    )
    return [
        *(finding for find_problems in finders for finding in find_problems(context, variables)),
        *_find_late_variables(context),
    ]


def _build_finding(
    context: RuleContext,
    severity: Severity,
    title: str,
    explanation: str,
    *,
    name: str,
    value: str,
    remedies: list[Remedy],
) -> Finding:
    """Return a finding about the variable `name`, with the place that sets it."""
    return RULE.make_finding(
        Cause.INCONCLUSIVE,
        severity,
        f"{explanation}{variable_origins.format_origin_sentence(context, name)}",
        title=title,
        evidence=[
            Evidence(name, repr(value)),
            *variable_origins.list_origin_evidence(context, name),
        ],
        remedies=remedies,
    )


def _find_late_variables(context: RuleContext) -> list[Finding]:
    """Return a finding for each variable (such as LD_LIBRARY_PATH) that Python's startup sets too late."""
    findings = []
    for origin in context.facts.environment.late:
        reader = "Python" if origin.name.startswith("PYTHON") else "The loader"
        source = (
            f"{origin.path}, line {origin.line}" if origin.path else variable_origins.ORIGIN_LABELS["start"]
        )
        findings.append(
            RULE.make_finding(
                Cause.INCONCLUSIVE,
                Severity.WARNING if context.prediction.gpu_registered is False else Severity.INFO,
                f"{reader} reads {origin.name} when a process starts. {source} sets it afterwards: that has no effect "
                "on this Python, only on programs that it starts.",
                title=f"{origin.name} is set too late, when Python has started",
                evidence=[Evidence(origin.path, " ".join(origin.text.split()), origin.line)]
                if origin.path
                else [],
                remedies=[
                    Remedy(
                        "Set it where the environment is activated, or in the shell, before Python starts."
                    )
                ],
            )
        )
    return findings


def _find_log_level_problem(context: RuleContext, variables: dict[str, str]) -> list[Finding]:
    """Return a finding if TF_CPP_MIN_LOG_LEVEL is 3, or if it is 2 and no GPU is registered."""
    name = "TF_CPP_MIN_LOG_LEVEL"
    value = variables.get(name, "").strip()
    hides_warnings = value == "2" and context.prediction.gpu_registered is not True
    if value != "3" and not hides_warnings:
        return []
    hidden_messages = "every message, errors too" if value == "3" else "warnings, those about the GPU too"
    return [
        _build_finding(
            context,
            Severity.INFO,
            f"{name}={value} keeps TensorFlow from saying what is wrong",
            f"It hides {hidden_messages}: where no GPU is registered, TensorFlow does not say why.",
            name=name,
            value=value,
            remedies=[Remedy("While looking for the cause:", (f"unset {name}",))],
        )
    ]


def _find_allow_growth_problem(context: RuleContext, variables: dict[str, str]) -> list[Finding]:
    """Return a finding if TF_FORCE_GPU_ALLOW_GROWTH is neither "true" nor "false"."""
    name = "TF_FORCE_GPU_ALLOW_GROWTH"
    value = variables.get(name)
    if value is None or value in ("true", "false"):
        return []
    return [
        _build_finding(
            context,
            Severity.WARNING,
            f"{name} is {value!r}, which TensorFlow does not understand",
            "It knows only the words true and false, in lower case; anything else is ignored, and TensorFlow "
            "takes nearly all memory of the card.",
            name=name,
            value=value,
            remedies=[
                Remedy(
                    "Write the word in lower case.",
                    (f"export {name}=true",),
                    steps=(SetVariable(name, "true"),),
                )
            ],
        )
    ]


def _find_xla_flags_problem(context: RuleContext, variables: dict[str, str]) -> list[Finding]:
    """Return a finding if XLA_FLAGS does not begin with a hyphen, so that XLA takes it for a file name."""
    name = "XLA_FLAGS"
    value = variables.get(name, "")
    if not value.strip() or value.lstrip().startswith("-"):
        return []
    remedies = []
    if value.startswith("xla_"):
        line = f"export {name}={quote('--' + value)}"
        remedies.append(
            Remedy("Write the flag with two hyphens.", (line,), steps=(SetVariable(name, f"--{value}"),))
        )
    else:
        remedies.append(
            Remedy(
                "Unset it, unless you meant a file of flags.",
                (f"unset {name}",),
                steps=(UnsetVariable(name),),
            )
        )
    return [
        _build_finding(
            context,
            Severity.WARNING,
            f"{name} does not begin with two hyphens and is taken for a file's name",
            "Flags begin with `--`. A value that begins otherwise is read as the name of a file with flags, "
            "and where there is no such file TensorFlow stops.",
            name=name,
            value=value,
            remedies=remedies,
        )
    ]


def _find_library_path_problems(context: RuleContext, variables: dict[str, str]) -> list[Finding]:
    """Return a finding if entries of LD_LIBRARY_PATH have no effect or an unexpected one.

    Empty entries are reported only if all other entries are correct.
    """
    name = "LD_LIBRARY_PATH"
    value = variables.get(name, "")
    if not value:
        return []
    entries = value.replace(";", ":").split(":")
    error_by_entry = {entry: error for entry in entries if (error := _describe_entry_error(entry))}
    home_entry = next(
        (entry for entry in error_by_entry if entry.startswith(("~/", "$HOME/", "${HOME}/"))), None
    )
    findings = []
    if error_by_entry:
        errors = "; ".join(f"{entry!r} {error}" for entry, error in error_by_entry.items())
        remaining = ":".join(entry for entry in entries if entry and entry not in error_by_entry)
        remedies = []
        if home_entry is not None:
            home_path = home_entry.split("/", 1)[1]
            prefix = quote(remaining) + ":" if remaining else ""
            remedies.append(
                Remedy("Let the shell expand it:", (f'export {name}={prefix}"$HOME"/{quote(home_path)}',))
            )
        elif remaining:
            remedies.append(
                Remedy(
                    "Without these:",
                    (f"export {name}={quote(remaining)}",),
                    steps=(RemoveEntries(name, tuple(error_by_entry)),),
                )
            )
        else:
            remedies.append(
                Remedy(
                    "Unset the variable: without these entries it is empty.",
                    (f"unset {name}",),
                    steps=(UnsetVariable(name),),
                )
            )
        findings.append(
            _build_finding(
                context,
                Severity.WARNING,
                f"{name} has entries that do not do what they appear to do",
                f"{errors}.",
                name=name,
                value=value,
                remedies=remedies,
            )
        )
    if "" in entries and not error_by_entry:
        remaining = ":".join(entry for entry in entries if entry)
        line = f"export {name}={quote(remaining)}" if remaining else f"unset {name}"
        findings.append(
            _build_finding(
                context,
                Severity.INFO,
                f"{name} has an empty entry, which means the working directory",
                "A colon at the beginning, at the end, or two in a row make the loader look for libraries in "
                "whatever folder the program was started from.",
                name=name,
                value=value,
                remedies=[Remedy("Without it:", (line, format_check_command(context.target)))],
            )
        )
    return findings


def _describe_entry_error(entry: str) -> str:
    """Return a clause about what is wrong with an entry; "" if nothing is."""
    if not entry:
        return ""
    literal_text = LOADER_TOKEN_PATTERN.sub("", entry)
    if entry.startswith("~"):
        return "is not expanded: the loader does not know `~`"
    if "$" in literal_text:
        return "is not expanded: the loader knows no variables of the shell"
    if entry != entry.strip() or entry.strip("\"'") != entry:
        return "has a space or quotation mark too many"
    if LIBRARY_FILE_PATTERN.search(entry):
        return "is a file; entries are folders"
    if not entry.startswith("/") and literal_text == entry:
        return "is relative: it means another folder wherever the program is started"
    return ""


RULE = Rule(
    "TFD605",
    "odd-variables",
    "An environment variable does not do what it appears to do",
    (Cause.INCONCLUSIVE,),
    check,
    short_title="a variable without the wanted effect",
)
