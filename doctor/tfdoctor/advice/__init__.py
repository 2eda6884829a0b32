"""The commands that a user types, and the steps that `fix` applies, for one Python or container engine. Pure.

This package does not decide what is wrong: the rules do, and use it to make their remedies. A function takes
a `Target`, which `target_of` builds from the facts of an examined machine and which can also be built without
a machine.
"""

from tfdoctor.advice.commands import adapt_findings
from tfdoctor.advice.libraries import bring_libraries
from tfdoctor.advice.links import link_commands, link_to, links_for
from tfdoctor.advice.pip import (
    CHECK_AGAIN,
    check_again,
    install_commands,
    interpreter,
    pip_install,
    pip_uninstall,
    quote,
    venv_with,
)
from tfdoctor.advice.releases import (
    ask_recommend,
    best_release,
    companion_pins,
    extra_installs,
    gpu_requirement,
    install_for_cpu,
    install_release,
    make_link_commands,
    make_replacement,
    suggest_release,
)
from tfdoctor.advice.search_path import (
    drop_folders,
    drop_folders_named,
    drop_from_path,
    export_path,
    keep_line,
    ldconfig,
    link_into_runpath,
    name_folders,
)
from tfdoctor.advice.system import APT, DNF, PACMAN, ZYPPER, driver_install, manager_of, package_manager
from tfdoctor.advice.target import Target, target_of
from tfdoctor.advice.user_permissions import needs_another, sudo, uv
from tfdoctor.advice.wheels import (
    bring_wheels,
    cuda_requirements,
    cudnn_requirement,
    find_registered_wheel,
    site_packages,
    strip_versions,
    wheel_project,
    wheels_for,
)

__all__ = [
    "APT",
    "CHECK_AGAIN",
    "DNF",
    "PACMAN",
    "ZYPPER",
    "Target",
    "adapt_findings",
    "ask_recommend",
    "best_release",
    "bring_libraries",
    "bring_wheels",
    "check_again",
    "companion_pins",
    "cuda_requirements",
    "cudnn_requirement",
    "driver_install",
    "drop_folders",
    "drop_folders_named",
    "drop_from_path",
    "export_path",
    "extra_installs",
    "find_registered_wheel",
    "gpu_requirement",
    "install_commands",
    "install_for_cpu",
    "install_release",
    "interpreter",
    "keep_line",
    "ldconfig",
    "link_commands",
    "link_into_runpath",
    "link_to",
    "links_for",
    "make_link_commands",
    "make_replacement",
    "manager_of",
    "name_folders",
    "needs_another",
    "package_manager",
    "pip_install",
    "pip_uninstall",
    "quote",
    "site_packages",
    "strip_versions",
    "sudo",
    "suggest_release",
    "target_of",
    "uv",
    "venv_with",
    "wheel_project",
    "wheels_for",
]
