"""Collect the names of the user and the machine, only to redact them."""

from __future__ import annotations

import contextlib
import os
import platform
import re
from typing import TYPE_CHECKING

from tfdoctor.core.privacy import clusters
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
HOST_VARIABLES = re.compile(
    r"HOST|HOSTNAME|COMPUTERNAME|USERDOMAIN|USERDNSDOMAIN|(?:MY_)?(?:NODE|POD)_NAME|(?:MY_)?POD_NAMESPACE|K8S_POD_NAME"
    r"|SLURM\w{0,20}_(?:NODELIST|NODENAME|HOST|IPADDR|ADDR|CLUSTER_NAME)|SLURMD_NODENAME|PBS_O_(?:HOST|SERVER)|PBS_SERVER"
    r"|LSB_(?:HOSTS|MCPU_HOSTS|SUB_HOST)|MASTER_ADDR|NCCL_COMM_ID|KUBERNETES_SERVICE_HOST|RAY_ADDRESS|RAY_HEAD_IP"
    r"|DASK_\w{0,40}ADDRESS|HOROVOD_(?:HOSTNAME|GLOO_RENDEZVOUS_ADDR)|OMPI_MCA_\w{0,40}(?:uri|host\w{0,4})|PMIX_SERVER_\w{0,20}"
    r"|HYDRA_\w{0,20}HOST\w{0,8}|(?i:(?:https?|all|ftp|no)_proxy)"
)
"""The names of variables that contain machine names, also in lists."""
OTHER_NAME_VARIABLES = (
    "SLURM_JOB_NAME",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_ACCOUNT",
    "PBS_JOBNAME",
    "LSB_JOBNAME",
    "WANDB_ENTITY",
)
"""Variables that contain other names to redact."""


def make_redactor(env: Mapping[str, str], *, include_local_names: bool) -> Redactor:
    """Return a redactor for the users, hosts and secrets in the environment variables `env`.

    If `include_local_names` is true, it also redacts the names of this machine and of the current user.
    """
    users = [env[name] for name in USER_VARIABLES if env.get(name)]
    home = env.get("HOME") or env.get("USERPROFILE") or ""
    if re.search(r"(?i)[/\\](?:home\d{0,2}|users)[/\\]", home):
        users.append(re.split(r"[/\\]", home.rstrip("/\\"))[-1])
    hosts = [
        host
        for name, value in sorted(env.items())
        if HOST_VARIABLES.fullmatch(name)
        for host in clusters.expand_node_list(value)
    ]
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
