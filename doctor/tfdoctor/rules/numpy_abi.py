"""NumPy has a version that this TensorFlow does not work with.

What it means
-------------
TensorFlow's wheels are compiled against NumPy. Those before 2.18 cannot be imported with NumPy 2. Older
ones use names that NumPy 1.24 removed, or fail later in their recurrent layers with 1.20. pip allows this,
because the old wheels declare no upper limit.

How it is seen
--------------
The installed versions are compared with those that were tested with real wheels (compat/imports.toml).

What to do
----------
Install a NumPy that works with this TensorFlow.
"""

from __future__ import annotations

from tfdoctor.core.findings import Cause
from tfdoctor.rules.base import Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites
from tfdoctor.rules.shared.companions import make_companion_result


def check(context: RuleContext) -> Result:
    return make_companion_result(context, RULE, "numpy")


RULE = Rule(
    "TFD306",
    "numpy-abi",
    "NumPy does not fit this TensorFlow",
    (Cause.NUMPY_ABI,),
    check,
    short_title="NumPy does not fit",
    needs=(
        prerequisites.require_tensorflow,
        prerequisites.require_distributions,
    ),
    fix_order=21,
)
