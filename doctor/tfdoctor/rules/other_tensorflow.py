"""Python imports a different TensorFlow than the one that would work.

What it means
-------------
PYTHONPATH, a .pth file or the user's own site-packages put a folder on Python's path before the environment's
own packages. Where that folder has a TensorFlow, too, it is the one that is imported, and `pip` shows and
changes the other one: what is installed there has no effect.

How it is seen
--------------
The target Python looks for every folder on its path that has a TensorFlow, and imports nothing; what the one
behind would do is judged in the same way as the first.

What to do
----------
Remove the folder from the path. The environment's own TensorFlow is left as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import advice
from tfdoctor.facts import MODULE_PATH, value_of
from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.predict import drop_first, find_leader, folder_of
from tfdoctor.rules.base import NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites, variable_origins

if TYPE_CHECKING:
    from tfdoctor.facts import TensorFlowFacts
    from tfdoctor.predict import Led


def check(context: RuleContext) -> Result:
    first = context.tensorflow
    if first is None or first.behind is None:
        return NotApplicable("there is one TensorFlow on this Python's path")
    if context.prediction.cause is not Cause.SHADOWED_MODULE:
        return ()
    folder, second = folder_of(first.package_dir), first.behind
    led = find_leader(context.facts, folder)
    by = f"{folder} is before it on Python's path."
    if led is not None:
        by = f"{variable_origins.path_source_phrase(context, led)} {folder} first on its path."
        by += variable_origins.origin_sentence(context, led.by, led.entry) if led.by != MODULE_PATH else ""
    return [
        RULE.finding(
            Cause.SHADOWED_MODULE,
            Severity.ERROR,
            f"Python imports {_name(context, first)} from {folder}, not {_name(context, second)} from "
            f"{folder_of(second.package_dir)}: {by} What is installed or removed in the environment has no "
            "effect on it.",
            title=f"{_name(context, first)} in {folder} hides {_name(context, second)}",
            evidence=[
                Evidence(first.package_dir, "is what Python imports"),
                Evidence(second.package_dir, "is behind it on Python's path"),
                *(variable_origins.origin_evidence(context, led.by, led.entry) if led is not None else ()),
            ],
            remedies=[_remedy(context, folder, led)],
        )
    ]


def _name(context: RuleContext, tensorflow: TensorFlowFacts) -> str:
    owner = tensorflow.distribution or "TensorFlow"
    python = value_of(context.facts.python)
    here = folder_of(tensorflow.package_dir)
    near = [d for d in python.distributions if d.location.rstrip("/") == here] if python is not None else []
    if near and all(d.name != owner for d in near):
        owner = "TensorFlow"
    return f"{owner} {tensorflow.version or ''}".rstrip()


def _remedy(context: RuleContext, folder: str, led: Led | None) -> Remedy:
    if led is not None:
        return variable_origins.remove_from_python_path(context, led)
    python = value_of(context.facts.python)
    if folder.endswith("site-packages") and "/.local/" in folder and python is not None:
        return Remedy(
            "It is in your own site-packages, which every Python of this version reads. Keep Python from it:",
            ("export PYTHONNOUSERSITE=1", advice.check_again(context.target)),
        )
    sites = " ".join(advice.quote(path) for path in (python.site_packages if python is not None else ()))
    look = (f"grep -Fn {advice.quote(folder)} {sites}/*.pth",) if sites and " " not in sites else ()
    return Remedy(
        f"Remove {folder} from this Python's path: a .pth file or sitecustomize.py puts it there.", look
    )


def should_report_other(context: RuleContext) -> bool:
    """Return whether to report the TensorFlow behind instead of the first one's own faults."""
    return context.prediction.cause is Cause.SHADOWED_MODULE and drop_first(context.facts) is not None


RULE = Rule(
    "TFD703",
    "other-tensorflow",
    "Another TensorFlow comes before the one that would work",
    (Cause.SHADOWED_MODULE,),
    check,
    row="another TensorFlow comes first",
    needs=(prerequisites.require_tensorflow,),
    first=10,
)
