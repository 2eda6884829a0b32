"""Several NVIDIA drivers are installed over each other.

What it means
-------------
The driver can come from the distribution's packages, from NVIDIA's repository, or from NVIDIA's own
installer (the .run file). They overwrite each other's files. This works until one of them is updated; then
the kernel module and libcuda have different versions (TFD104). Under WSL no Linux driver belongs on the
system: the driver is Windows'.

How it is seen
--------------
tfdoctor looks for packages that contain a libcuda, for the installer's uninstaller
(/usr/bin/nvidia-uninstall), and for the version numbers in the names of the libcuda files in the usual
folders. It ignores the toolkit's stubs and cuda-compat.

What to do
----------
Keep one. NVIDIA's installer has its own uninstaller; the package manager removes packages.
"""

from __future__ import annotations

import re

from tfdoctor.core.facts import DriverPackage, Unknown, value_of
from tfdoctor.core.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.prediction.driver import list_driver_files
from tfdoctor.remedies.pip import quote
from tfdoctor.remedies.system import APT, DNF, PACMAN, ZYPPER, get_package_manager, make_driver_remedy
from tfdoctor.remedies.user_permissions import get_sudo_prefix
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Result, Rule, RuleContext

DRIVER_FILE_PATTERN = re.compile(r"/libcuda\.so\.([0-9]{2,4}\.[0-9.]{1,12})\Z")
"""A path such as /usr/lib/libcuda.so.550.54.14, with the driver version as its group."""


def check(context: RuleContext) -> Result:
    kernel = context.facts.kernel
    packages = value_of(kernel.packages) or ()
    installer_version = value_of(kernel.runfile)
    paths_by_driver = _map_driver_files(context)
    if context.facts.machine.wsl:
        if not packages:
            return NotApplicable("under WSL the driver is Windows' own")
        return [_build_wsl_finding(context, packages)]
    if context.facts.machine.container:
        return _check_container(context, paths_by_driver)
    if not packages and installer_version is None and not paths_by_driver:
        # "not looked at" is the default of the fact: nothing has failed
        if isinstance(kernel.packages, Unknown) and kernel.packages.why != "not looked at":
            return CouldNotCheck(f"packages: {kernel.packages.why}")
        return NotApplicable("no NVIDIA driver is installed here")
    has_both_sources = bool(packages) and installer_version is not None
    package_versions = {parse_driver_version(package.version) for package in packages}
    if not has_both_sources and len(paths_by_driver) < 2 and len(package_versions) < 2:
        return ()
    return [
        _build_mixed_finding(
            context, packages, installer_version, paths_by_driver, has_both_sources=has_both_sources
        )
    ]


def _map_driver_files(context: RuleContext) -> dict[str, list[str]]:
    """Map each driver version to the libcuda files with that version in their names, except WSL's own."""
    paths_by_driver: dict[str, list[str]] = {}
    for path in list_driver_files(context.facts):
        match = DRIVER_FILE_PATTERN.search(path)
        if match is not None and "/wsl/" not in path:
            paths_by_driver.setdefault(match[1], []).append(path)
    return paths_by_driver


def parse_driver_version(version: str) -> str:
    """Return the driver version in a package version: "550.54.14" for "1:550.54.14-0ubuntu1".

    A package version of another form is returned unchanged.
    """
    match = re.match(r"(?:[0-9]+:)?([0-9]+(?:\.[0-9]+)*)", version)
    return match[1] if match is not None else version


def _list_evidence(
    packages: tuple[DriverPackage, ...], installer_version: str | None, paths_by_driver: dict[str, list[str]]
) -> list[Evidence]:
    return [
        *(Evidence("package manager", f"{package.name} {package.version}") for package in packages[:6]),
        *(
            [Evidence("/usr/bin/nvidia-uninstall", f"NVIDIA's installer {installer_version}".rstrip())]
            if installer_version is not None
            else []
        ),
        *(Evidence(paths[0], f"is of {version}") for version, paths in list(paths_by_driver.items())[:6]),
    ]


