"""Commands for the user to run, and steps that `fix` applies, for one Python or container engine.

The rules decide what is wrong, and use this package to make their remedies. Most functions take a `Target`.
`target_of` builds it from the facts about an examined machine; it can also be built without a machine.

All functions are pure: they read no files and run no programs.
"""

from tfdoctor.advice.commands import adapt_findings
from tfdoctor.advice.libraries import make_library_remedies
from tfdoctor.advice.links import link_commands, link_to, list_links
from tfdoctor.advice.pip import (
    CHECK_AGAIN,
    check_again,
    get_interpreter,
    install_commands,
    pip_install,
    pip_uninstall,
    quote,
    venv_with,
)
from tfdoctor.advice.releases import (
    can_install_extra,
    companion_pins,
    find_best_release,
    install_for_cpu,
    install_release,
    list_gpu_requirements,
    make_link_commands,
    make_recommend_remedy,
    make_replacement,
    suggest_release,
)
from tfdoctor.advice.search_path import (
    format_export,
    link_into_runpath,
    list_keep_commands,
    make_ldconfig_remedy,
    make_path_remedy,
    remove_folders,
    remove_folders_of_files,
    remove_matching_folders,
)
from tfdoctor.advice.system import (
    APT,
    DNF,
    PACMAN,
    ZYPPER,
    find_package_manager,
    make_driver_remedy,
    package_manager,
)
from tfdoctor.advice.target import Target, target_of
from tfdoctor.advice.user_permissions import choose_uv, needs_new_environment, sudo_prefix
from tfdoctor.advice.wheels import (
    cuda_requirements,
    cudnn_requirement,
    find_registered_wheel,
    get_site_packages,
    list_release_wheels,
    make_install_steps,
    strip_versions,
    wheel_project,
)

__all__ = [
    "APT",
    "CHECK_AGAIN",
    "DNF",
    "PACMAN",
    "ZYPPER",
    "Target",
    "adapt_findings",
    "can_install_extra",
    "check_again",
    "choose_uv",
    "companion_pins",
    "cuda_requirements",
    "cudnn_requirement",
    "find_best_release",
    "find_package_manager",
    "find_registered_wheel",
    "format_export",
    "get_interpreter",
    "get_site_packages",
    "install_commands",
    "install_for_cpu",
    "install_release",
    "link_commands",
    "link_into_runpath",
    "link_to",
    "list_gpu_requirements",
    "list_keep_commands",
    "list_links",
    "list_release_wheels",
    "make_driver_remedy",
    "make_install_steps",
    "make_ldconfig_remedy",
    "make_library_remedies",
    "make_link_commands",
    "make_path_remedy",
    "make_recommend_remedy",
    "make_replacement",
    "needs_new_environment",
    "package_manager",
    "pip_install",
    "pip_uninstall",
    "quote",
    "remove_folders",
    "remove_folders_of_files",
    "remove_matching_folders",
    "strip_versions",
    "sudo_prefix",
    "suggest_release",
    "target_of",
    "venv_with",
    "wheel_project",
]
