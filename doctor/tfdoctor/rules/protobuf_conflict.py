"""protobuf has a version that this TensorFlow does not work with.

What it means
-------------
TensorFlow contains code that was generated for one version of protobuf. Before 2.12, protobuf 4 and newer
refuse that code ("Descriptors cannot be created directly"). Newer releases refuse a protobuf that is older
than the one that generated their code.

How it is seen
--------------
The installed versions are compared with those that were tested with real wheels (compat/imports.toml).

What to do
----------
Install a protobuf that works with this TensorFlow.
"""

from __future__ import annotations

from tfdoctor.core.findings import Cause
from tfdoctor.rules.base import Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites
from tfdoctor.rules.shared.companions import make_companion_result


def check(context: RuleContext) -> Result:
    return make_companion_result(context, RULE, "protobuf")


RULE = Rule(
    "TFD307",
    "protobuf-conflict",
    "protobuf does not fit this TensorFlow",
    (Cause.PROTOBUF_CONFLICT,),
    check,
    short_title="protobuf does not fit",
    needs=(
        prerequisites.require_tensorflow,
        prerequisites.require_distributions,
    ),
    fix_order=20,
)