def _build_mixed_finding(
    context: RuleContext,
    packages: tuple[DriverPackage, ...],
    installer_version: str | None,
    paths_by_driver: dict[str, list[str]],
    *,
    has_both_sources: bool,
) -> Finding:
    """Return the finding about several drivers, or about one driver from two sources."""
    sudo = get_sudo_prefix(context.target)
    versions = (
        {parse_driver_version(package.version) for package in packages}
        | set(paths_by_driver)
        | ({installer_version} if installer_version else set())
    )
    has_several_versions = len(versions) > 1
    sources = "NVIDIA's own installer and packages" if has_both_sources else "several versions"
    remedies = []
    if installer_version is not None:
        remedies.append(
            Remedy(
                "Remove what NVIDIA's installer put there, install the package again, and restart.",
                (f"{sudo}nvidia-uninstall", *make_driver_remedy(context.target).commands),
                changes_system=True,
            )
        )
    query_command = {
        APT: "dpkg -S 'libcuda.so.*'",
        DNF: "rpm -qa '*nvidia*'",
        ZYPPER: "rpm -qa '*nvidia*'",
        PACMAN: "pacman -Qs nvidia",
    }.get(get_package_manager(context.target) or "")
    if query_command is not None:
        remedies.append(
            Remedy("See which package each comes from, and remove all but one.", (query_command,))
        )
    return RULE.make_finding(
        Cause.DRIVER_LIB_MISMATCH if has_several_versions else Cause.INCONCLUSIVE,
        Severity.WARNING if has_several_versions else Severity.INFO,
        f"The driver was installed from {sources}"
        + (f": {', '.join(sorted(versions))}" if has_several_versions else "")
        + ". The loader decides which one is used, and the next update of either breaks it.",
        title="Several NVIDIA drivers are installed over each other",
        evidence=_list_evidence(packages, installer_version, paths_by_driver),
        remedies=remedies,
    )


def _check_container(context: RuleContext, paths_by_driver: dict[str, list[str]]) -> Result:
    """Return a finding if the image has a driver library besides the one from the container engine."""
    module = value_of(context.facts.driver.kernel_module)
    image_versions = [
        version for version in paths_by_driver if module is not None and version != module.version
    ]
    if not paths_by_driver:
        return NotApplicable("the container engine gave this container no driver")
    if not image_versions or len(paths_by_driver) < 2:
        return ()
    return [
        RULE.make_finding(
            Cause.DRIVER_LIB_MISMATCH,
            Severity.WARNING,
            f"This image has its own driver library ({', '.join(image_versions)}) next to the one that the container "
            "engine brings in. Driver libraries do not belong in an image: they have to be the host's.",
            title="The image has its own driver",
            short_title="the image has its own",
            evidence=_list_evidence((), None, paths_by_driver),
            remedies=[Remedy("Build the image without the driver's packages; the engine brings the host's.")],
        )
    ]


def _build_wsl_finding(context: RuleContext, packages: tuple[DriverPackage, ...]) -> Finding:
    sudo = get_sudo_prefix(context.target)
    names = " ".join(quote(package.name) for package in packages)
    commands = {
        APT: (f"{sudo}apt-get purge {names}", f"{sudo}ldconfig"),
        DNF: (f"{sudo}dnf remove {names}", f"{sudo}ldconfig"),
    }.get(get_package_manager(context.target) or "", ())
    return RULE.make_finding(
        Cause.WSL_LIBCUDA,
        Severity.WARNING,
        f"Under WSL the driver is Windows' own, and packages with a Linux driver are installed here "
        f"({', '.join(f'{package.name} {package.version}' for package in packages[:4])}). Their libcuda reaches "
        "no card; where the loader finds it first, no GPU is shown.",
        title="A Linux driver is installed inside WSL",
        short_title="a Linux driver inside WSL",
        evidence=_list_evidence(packages, None, {}),
        remedies=[
            Remedy(
                "Remove it. NVIDIA's CUDA packages for WSL (`wsl-ubuntu`) come without a driver.",
                commands,
                changes_system=True,
            )
        ],
    )


RULE = Rule(
    "TFD120",
    "several-drivers",
    "Several NVIDIA drivers are installed over each other",
    (Cause.DRIVER_LIB_MISMATCH, Cause.WSL_LIBCUDA, Cause.INCONCLUSIVE),
    check,
    short_title="several are installed",
)
