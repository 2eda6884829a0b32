"""A plugin in tensorflow-plugins/ stops every import of TensorFlow.

What it means
-------------
TensorFlow loads each shared object in the folders tensorflow-plugins of site-packages when it is imported, asked or
not. One that an uninstalled package left behind, that is truncated, or that was built for another TensorFlow stops
the import: NotFoundError.

How it is seen
--------------
The files are listed, and followed as the loader does it.

What to do
----------
Uninstall the package that it belongs to, or put the file aside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor import advice
from tfdoctor.causes.steps import Remove
from tfdoctor.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.predict.imports import plugin_cause
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites

if TYPE_CHECKING:
    from tfdoctor.facts import Resolution
    from tfdoctor.findings import Finding


def check(context: RuleContext) -> Result:
    if context.tensorflow is None or not context.tensorflow.plugins:
        return NotApplicable("there are no plugins of TensorFlow here")
    if context.loader is None:
        return CouldNotCheck("the loader could not be followed")
    return [_finding(context, one) for one in context.loader.plugins if not one.ok]


def _finding(context: RuleContext, failed: Resolution) -> Finding:
    path = failed.soname
    aside = f"{path}.aside"
    return RULE.finding(
        plugin_cause(failed),
        Severity.ERROR,
        f"TensorFlow loads this plugin at every import, and the import stops there. The loader says: {failed.error}.",
        title=f"The plugin {path.rpartition('/')[2]} stops the import of TensorFlow",
        evidence=[Evidence(path, failed.error)],
        remedies=[
            Remedy(
                "Put the plugin aside; or uninstall the package that it belongs to.",
                (f"mv {advice.quote(path)} {advice.quote(aside)}", advice.check_again(context.target)),
                steps=(Remove(path),),
            )
        ],
    )


RULE = Rule(
    "TFD320",
    "plugin-fails",
    "A plugin stops the import of TensorFlow",
    (Cause.DAMAGED_FILE, Cause.PACKAGE_CONFLICT),
    check,
    row="a plugin stops the import",
    needs=(prerequisites.require_tensorflow,),
)
