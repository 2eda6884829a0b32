"""Several NVIDIA drivers are installed over each other.

What it means
-------------
The driver can come from the distribution's packages, from NVIDIA's repository, or from NVIDIA's own
installer (the .run file). They overwrite each other's files. This works until one of them is updated; then
the kernel module and libcuda have different versions (TFD104). Under WSL no Linux driver belongs on the
system: the driver is Windows'.

How it is seen
--------------
From packages that own a libcuda, the installer's uninstaller (/usr/bin/nvidia-uninstall), and the version
numbers in the names of the libcuda files in the usual folders. The toolkit's stubs and cuda-compat are not
counted.

What to do
----------
Keep one. NVIDIA's installer has its own uninstaller; the package manager removes packages.
"""

from __future__ import annotations

import re

from tfdoctor import advice
from tfdoctor.facts import DriverPackage, Unknown, value_of
from tfdoctor.findings import Cause, Evidence, Finding, Remedy, Severity
from tfdoctor.predict import list_driver_files
from tfdoctor.rules.base import CouldNotCheck, NotApplicable, Result, Rule, RuleContext

DRIVER_FILE = re.compile(r"/libcuda\.so\.([0-9]{2,4}\.[0-9.]{1,12})\Z")


def check(context: RuleContext) -> Result:
    kernel = context.facts.kernel
    packages = value_of(kernel.packages) or ()
    runfile = value_of(kernel.runfile)
    files = _map_driver_files(context)
    if context.facts.machine.wsl:
        if not packages:
            return NotApplicable("under WSL the driver is Windows' own")
        return [_build_wsl_finding(context, packages)]
    if context.facts.machine.container:
        return _check_container(context, files)
    if not packages and runfile is None and not files:
        if isinstance(kernel.packages, Unknown) and kernel.packages.why != "not looked at":
            return CouldNotCheck(f"packages: {kernel.packages.why}")
        return NotApplicable("no NVIDIA driver is installed here")
    both = bool(packages) and runfile is not None
    if not both and len(files) < 2 and not _has_mixed_versions(packages):
        return ()
    return [_build_mixed_finding(context, packages, runfile, files, both=both)]


def _map_driver_files(context: RuleContext) -> dict[str, list[str]]:
    """Map each driver version to the libcuda files with that version in their names."""
    files_of_version: dict[str, list[str]] = {}
    for path in list_driver_files(context.facts):
        match = DRIVER_FILE.search(path)
        if match is not None and "/wsl/" not in path:
            files_of_version.setdefault(match[1], []).append(path)
    return files_of_version


def parse_upstream_version(version: str) -> str:
    """Return the driver version in a package version: "550.54.14" for "1:550.54.14-0ubuntu1"."""
    match = re.match(r"(?:[0-9]+:)?([0-9]+(?:\.[0-9]+)*)", version)
    return match[1] if match is not None else version


def _has_mixed_versions(packages: tuple[DriverPackage, ...]) -> bool:
    return len({parse_upstream_version(package.version) for package in packages}) > 1


def _list_evidence(
    packages: tuple[DriverPackage, ...], runfile: str | None, files: dict[str, list[str]]
) -> list[Evidence]:
    return [
        *(Evidence("package manager", f"{p.name} {p.version}") for p in packages[:6]),
        *(
            [Evidence("/usr/bin/nvidia-uninstall", f"NVIDIA's installer {runfile}".rstrip())]
            if runfile is not None
            else []
        ),
        *(Evidence(paths[0], f"is of {version}") for version, paths in list(files.items())[:6]),
    ]


def _build_mixed_finding(
    context: RuleContext,
    packages: tuple[DriverPackage, ...],
    runfile: str | None,
    files: dict[str, list[str]],
    *,
    both: bool,
) -> Finding:
    """Report several drivers, or one driver from two sources."""
    root = advice.sudo_prefix(context.target)
    versions = (
        {parse_upstream_version(p.version) for p in packages} | set(files) | ({runfile} if runfile else set())
    )
    is_mixed = len(versions) > 1
    sources = "NVIDIA's own installer and packages" if both else "several versions"
    remedies = []
    if runfile is not None:
        remedies.append(
            Remedy(
                "Remove what NVIDIA's installer put there, install the package again, and restart.",
                (f"{root}nvidia-uninstall", *advice.make_driver_remedy(context.target).commands),
                changes_system=True,
            )
        )
    query = {
        advice.APT: "dpkg -S 'libcuda.so.*'",
        advice.DNF: "rpm -qa '*nvidia*'",
        advice.ZYPPER: "rpm -qa '*nvidia*'",
        advice.PACMAN: "pacman -Qs nvidia",
    }.get(advice.package_manager(context.target) or "")
    if query is not None:
        remedies.append(Remedy("See which package each comes from, and remove all but one.", (query,)))
    return RULE.finding(
        Cause.DRIVER_LIB_MISMATCH if is_mixed else Cause.INCONCLUSIVE,
        Severity.WARNING if is_mixed else Severity.INFO,
        f"The driver is here from {sources}"
        + (f": {', '.join(sorted(versions))}" if is_mixed else "")
        + ". Which of them is used is decided by the loader, and the next update of one breaks it.",
        title="Several NVIDIA drivers are installed over each other",
        evidence=_list_evidence(packages, runfile, files),
        remedies=remedies,
    )


def _check_container(context: RuleContext, files: dict[str, list[str]]) -> Result:
    """Report a driver library in the image beside the one from the container engine."""
    module = value_of(context.facts.driver.kernel_module)
    foreign = [v for v in files if module is not None and v != module.version]
    if not files:
        return NotApplicable("the container engine gave this container no driver")
    if not foreign or len(files) < 2:
        return ()
    return [
        RULE.finding(
            Cause.DRIVER_LIB_MISMATCH,
            Severity.WARNING,
            f"This image has a driver library of its own ({', '.join(foreign)}) beside the one that the container "
            "engine brings in. Driver libraries do not belong in an image: they have to be the host's.",
            title="The image has a driver of its own",
            row="the image has its own",
            evidence=_list_evidence((), None, files),
            remedies=[Remedy("Build the image without the driver's packages; the engine brings the host's.")],
        )
    ]


def _build_wsl_finding(context: RuleContext, packages: tuple[DriverPackage, ...]) -> Finding:
    root = advice.sudo_prefix(context.target)
    names = " ".join(advice.quote(package.name) for package in packages)
    commands = {
        advice.APT: (f"{root}apt-get purge {names}", f"{root}ldconfig"),
        advice.DNF: (f"{root}dnf remove {names}", f"{root}ldconfig"),
    }.get(advice.package_manager(context.target) or "", ())
    return RULE.finding(
        Cause.WSL_LIBCUDA,
        Severity.WARNING,
        f"Under WSL the driver is Windows' own, and packages with a Linux driver are installed here "
        f"({', '.join(f'{p.name} {p.version}' for p in packages[:4])}). Their libcuda reaches no card; where the "
        "loader finds it first, no GPU is shown.",
        title="A Linux driver is installed inside WSL",
        row="a Linux driver inside WSL",
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
