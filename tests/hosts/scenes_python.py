"""Hosts with an unintended Python, one that does not answer, or one whose files the user may not read.

`register` receives the names of make.py.
"""

from __future__ import annotations

from typing import Any

SYSTEM_SITE = "/usr/lib/python3/dist-packages"
CLOSED = {"errno": 13, "strerror": "Permission denied"}


def bare(machine: Any) -> None:
    """Make the system's Python, without TensorFlow, the one that the shell finds."""
    machine.target |= {
        "executable": "/usr/bin/python3", "prefix": "/usr", "sys_path": ["/usr/lib/python3.11", SYSTEM_SITE],
        "site_packages": [SYSTEM_SITE], "distributions": [], "tensorflow": None, "modules": [],
    }  # fmt: skip
    machine.which["python3"] = "/usr/bin/python3"
    machine.which["python"] = "/usr/bin/python3"


def silent(machine: Any, *names: str) -> None:
    """Make these commands time out."""
    for name in names:
        machine.commands[name] = {"failure": "timeout"}


def register(make: Any) -> None:
    """Register these hosts with those of make.py."""
    host, healthy = make.host, make.healthy

    @host("TFD201", cause="libs-not-installed", registered=False)
    def plain_pip_install() -> Any:
        """`pip install tensorflow` and nothing else: no CUDA anywhere. After the fix it is healthy-one-gpu."""
        machine = healthy()
        for path in [path for path in machine.elf if "/site-packages/nvidia/" in path]:
            del machine.elf[path]
        machine.target["distributions"] = machine.target["distributions"][:4]
        return machine

    @host("TFD301", "TFD318", cause="python-unusable", registered=False)
    def environment_deleted() -> Any:
        """VIRTUAL_ENV names a folder that was deleted; the shell finds the system's Python."""
        machine = healthy()
        bare(machine)
        machine.env["VIRTUAL_ENV"] = "/srv/deleted"
        return machine

    @host("TFD301", "TFD318", cause="python-unusable", registered=False)
    def environment_moved() -> Any:
        """The folder was renamed: its own scripts still say where it was made."""
        machine = healthy()
        bare(machine)
        machine.env["VIRTUAL_ENV"] = "/srv/old"
        machine.files |= {
            "/srv/new/pyvenv.cfg": "home = /usr/bin\nversion = 3.11.9\n",
            "/srv/new/bin/activate": 'VIRTUAL_ENV="/srv/old"\nexport VIRTUAL_ENV\n',
            "/srv/new/lib/python3.11/site-packages/tensorflow/__init__.py": "",
            "/srv/new/lib/python3.11/site-packages/tensorflow-2.18.1.dist-info/METADATA": "",
            "/usr/bin/python3.11": "",
        }
        machine.links["/srv/new/bin/python"] = "/usr/bin/python3.11"
        return machine

    @host("TFD318")
    def environment_gone_and_another_works() -> Any:
        """CONDA_PREFIX names an environment that is gone; the Python on PATH has a TensorFlow that works."""
        machine = healthy()
        machine.env = {"CONDA_PREFIX": "/opt/conda/envs/gone"}
        machine.which["python3"] = f"{make.ENV}/bin/python"
        return machine

    @host("TFD301", "TFD318", cause="python-unusable", registered=False)
    def environment_without_its_base() -> Any:
        """The Python that the active environment was made from was removed by an upgrade."""
        machine = healthy()
        bare(machine)
        machine.env["VIRTUAL_ENV"] = "/srv/env"
        machine.files["/srv/env/pyvenv.cfg"] = "home = /usr/bin\nversion = 3.9.2\n"
        machine.links["/srv/env/bin/python"] = "/usr/bin/python3.9"
        return machine

    @host("TFD317", cause="python-unusable", registered=None)
    def python_hangs() -> Any:
        """The Python does not answer, with its site-packages or without. The driver does."""
        machine = healthy()
        silent(machine, "payload:target", "payload:target:patient", "python:bare", "python:traced")
        return machine

    @host("TFD317", cause="python-unusable", registered=None)
    def python_hangs_in_a_pth_file() -> Any:
        """Without its site-packages it starts at once; with them it stands at a .pth file."""
        machine = healthy()
        silent(machine, "payload:target", "payload:target:patient")
        machine.commands["python:bare"] = {"stdout": "tfdoctor-bare:3.11"}
        machine.commands["python:traced"] = {
            "failure": "timeout",
            "stderr": "".join(
                f"Processing .pth file: '{make.SITE}/{name}.pth'\n" for name in ("good", "license")
            ),
        }
        return machine

    @host("TFD317", cause="python-unusable", registered=None)
    def python_is_something_else() -> Any:
        """What goes by the name of python3 prints something of its own."""
        machine = healthy()
        machine.commands["payload:target"] = {"stdout": "Welcome to the cluster\n"}
        machine.commands["python:bare"] = {"stdout": "Welcome to the cluster\n"}
        machine.commands["python:traced"] = {"stdout": "Welcome to the cluster\n"}
        return machine

    @host("TFD903", cause="inconclusive", registered=None)
    def python_starts_slowly() -> Any:
        """Its packages lie on a slow network: nothing is wrong with it, and there was no answer in time."""
        machine = healthy()
        silent(machine, "payload:target", "payload:target:patient")
        machine.commands["python:bare"] = {"stdout": "tfdoctor-bare:3.11"}
        machine.commands["python:traced"] = {"stdout": ""}
        return machine

    @host("TFD319", cause="not-permitted", registered=False)
    def python_may_not_be_run() -> Any:
        """The environment's Python has no execute permission for this user."""
        machine = healthy()
        machine.commands["payload:target"] = {"failure": "permission", "detail": "Permission denied"}
        return machine

    @host("TFD319", cause="not-permitted", registered=False)
    def cudnn_of_root() -> Any:
        """cuDNN was installed by `sudo pip` with a strict umask: this user may not read it."""
        machine = healthy()
        path = f"{make.SITE}/nvidia/cudnn/lib/libcudnn.so.9"
        machine.elf[path] = CLOSED
        machine.commands[f"stat {path}"] = {"stdout": "0 700\n"}
        machine.commands["id -nu 0"] = {"stdout": "root\n"}
        return machine

    @host("TFD319", cause="not-permitted", registered=False)
    def tensorflow_of_root() -> Any:
        """All of TensorFlow was: Python finds an empty package of that name."""
        machine = healthy()
        package = f"{make.SITE}/tensorflow"
        machine.target["tensorflow"] = None
        machine.target["closed"] = [[f"{package}/__init__.py", package, "root", False, "700"]]
        return machine

    @host("TFD319", cause="not-permitted", registered=False)
    def noexec() -> Any:
        """The environment is on a file system that is mounted noexec."""
        machine = healthy()
        machine.target["noexec"] = [[make.SITE, "/srv"]]
        return machine
