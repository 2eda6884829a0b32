"""Commands for the user to run, and steps that `fix` applies, for one Python or container engine.

The rules decide what is wrong, and use this package to make their remedies. Most functions take a `Target`.
`build_target` builds it from the facts about an examined machine; it can also be built without a machine.

All functions are pure: they read no files and run no programs.
"""

from tfdoctor.remedies.commands import adapt_findings
from tfdoctor.remedies.libraries import make_library_remedies
from tfdoctor.remedies.links import format_link_commands, list_links, make_file_link
from tfdoctor.remedies.pip import (
    CHECK_COMMAND,
    format_check_command,
    format_pip_install,
    format_pip_uninstall,
    get_interpreter,
    make_install_commands,
    make_venv_commands,
    quote,
)
from tfdoctor.remedies.releases import (
    can_install_extra,
    find_best_release,
    list_companion_pins,
    list_gpu_requirements,
    make_best_release_remedies,
    make_cpu_remedy,
    make_link_commands,
    make_recommend_remedy,
    make_release_remedy,
    make_replacement_remedy,
)
from tfdoctor.remedies.search_path import (
    format_export,
    make_file_removal_remedy,
    make_folder_removal_remedy,
    make_ldconfig_remedy,
    make_matching_removal_remedy,
    make_path_remedy,
    make_persist_commands,
    make_runpath_link_remedy,
)
from tfdoctor.remedies.system import (
    APT,
    DNF,
    PACMAN,
    ZYPPER,
    find_package_manager,
    get_package_manager,
    make_driver_remedy,
)
from tfdoctor.remedies.target import Target, build_target
from tfdoctor.remedies.user_permissions import choose_uv_command, get_sudo_prefix, needs_new_environment
from tfdoctor.remedies.wheels import (
    choose_cudnn_requirement,
    exclude_installed_versions,
    find_registered_pin,
    find_wheel,
    get_site_packages,
    list_cuda_requirements,
    list_release_wheels,
    make_install_steps,
)

__all__ = [
    "APT",
    "CHECK_COMMAND",
    "DNF",
    "PACMAN",
    "ZYPPER",
    "Target",
    "adapt_findings",
    "build_target",
    "can_install_extra",
    "choose_cudnn_requirement",
    "choose_uv_command",
    "exclude_installed_versions",
    "find_best_release",
    "find_package_manager",
    "find_registered_pin",
    "find_wheel",
    "format_check_command",
    "format_export",
    "format_link_commands",
    "format_pip_install",
    "format_pip_uninstall",
    "get_interpreter",
    "get_package_manager",
    "get_site_packages",
    "get_sudo_prefix",
    "list_companion_pins",
    "list_cuda_requirements",
    "list_gpu_requirements",
    "list_links",
    "list_release_wheels",
    "make_best_release_remedies",
    "make_cpu_remedy",
    "make_driver_remedy",
    "make_file_link",
    "make_file_removal_remedy",
    "make_folder_removal_remedy",
    "make_install_commands",
    "make_install_steps",
    "make_ldconfig_remedy",
    "make_library_remedies",
    "make_link_commands",
    "make_matching_removal_remedy",
    "make_path_remedy",
    "make_persist_commands",
    "make_recommend_remedy",
    "make_release_remedy",
    "make_replacement_remedy",
    "make_runpath_link_remedy",
    "make_venv_commands",
    "needs_new_environment",
    "quote",
]
