"""A file or folder in the working directory is called `tensorflow`.

What it means
-------------
Python looks for modules beside the script, or in the working directory, before it looks where TensorFlow is
installed. A tensorflow.py or a folder tensorflow there is imported in its place: "module 'tensorflow' has
no attribute ..." or, in TensorFlow's own source tree, "Do not import tensorflow from its source directory".

How it is seen
--------------
The target Python looks for tensorflow.py and tensorflow/__init__.py in the working directory, and imports
nothing.

What to do
----------
Give the file another name, or start Python from another folder.
"""

from __future__ import annotations

from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.rules import advice
from tfdoctor.rules.base import Context, Result, Rule, unanswered


def check(context: Context) -> Result:
    refused = unanswered(context.facts.tensorflow, "TensorFlow")
    if refused is not None:
        return refused
    tensorflow = context.tensorflow
    if tensorflow is None or not tensorflow.shadowed_by:
        return ()
    path = tensorflow.shadowed_by
    if path == f"{tensorflow.package_dir}/__init__.py":
        return ()  # the working directory is site-packages itself
    folder, _, name = path.rpartition("/")
    if name == "__init__.py":
        remedies = [Remedy("Start Python from another folder.", ("cd ~", advice.check_again(context)))]
        what = f"the folder {folder}"
    else:
        new = advice.quote(f"{folder}/my_tensorflow.py")
        remedies = [Remedy("Give it another name.", (f"mv {advice.quote(path)} {new}",))]
        what = f"the file {path}"
    return [
        RULE.finding(
            Cause.INCONCLUSIVE,
            Severity.WARNING,
            f"`import tensorflow` in a program that is started here takes {what}, not the TensorFlow in "
            f"{tensorflow.package_dir}.",
            title=f"{what[0].upper()}{what[1:]} hides TensorFlow from programs started here",
            evidence=[Evidence(path, "is there")],
            remedies=remedies,
        )
    ]


RULE = Rule(
    "TFD701",
    "shadowed-module",
    "Something in the working directory is called tensorflow",
    (Cause.INCONCLUSIVE,),
    check,
)
