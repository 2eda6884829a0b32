"""Collect the names of the user and the machine, only to redact them."""

from __future__ import annotations

import contextlib
import os
import platform
import re
from typing import TYPE_CHECKING

from tfdoctor.core.privacy.patterns import SECRET_KEY, is_secret_value
from tfdoctor.core.privacy.redactor import Redactor

if TYPE_CHECKING:
    from collections.abc import Mapping

USER_VARIABLES = (
    "USER",
    "LOGNAME",
    "USERNAME",
    "SUDO_USER",
    "SLURM_JOB_USER",
    "SLURM_JOB_ACCOUNT",
    "PBS_O_LOGNAME",
    "LSFUSER",
)
"""Variables that contain user names."""
HOST_VARIABLES = (
    "HOSTNAME", "HOST", "COMPUTERNAME", "USERDOMAIN", "USERDNSDOMAIN", "SLURMD_NODENAME", "SLURM_SUBMIT_HOST",
    "SLURM_TOPOLOGY_ADDR", "SLURM_CLUSTER_NAME", "SLURM_JOB_NODELIST", "SLURM_NODELIST", "PBS_O_HOST", "LSB_HOSTS",
    "POD_NAME", "MY_POD_NAME", "POD_NAMESPACE", "MY_POD_NAMESPACE", "MY_NODE_NAME", "NODE_NAME", "K8S_POD_NAME",
)  # fmt: skip
"""Variables that contain machine names."""
OTHER_NAME_VARIABLES = (
    "SLURM_JOB_NAME",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_ACCOUNT",
    "PBS_JOBNAME",
    "LSB_JOBNAME",
    "WANDB_ENTITY",
)
"""Variables that contain other names to redact."""
_LIST_SEPARATOR = re.compile(r"[\s,;]+")


def make_redactor(env: Mapping[str, str], *, include_local_names: bool) -> Redactor:
    """Return a redactor for the users, hosts and secrets in the environment variables `env`.

    If `include_local_names` is true, it also redacts the names of this machine and of the current user.
    """
    users = [env[name] for name in USER_VARIABLES if env.get(name)]
    home = env.get("HOME") or env.get("USERPROFILE") or ""
    if re.search(r"(?i)[/\\](?:home\d{0,2}|users)[/\\]", home):
        users.append(re.split(r"[/\\]", home.rstrip("/\\"))[-1])
    hosts = [part for name in HOST_VARIABLES for part in _LIST_SEPARATOR.split(env.get(name, "")) if part]
    secrets = [
        value
        for name, value in sorted(env.items())
        if SECRET_KEY.search(name) and is_secret_value(value) and len(value) >= 6
    ]
    if include_local_names:
        hosts.append(platform.node())
        users += _get_account_names()
    redactor = Redactor(users=dict.fromkeys(users), hosts=dict.fromkeys(hosts), secrets=secrets)
    for name in OTHER_NAME_VARIABLES:
        if env.get(name):
            redactor.learn(env[name], "job_name")
    return redactor


def _get_account_names() -> list[str]:
    """Return the login and the full name of the current user."""
    account_names: list[str] = []
    with contextlib.suppress(ImportError, KeyError, AttributeError, OSError):
        import pwd

        entry = pwd.getpwuid(os.geteuid())
        account_names += [entry.pw_name, entry.pw_gecos.split(",")[0]]
    return [name for name in account_names if len(name) > 1]
