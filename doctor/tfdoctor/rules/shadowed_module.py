"""Another module is found first under a name that TensorFlow's import takes.

What it means
-------------
Python looks for modules beside the script, or in the working directory, then in the folders of PYTHONPATH, before it
looks where packages are installed. A tensorflow.py, numpy.py, random.py or a folder keras there is imported in the
place of the one that is meant: "module 'tensorflow' has no attribute ...", "partially initialized module", or an
error in a file of your own.

How it is seen
--------------
The examined Python lists what its path has twice, the working directory first, and imports nothing. Where the name
is one that TensorFlow's import takes, a child rehearses the import of the packages that take it.

What to do
----------
Give the file another name, start Python from another folder, or take the folder off PYTHONPATH.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import advice
from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.predict.imports import shadows_tensorflow
from tfdoctor.predict.rehearsing import failures
from tfdoctor.rules.base import Context, Result, Rule
from tfdoctor.rules.shared import needs
from tfdoctor.steps import Drop

if TYPE_CHECKING:
    from tfdoctor.findings import Finding


def check(context: Context) -> Result:
    tensorflow = context.tensorflow
    found = []
    if tensorflow is not None and shadows_tensorflow(tensorflow) and tensorflow.shadowed_by:
        found.append(_finding(context, "tensorflow", tensorflow.shadowed_by, tensorflow.package_dir, ""))
    for failed in failures(context.facts, context.compat):
        if failed.shadow:
            one = failed.rehearsed
            name = failed.shadow.rpartition("/")[2].partition(".")[0]
            found.append(_finding(context, name, failed.shadow, "", f"{one.error_type}: {one.error}"))
    return found


def _finding(context: Context, name: str, path: str, hidden: str, error: str) -> Finding:
    here = path.removesuffix("/__init__.py")
    is_file = here.endswith((".py", ".so")) or ".so" in here.rpartition("/")[2]
    what = f"the {'file' if is_file else 'folder'} {here}"
    python = context.python
    behind = hidden or next(
        (one.hidden for one in (python.shadows if python is not None else ()) if one.taken == path),
        "Python's own folders",
    )
    through = _door(context, here)
    explanation = f"`import {name}` in a program that is started here takes {what}, not the one in {behind}."
    if error:
        explanation += f" The import of TensorFlow stops ({error})."
    return RULE.finding(
        Cause.SHADOWED_MODULE,
        Severity.ERROR,
        explanation,
        title=f"{what[0].upper()}{what[1:]} hides {'TensorFlow' if name == 'tensorflow' else name}"
        f"{' from programs started here' if through == HERE else ''}",
        evidence=[Evidence(here, f"is found first, through {through}")],
        remedies=_remedies(context, here, through, is_file=is_file),
    )


HERE = "the working directory"


def _door(context: Context, path: str) -> str:
    """How Python comes to look there before it looks where packages are installed."""
    folder = path.rpartition("/")[0]
    listed = context.facts.environment.variables.get("PYTHONPATH", "").split(":")
    if folder in [one.rstrip("/") for one in listed if one]:
        return "PYTHONPATH"
    if context.python is not None and folder in context.python.sys_path:
        return "a folder of the examined Python's own path"
    return HERE


def _remedies(context: Context, path: str, through: str, *, is_file: bool) -> list[Remedy]:
    folder, _, name = path.rpartition("/")
    again = advice.check_again(context.target)
    if through == "PYTHONPATH":
        listed = context.facts.environment.variables.get("PYTHONPATH", "").split(":")
        rest = ":".join(one for one in listed if one and one.rstrip("/") != folder)
        command = f"export PYTHONPATH={advice.quote(rest)}" if rest else "unset PYTHONPATH"
        return [
            Remedy(f"Take {folder} off PYTHONPATH.", (command, again), steps=(Drop("PYTHONPATH", (folder,)),))
        ]
    new = advice.quote(f"{folder}/my_{name}")
    what = "file" if is_file else "folder"
    return [
        Remedy(f"Give the {what} another name.", (f"mv {advice.quote(path)} {new}", again)),
        Remedy("Or start Python from another folder.", ("cd ~", again)),
    ]


RULE = Rule(
    "TFD701",
    "shadowed-module",
    "Another module hides one that TensorFlow's import takes",
    (Cause.SHADOWED_MODULE,),
    check,
    needs=(needs.tensorflow,),
)
