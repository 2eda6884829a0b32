"""TensorFlow registers the GPU, but `tf.keras` fails.

What it means
-------------
From TensorFlow 2.6 on, Keras is a separate package. `import tensorflow` works without it, but the first use of
tf.keras needs it. That use fails if Keras is not installed, if Keras 2 is installed with TensorFlow 2.16 or newer, or if
TF_USE_LEGACY_KERAS requires tf_keras and that is not installed.

How it is seen
--------------
The check reads the installed distributions and the variable. A child process imports those packages that Keras needs
and that are not known to work. If Keras, or a package that only Keras imports, is damaged or older than all tested
versions, the child imports Keras itself, with a substitute for TensorFlow.

What to do
----------
Install the Keras that this TensorFlow requires, or tf-keras, or unset the variable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdoctor.core import versions
from tfdoctor.core.causes.steps import Install, UnsetVariable
from tfdoctor.core.findings import Cause, Evidence, Remedy, Severity
from tfdoctor.core.text import upper_first
from tfdoctor.prediction.imports import BACKEND_VARIABLE, get_keras_backend
from tfdoctor.prediction.rehearsal import LEGACY_KERAS_VARIABLE, uses_legacy_keras
from tfdoctor.prediction.shadowing import find_leading_folder, get_sys_path_folder
from tfdoctor.remedies.pip import format_check_command, format_pip_install
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Result, Rule, RuleContext
from tfdoctor.rules.shared import prerequisites, shadowing, variable_origins
from tfdoctor.rules.shared.companions import build_failing_packages_finding, choose_working_requirement

if TYPE_CHECKING:
    from tfdoctor.core.facts.imports import Shadow
    from tfdoctor.core.findings import Finding


def check(context: RuleContext) -> Result:
    python, build = context.python, context.build
    if python is None or build is None or not build.version:
        return CouldNotCheck("the installed distributions, or this TensorFlow's version, are not known")
    if not build.has_trait("keras-apart") or not any(
        distribution.requires for distribution in python.distributions
    ):
        return NotApplicable("Keras is not apart from this TensorFlow")
    if context.prediction.import_ok is False:
        return NotApplicable("import tensorflow itself fails")
    installed_versions = python.list_installed_versions()
    uses_keras_2 = uses_legacy_keras(context.facts.environment.variables, build.version, context.compat)
    if uses_keras_2 and "tf-keras" not in installed_versions:
        return [_build_legacy_finding(context)]
    keras_version = installed_versions.get("keras")
    if not uses_keras_2 and keras_version is None:
        return [
            _build_version_finding(
                context,
                "tf.keras fails: Keras is not installed",
                "ModuleNotFoundError: No module named 'keras'",
            )
        ]
    shadow = next(
        (
            module
            for module in python.shadows
            if module.name == ("tf_keras" if uses_keras_2 else "keras")
            and get_sys_path_folder(module.taken) not in python.site_packages
        ),
        None,
    )
    if (
        shadow is not None
        and find_leading_folder(context.facts, get_sys_path_folder(shadow.taken)) is not None
    ):
        return [_build_hidden_finding(context, shadow)]
    # "<3.0.0.dev0" excludes the pre-releases of Keras 3
    is_keras_2 = (
        keras_version
        and versions.is_version(keras_version)
        and versions.satisfies(keras_version, "<3.0.0.dev0")
    )
    if not uses_keras_2 and is_keras_2 and build.has_trait("keras-3"):
        title = f"tf.keras fails with Keras {keras_version}: TensorFlow {build.version} needs Keras 3"
        return [
            _build_version_finding(
                context, title, "AttributeError or ModuleNotFoundError at the first use of tf.keras"
            )
        ]
    if shadow is not None:
        return [_build_hidden_finding(context, shadow)]
    backend, origin = get_keras_backend(python, build, context.facts.environment)
    package = context.compat.flags.module_by_keras_backend.get(backend, "") if backend else ""
    if package and not uses_keras_2 and package not in installed_versions:
        return [_build_backend_finding(context, backend, package, origin)]
    failures = [failure for failure in context.import_failures if not failure.is_fatal]
    return [build_failing_packages_finding(context, RULE, failures)] if failures else ()


def _build_version_finding(context: RuleContext, title: str, error: str) -> Finding:
    """Return the finding that Keras is missing or has the wrong major version."""
    requirement = choose_working_requirement(context, "keras")
    return RULE.make_finding(
        Cause.PACKAGE_CONFLICT,
        Severity.WARNING,
        f"TensorFlow registers its GPUs without Keras; programs that use tf.keras stop: {error}.",
        title=title,
        evidence=[Evidence("installed distributions", title.partition(": ")[2] or title)],
        remedies=[
            Remedy(
                "Install the Keras that this TensorFlow asks for.",
                (
                    format_pip_install(context.target, [requirement]),
                    format_check_command(context.target),
                ),
                steps=(Install((requirement,)),),
            )
        ],
    )


def _build_hidden_finding(context: RuleContext, shadow: Shadow) -> Finding:
    """Return the finding about a module that Python finds before Keras."""
    path = shadow.taken.removesuffix("/__init__.py")
    leader = find_leading_folder(context.facts, get_sys_path_folder(path))
    if leader is not None:
        reason = (
            f"{upper_first(variable_origins.format_path_setter(context, leader))} {leader.spelling} first: "
            f"{shadow.name} is {shadow.taken}"
        )
        title = f"{leader.origin} leads to {shadow.taken} in place of {shadow.name}"
    else:
        reason = f"Programs that are started here take {shadow.taken} for {shadow.name}"
        title = f"{shadow.taken} hides {shadow.name} from programs started here"
    return RULE.make_finding(
        Cause.SHADOWED_MODULE,
        Severity.WARNING,
        f"{reason}, not the one in {shadow.hidden}: tf.keras is then that, or fails.",
        title=title,
        evidence=shadowing.list_shadowing_evidence(context, path),
        remedies=shadowing.make_shadowing_remedies(context, path),
    )


def _build_backend_finding(context: RuleContext, backend: str, package: str, origin: str) -> Finding:
    """Return the finding that the package of the Keras backend, which `origin` selects, is not installed."""
    is_file = origin != BACKEND_VARIABLE
    setting = f"the backend {backend} of {origin}" if is_file else f"{origin}={backend}"
    return RULE.make_finding(
        Cause.PACKAGE_CONFLICT,
        Severity.WARNING,
        f"{origin} makes Keras take {backend}, which needs {package}, and that is not installed: programs that use "
        f"tf.keras stop with ImportError.{variable_origins.format_origin_sentence(context, BACKEND_VARIABLE)}",
        title=f"tf.keras fails: {setting} needs {package}, which is not installed",
        evidence=[
            Evidence(origin, backend),
            *variable_origins.list_origin_evidence(context, BACKEND_VARIABLE),
        ],
        remedies=variable_origins.make_keras_backend_remedies(context)
        if is_file
        else [
            variable_origins.make_unset_remedy(
                context, BACKEND_VARIABLE, "Unset the variable: Keras then computes with TensorFlow."
            )
        ],
    )


def _build_legacy_finding(context: RuleContext) -> Finding:
    """Return the finding that Keras 2 is requested and tf-keras is not installed."""
    build = context.build
    minor = versions.major_minor(build.version) if build is not None and build.version else ""
    requirement = f"tf-keras=={minor}.*" if minor else "tf-keras"
    return RULE.make_finding(
        Cause.PACKAGE_CONFLICT,
        Severity.WARNING,
        f"{LEGACY_KERAS_VARIABLE} makes tf.keras take Keras 2 from the package tf-keras, and that is not installed: programs "
        "that use tf.keras stop with ImportError.",
        title=f"tf.keras fails: {LEGACY_KERAS_VARIABLE} asks for tf-keras, which is not installed",
        evidence=[
            Evidence(
                LEGACY_KERAS_VARIABLE, context.facts.environment.variables.get(LEGACY_KERAS_VARIABLE, "")
            )
        ],
        remedies=[
            Remedy(
                "Install tf-keras.",
                (
                    format_pip_install(context.target, [requirement]),
                    format_check_command(context.target),
                ),
                steps=(Install((requirement,)),),
            ),
            Remedy(
                "Or use Keras 3.",
                (f"unset {LEGACY_KERAS_VARIABLE}",),
                steps=(UnsetVariable(LEGACY_KERAS_VARIABLE),),
            ),
        ],
    )


RULE = Rule(
    "TFD321",
    "keras-fails",
    "tf.keras fails",
    (Cause.PACKAGE_CONFLICT, Cause.SHADOWED_MODULE),
    check,
    short_title="tf.keras fails",
    needs=(prerequisites.require_tensorflow,),
)
