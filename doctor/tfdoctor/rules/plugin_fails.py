"""A plugin in tensorflow-plugins/ stops every import of TensorFlow.

What it means
-------------
On every import TensorFlow loads all shared objects in the tensorflow-plugins folders of site-packages. One
that an uninstalled package left behind, that is truncated, or that was built for another TensorFlow makes
the import fail with NotFoundError.

How it is seen
--------------
tfdoctor lists the files and follows the loader's rules for each.

What to do
----------
Uninstall the package that the file belongs to, or move the file away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core.causes.steps import RemovePath
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.prediction.imports import choose_plugin_cause
from tfdoctor.remedies.pip import format_check_command, quote
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites

if TYPE_CHECKING:
    from tfdoctor.core.facts import Resolution
    from tfdoctor.core.findings import Finding


def check(context: RuleContext) -> Result:
    if context.tensorflow is None or not context.tensorflow.plugins:
        return NotApplicable("there are no plugins of TensorFlow here")
    if context.loader is None:
        return CouldNotCheck("the loader could not be followed")
    return [_build_finding(context, resolution) for resolution in context.loader.plugins if not resolution.ok]


def _build_finding(context: RuleContext, failed_lookup: Resolution) -> Finding:
    path = failed_lookup.soname
    new_path = f"{path}.aside"
    return RULE.make_finding(
        choose_plugin_cause(failed_lookup),
        Severity.ERROR,
        f"TensorFlow loads this plugin at every import, and the import stops there. The loader says: {failed_lookup.error}.",
        title=f"The plugin {path.rpartition('/')[2]} stops the import of TensorFlow",
        evidence=[Evidence(path, failed_lookup.error)],
        remedies=[
            Remedy(
                "Move the plugin out of the way, or uninstall its package.",
                (
                    f"mv {quote(path)} {quote(new_path)}",
                    format_check_command(context.target),
                ),
                steps=(RemovePath(path),),
            )
        ],
    )


RULE = Rule(
    "TFD320",
    "plugin-fails",
    "A plugin stops the import of TensorFlow",
    (Cause.DAMAGED_FILE, Cause.PACKAGE_CONFLICT),
    check,
    short_title="a plugin stops the import",
    needs=(prerequisites.require_tensorflow,),
)
