"""Patterns of the secrets, names and addresses that redactor.py replaces. Every repetition is bounded."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

LITERAL_KINDS = frozenset({"user", "host", "name", "secret", "serial", "process"})
"""The kinds of values that are searched for literally in every text."""
PLACEHOLDER_WORDS = {"address": "ip"}
"""The word in the placeholder of each kind, if it is not the kind's own name."""
PLACEHOLDER = re.compile(
    r"(?<![A-Za-z0-9])(?:(?:user|host|ip|mac|email|secret|serial|name|process)-[1-9]\d{0,5}(?:\.(?:py|pyc|ipynb))?"
    r"|0000[0-9a-f]{4}-0000-0000-0000-000000000000|0{4}[0-9a-f]{8}0{20}(?:0{8})?(?:0{24})?)(?![A-Za-z0-9])"
)
"""A placeholder such as "user-2", or a UUID or hexadecimal ID that is a number padded with zeros."""
PLAIN_USER = re.compile(r"(?i)(?:/home\d{0,2}/|[/\\]Users[/\\]{1,2})user(?![\w.-])")
"""The home folder of a user whose name really is `user`."""

GENERIC_NAMES = frozenset(
    """
    user users host ip mac email secret serial name process id none null true false unknown default local localhost
    localdomain localhost.localdomain root admin administrator ubuntu debian fedora centos rocky arch nvidia ec2-user
    azureuser opc jovyan vscode runner node docker podman cuda cudnn tensorflow tensorflow-gpu tf keras torch jax
    python python3 conda miniconda miniconda3 anaconda anaconda3 mamba pip venv env envs lib lib64 bin usr opt etc dev
    sys proc run var tmp mnt srv home data work workspace app apps src test tests build public shared all linux linux64
    x86_64 aarch64 amd64 arm64 gpu gpus cpu git www server main linuxbrew kernel nvrm systemd dbus nobody daemon site
    site-packages dist-packages include share local64 target slurm kubernetes docker-desktop windows microsoft wsl
    compute driver drivers version system machine libs library release file files driver-daemon https http
    model models dataset datasets checkpoint checkpoints ckpt log logs output outputs result results code repo repos
    project projects train training script scripts notebook notebooks example examples tools cache config configs docs
    downloads utils core tensorboard saved_model experiment experiments runs user_data pid port line step steps epoch
    iteration batch offset rank task tasks worker ps chief evaluator job device
    """.split()  # noqa: SIM905 - a list of words reads best as one string
)
"""Names that identify nobody. Replacing them would change a recording's meaning and hide nothing."""
PUBLIC_DOMAINS = (
    "nvidia.com", "tensorflow.org", "python.org", "github.com", "docker.com", "debian.org", "ubuntu.com",
    "redhat.com", "fedoraproject.org", "opensuse.org", "archlinux.org", "kernel.org", "anaconda.org", "gnu.org",
    "conda-forge.org", "anaconda.com", "keras.io", "nvidia.github.io", "stackoverflow.com",
    "microsoft.com", "wikipedia.org", "apache.org", "w3.org", "launchpad.net", "rockylinux.org", "centos.org",
)  # fmt: skip
"""Public sites of projects, which do not identify the user."""

# ---------------------------------------------------------------- users

_PART = r"[^/\\\s:;'\"<>|,)(\]\[{}]{1,255}"
"""A component of a path."""
_HOME_PART = rf"(?:[A-Z][A-Z0-9.-]{{1,20}}\\{{1,2}})?{_PART}(?:(?: \w[\w.'-]{{0,30}}){{1,3}}(?=/))?"
"""A folder of homes can contain folders such as `DOMAIN\\user`, and names with spaces if another component follows."""
HOME_PATH = re.compile(
    rf"((?:/(?:(?i:[\w-]{{0,12}}home\w{{0,3}}|users)|u\d?)|(?:(?<![\w./-])|(?<=/eos)|(?<=/rds)|://[\w.:-]{{0,255}})/user)/{{1,3}})"
    rf"((?:{_HOME_PART}/){{0,3}}{_HOME_PART})"
)
"""A path below a folder of homes: the name of that folder, and up to four components after it.

Sites put homes into folders for groups, domains or first letters, so that any component may be the user's name. `user`
is such a folder only in certain places, because it is also the placeholder of the first user.
"""
_GROUP_FOLDERS = frozenset(
    [
        "home",
        "users",
        "user",
        "people",
        "staff",
        "student",
        "students",
        "group",
        "groups",
        "project",
        "projects",
    ]
)
_TECHNICAL_FOLDER = re.compile(
    r"(?i)\.|(?:lib|bin|env|venv|conda|mini|ana|mamba|micromamba|python|py\d|tf|tensorflow|torch|keras|cuda|cudnn|nvidia"
    r"|nccl|site-|dist-|pip|src|include|share|opt|jupyter|notebook|my)|[\w-]{0,60}\d\.\d|[\w-]{1,60}\.[a-z]\w{0,7}\Z"
)
"""The name of a folder or file that identifies nobody, like everything after it in a path."""


def list_home_folders(path: str) -> list[str]:
    """Return the first components of a path below a folder of homes, up to one that identifies nobody."""
    folders = []
    for number, folder in enumerate(path.split("/")):
        is_generic = folder.lower() in GENERIC_NAMES and folder.lower() not in _GROUP_FOLDERS
        if is_generic or (number and _TECHNICAL_FOLDER.match(folder)):
            break
        folders.append(folder)
    return folders


USER_PATTERNS = (
    re.compile(
        rf"/home/(?:users/|[A-Z][A-Z0-9.-]{{1,20}}[/\\]{{1,2}})({_PART})"
    ),  # the user's folder stands in one for users or for a domain
    re.compile(rf"(?<![\w.-])/(?:l?scratch|(?:run/)?media|nethome|ghome|ibex/user)/({_PART})"),
    # The user's folder may stand in folders for the first letters (a/al/NAME) or for a group (grp12/3/NAME).
    re.compile(
        rf"/(?:homes?\d{{0,2}}|Users|users)/(?:[a-z]{{2,12}}\d{{1,3}}/\d{{1,2}}/|(?:[a-z0-9]/){{1,2}})?({_PART})"
    ),
    re.compile(rf"/(?:u|afs/[\w.-]{{1,80}}/user)/(?:[a-z0-9]/){{0,2}}({_PART})"),
    re.compile(rf"(?<![\w.-])/(?:work|projects?|people|staff|students?)/(?:[a-z]/){{0,2}}({_PART})(?=/)"),
    # a home on a server of Windows, and in WSL as Windows names it
    re.compile(
        rf"(?i)\\\\[\w.$-]{{1,64}}[\\/]{{1,2}}(?:[^\\/\s]{{1,64}}[\\/]{{1,2}})?(?:homes?|users)[\\/]{{1,2}}({_PART})"
    ),
    # a Windows user name, which may have spaces if another component follows
    re.compile(r"(?i)\b[A-Z]:[\\/]{1,2}Users[\\/]{1,2}([^/\\:*?\"<>|\n]{1,255})(?=[\\/])"),
    re.compile(rf"(?i)\b[A-Z]:[\\/]{{1,2}}Users[\\/]{{1,2}}({_PART})"),
    re.compile(r"(?<![\w/~])(?<!(?<!\.)\.)~([a-z_][\w.-]{1,31})(?=[/:])"),  # ~NAME/
    re.compile(
        r"\b(?:[A-Z][A-Z0-9_]{0,40}_)?(?:USER|USERNAME|LOGNAME)[\"']?(?:=|: )[\"']?([A-Za-z0-9_][\w.-]{1,63})"
    ),
    re.compile(r"(?i)(?<![\w-])(?:user|username|login|owner)=([A-Za-z][\w.%-]{1,63})"),
    re.compile(r"\b[ug]id=\d{1,10}\(([^)\s]{1,64})\)"),  # `id`
    re.compile(r"(?i)\b(?:as user(?:name)? [\"']?|for user(?:name)? [\"'])([A-Za-z][\w.-]{1,63})(?![\w.-])"),
    re.compile(r"'([A-Za-z][\w.-]{1,63})'@'"),  # MySQL
    re.compile(
        r"(?i)[\"'](?:user|user_?name|login|author)\\?[\"']\s{0,3}:\s{0,3}[bru]{0,2}\\?[\"']([^\"'\\\n]{2,64})\\?[\"']"
    ),
)
"""Patterns whose first group is a user name: in home folders, variables, `id` output and JSON."""
USER_KEY = re.compile(r"(?i)(?:user|user_?name|owner|login|job_?user|full_?name)")
"""The key of a field whose value is a user name."""
NAME_KEY = re.compile(
    r"(?i)(?:(?:io\.kubernetes\.)?(?:pod|container|sandbox|job|account|project)[._-]?(?:name|namespace)"
    r"|namespace|job_?account|account|(?:io\.kubernetes\.)?pod[._-]namespace)"
)
"""The key of a field whose value is the name of a pod, container, job, account or project."""
NAME_PATTERNS = (
    re.compile(r"/(?:var/log/)?pods/([a-z0-9][a-z0-9-]{0,62})_([a-z0-9][a-z0-9.-]{0,252})_[0-9a-f]{8}-"),
    re.compile(
        r"(?i)\b(?:pod|namespace|container|account|job|slurm_job_account|slurm_job_name)[_ ]?name(?:space)?"
        r"[\"']?\s{0,3}[=:]\s{0,3}[\"']?([a-z0-9][\w.-]{2,80})"
    ),
    re.compile(r"(?i)\b(?:namespace|slurm_job_account)[\"']?\s{0,3}[=:]\s{0,3}[\"']?([a-z0-9][\w.-]{2,80})"),
    re.compile(
        r"\bkubectl (?:logs|exec(?: -it)?|(?:describe|delete|get) pods?) ([a-z0-9][a-z0-9-]{2,62})(?![\w-])"
    ),
    # a pod's name ends with five random characters or a number, unlike the word after "pod" in a sentence
    re.compile(r"\b[Pp]ods?(?:/|[ =:]{1,2}[\"']?)([a-z0-9][a-z0-9-]{1,60}-(?:[a-z0-9]{5}|\d{1,4}))(?![\w-])"),
)
"""Patterns whose groups are names of pods, namespaces, jobs or accounts."""

# ---------------------------------------------------------------- hosts and addresses

HOST_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")
HOST_KEY = re.compile(
    r"(?i)(?:host|host_?name|node|node_?name|fqdn|domain|domain_?name|server|server_?name|computer_?name)"
)
HOST_PATTERNS = (
    # the host of a URL
    re.compile(r"(?i)\b[a-z][a-z0-9+.-]{1,20}://(?:[^\s/@\"'<>]{1,256}@)?([A-Za-z0-9][\w.-]{2,252})"),
    # a server of Windows, and one of NFS in a table of mounts
    re.compile(r"(?<![\w\\])\\{2,4}(?!wsl)([A-Za-z0-9][\w-]{0,62}(?:\.[\w-]{1,63}){0,6})\\{1,2}(?=[\w$])"),
    re.compile(
        r"(?m)(?:^|[\s\"'])([A-Za-z0-9][\w.-]{1,252}):/[^\s:]{0,1000} (?:on )?/[^\s:]{0,1000}"
        r" (?:type )?(?:nfs|lustre|ceph|beegfs)"
    ),
    # the host in a line of syslog, after its time
    re.compile(
        r"(?:(?<![\w.:-])|(?<=<\d>)|(?<=<\d\d>))(?:[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d(?:\.\d{1,9})?"
        r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,:+Z-]{0,20}) ([A-Za-z0-9][\w.-]{1,252})"
        r" [\w./-]{1,60}(?:\[\d{1,9}\])?: "
    ),
    re.compile(
        r"(?i)\b(?:static |pretty )?(?:host ?name|node ?name|slurmd_nodename|computer ?name|fqdn)"
        r"[\"']?\s{0,20}[=:]\s{0,4}[\"']?([a-z0-9][\w.-]{1,252})"
    ),
    re.compile(r"(?m)^ Name: ([A-Za-z0-9][\w.-]{1,252})$"),  # `docker info`
    re.compile(
        r"(?i)(?<![\w.-])((?:[a-z0-9][a-z0-9-]{0,62}\.){1,5}(?:internal|local|lan|corp|intranet|localdomain|private))"
        r"(?![\w-])"
    ),
    # a container registry
    re.compile(r"(?i)(?<![\w./:-])((?:[a-z0-9-]{1,63}\.){1,5}[a-z]{2,24}):\d{2,5}(?=/)"),
    # HOST:PORT, unlike a line number of a source file such as gpu_device.cc:1613
    re.compile(
        r"(?i)(?<![\w./:-])((?:[a-z0-9][a-z0-9-]{0,62}\.){2,5}(?!(?:cc|cpp|cu|h|py|so|pb|proto|log|json|txt)\b)[a-z]{2,24})"
        r":\d{4,5}(?![\d:]|\.\d)"
    ),
    re.compile(r"(?<![\w.-])(ip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3})(?![\w-])"),  # default host names in a cloud
    re.compile(r"(?m)^Linux ([A-Za-z0-9][\w.-]{1,252}) \d{1,2}\.\d{1,3}\.\d"),  # `uname -a`
    re.compile(r"(?<![\w-])Linux ([A-Za-z0-9][\w.-]{1,252}) \d{1,2}\.\d{1,3}\.\d{1,3}-\d"),
)
"""Patterns whose first group is a host name, in general texts."""
MESSAGE_HOST_PATTERNS = (
    re.compile(
        r"<\d{1,3}>1 \d{4}-\d\d-\d\dT[\d:.]{8,20}(?:Z|[+-]\d\d:\d\d) ([A-Za-z0-9][\w.-]{0,252}) "
    ),  # RFC 5424
    # pdsh and clush put the host before each line
    re.compile(
        r"(?m)^(?!(?:std(?:err|out)|worker|rank|task|ps|chief|train\w{0,6}|main|gpu|step|epoch)[\d_-]{0,6}:)"
        r"([A-Za-z][\w.-]{1,252}): (?=\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d|[IWEF]\d{4} \d\d:\d\d:|[IWEF] (?:tensorflow|external)/)"
    ),
    # before a line without a time, only names that look like those of hosts
    re.compile(
        r"(?<![\w.:/@-])(?!(?:std(?:err|out)|worker|rank|task|ps|chief|train\w{0,6}|main|gpu|step|epoch|python)[\d._-]{0,6}:)"
        r"(?=[\w.]{0,250}[\d-])([A-Za-z][\w.-]{1,252}): (?=(?:\w+\.)*\w*(?:Error|Exception|Warning): |Traceback \(most|  File \")"
    ),
    re.compile(r"(?i)\bconnect(?:ed|ion)? (?:to|from) ([A-Za-z][\w.-]{0,252}) port \d"),  # libcurl
    re.compile(r"\bconnect to host ([A-Za-z0-9][\w.-]{0,252}) port "),
    re.compile(r"\"([A-Za-z][\w.-]{1,252}):\d{4,5}\""),
    re.compile(r"(?i)\bon this host \(([A-Za-z0-9][\w.-]{0,252})\)"),  # cuda_diagnostics.cc
    re.compile(r"(?i)\bdiagnostic information for host: ([A-Za-z0-9][\w.-]{0,252})"),
    re.compile(r"(?i)(?:^|[\s\"'(,;])hostname: ([A-Za-z0-9][\w.-]{0,252})"),
    re.compile(  # NCCL
        r"(?<![\w.:/-])(?![\w.-]{0,252}\.(?:cc|cpp|cu|h|py|c):)([A-Za-z0-9][\w.-]{0,252}):\d{1,9}:\d{1,9} \[-?\d{1,4}\] "
    ),
    # Open MPI, and UCX under it
    re.compile(r"(?<![\w.])\[([A-Za-z][\w.-]{0,252}):\d{2,9}(?::\d{1,6}:\d{1,9})?\](?=[ :<])"),
    re.compile(r"\bPID \d{1,9} on node ([A-Za-z0-9][\w.-]{0,252})"),
    re.compile(
        r"(?i)\b(?:srun|slurmstepd|sbatch|salloc): (?:error|warning|fatal|info): ([A-Za-z][\w.-]{0,252}): "
    ),
    re.compile(r"(?i)\bslurmstepd: [^\n]{0,80}\bON ([A-Za-z][\w.-]{0,252})"),
    re.compile(r"(?:->|=>) ?([A-Za-z][\w.-]{0,252}):\d{2,5}(?=[,}\s])"),  # job worker -> {0 -> node1:2222}
    re.compile(
        r"(?i)\b(?:for|to|from|of|at|with|host|peer|target|address|server|service)(?:: | |=)[\"'(]?"
        r"(?![\w.-]{0,252}\.(?:cc|cpp|cu|cuh|c|h|hpp|py|so|pb|proto|log|json|txt|go|rs):)([A-Za-z][\w.-]{0,252}):\d{4,5}(?![\w.:])"
    ),
    re.compile(r"\bdns:(?:///)?([A-Za-z][\w.-]{0,252}):\d{2,5}(?!\d)"),  # a target of gRPC
    re.compile(r"\bqtype=\w{1,5} name=([A-Za-z0-9][\w.-]{0,252})"),  # c-ares
    re.compile(
        r"(?i)\b(?:could not resolve host|unknown ?host(?:exception)?|resolution failed for|getaddrinfo failed for)"
        r"(?: name| service)?:? [\"']?([A-Za-z][\w.-]{0,252})"
    ),
)
"""Patterns whose first group is a host name, also a short one, in messages of certain programs."""
BEFORE_DOMAIN = re.compile(
    r"(?<![\w.-])([A-Za-z0-9][\w-]{0,62}(?:\.[A-Za-z0-9][\w-]{0,62}){0,4})(?=\.host-[1-9]\d{0,5}(?![\w-]))"
)
"""The host name before a domain that was replaced by a placeholder."""
PHONE = re.compile(
    r"(?<![\w.+-])(?:\+[1-9]\d{0,2}[ .-]?(?:\(\d{1,4}\)[ .-]?)?\d{2,4}(?:[ .-]?\d{2,4}){2,4}"
    r"|\(\d{3}\) ?\d{3}-\d{4}|\d{3}-\d{3}-\d{4}|00[1-9]\d{1,2} \d{2,4}(?: ?\d{2,4}){2,4})(?![\w.-])"
)
EMAIL = re.compile(
    r"(?<![\w.+@-])([A-Za-z0-9][\w.+-]{0,63})@(?=[0-9.-]{0,252}[A-Za-z])([A-Za-z0-9](?:[\w.-]{0,251}\w)?)(?![\w-]|://)"
)
NOT_A_HOST = re.compile(r"GLIBC|GCC_|CXXABI|lib[\w+-]{1,60}\.so")
"""A symbol version or library after the @ of a symbol."""
MAC = re.compile(r"(?i)(?<![\w:.-])[0-9a-f]{2}(?:([:-])[0-9a-f]{2})(?:\1[0-9a-f]{2}){4,18}(?![\w:-])(?!\.\d)")
CISCO_MAC = re.compile(
    r"(?i)(?<![\w.-])(?=[0-9a-f.]{0,13}[a-f])[0-9a-f]{4}\.[0-9a-f]{4}\.[0-9a-f]{4}(?![\w-])(?!\.\w)"
)
"""A MAC address in Cisco's notation. One without a letter could be a version."""
IPV4 = re.compile(
    r"(?<![A-Za-z0-9.])\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?![A-Za-z0-9])(?!\.\d)(?!-\d{1,4}[+~])"
)
IPV6_TARGET = re.compile(r"(?i)(?<=\bipv6:)[0-9a-f:.]{2,45}")
"""An IPv6 address without brackets in a target of gRPC."""
ENCODED_IPV6 = re.compile(r"(?i)%5B([0-9a-f:.]{2,45})(?:%25[\w.-]{1,16})?%5D")
"""An IPv6 address in brackets, percent-encoded as in messages of gRPC."""
IPV6 = re.compile(
    r"(?i)(?<![\w:])(?<!(?<!\.)\.)(?=[0-9a-f:]{2})[0-9a-f]{0,4}(?::[0-9a-f]{0,4}){2,7}(?![\w:])(?!\.\d)"
)
_QUAD = r"(\d{1,3}(?:\.\d{1,3}){3})(?!\d|\.\d)"
"""Four numbers, which may be an address or a version."""
VERSION = re.compile(
    rf"(?i)(?<![@=/])version[\"']?[\s:=>(]{{1,40}}[\"'v]?{_QUAD}|(?:==|>=|<=|~=|!=)\s{{0,2}}{_QUAD}|\.so\.{_QUAD}"
    rf"|\b(?:nvidia[-_][cnt]\w{{1,30}}|lib(?:cu|nv|nccl)\w{{1,30}}|cudnn|cublas|cuda|tensorrt|cudatoolkit)"
    rf"(?:[-_]cu\d\d)?[ \t_=-]{{1,3}}v?{_QUAD}|(?<![\w.]){_QUAD}(?:-\d{{1,4}}[+~]|\.dist-info|-py\d)"
    rf"|(?<![\w.]){_QUAD}-(?:microsoft|generic|WSL)"
)
"""Four numbers that are a version, in one of the groups."""
URL_HOST = re.compile(r"://[^\s/]{1,253}")
"""The host of a URL, with its port and user."""
VERSION_KEY = re.compile(r"(?i)version|release")

# ---------------------------------------------------------------- secrets

_KEYWORD = (
    r"(?:token|secret|passw(?:or)?d|passphrase|api[ _-]?key|access[ _-]?key(?:[_-]id)?|auth[_-]?key|private[_-]?key"
    r"|account[_-]?key|secret[_-]?key|credentials?|signature|license[_-]?key|cookie|authtoken|webhook"
    r"|passwort|kennwort|contrase(?:ñ|n)a|mot[ _]de[ _]passe|senha|wachtwoord|has(?:ł|l)o|парол[ья]|密码|密碼"
    r"|パスワード|비밀번호|lösenord|adgangskode|passord|salasana|şifre|parola|heslo|jelszó|κωδικός"
    r"|client[_-]?(?:key|certificate)[_-]?data)"
)
"""A word for a secret, in several languages."""
_SHORT_KEYWORD = r"(?:pass|pw|pwd|creds?|auth|jwt|pat)"
"""Words for a secret that are also parts of other words, so that a delimiter must precede them."""
SECRET_KEY = re.compile(rf"(?i){_KEYWORD}(?:[_-]?(?:id|value|key))?\Z|(?:^|[_-])(?:{_SHORT_KEYWORD}|sig)\Z")
"""The key of a field whose value is a secret."""
_ANNOTATION = r":\s{0,3}[A-Za-z_][\w.\[\]|, ]{0,60}?\s{0,3}="
"""A type annotation between a name and the value that is assigned to it."""
ASSIGNED_SECRET = re.compile(
    rf"(?i)({_KEYWORD}(?:[_-]?(?:id|value|key))?|(?<=[?&;])sig|(?<=[?&;])key"
    rf"|(?<![A-Za-z0-9]){_SHORT_KEYWORD}(?=\\?[\"']?\s{{0,3}}=)|(?<![A-Za-z0-9])(?:pw|pwd|(?<=_)pass|(?<=[\"'])pass)(?=\\?[\"']?\s{{0,3}}:))"
    rf"(\\?[\"']?\s{{0,3}}(?:{_ANNOTATION}|:=|=>|%3[AaDd]|[=:：＝])\s{{0,3}}\\?[\"']?)"
    r"((?=[^\s\"'&<>\\]{3})[^\s\"'&;,<>\\]{1,20000}(?:[;,](?![\w.-]{1,60}\\?[\"']?\s{0,2}[=:])[^\s\"'&;,<>\\]{1,2000}){0,20})"
)
"""The assignment of a secret without quotes, such as "token=…"."""
QUOTED_SECRETS = tuple(
    re.compile(
        rf"(?i)({_KEYWORD}(?:[_-]?(?:id|value|key))?|(?<![A-Za-z0-9])(?:{_SHORT_KEYWORD}))"
        rf"(\\?[\"']?\s{{0,3}}(?:{_ANNOTATION}|:=|=>|[=:：＝])\s{{0,3}}[bru]{{0,2}}\\?{quote})([^{quote}\\\n]{{3,2000}})(?={quote}|\\)"
    )
    for quote in "\"'"
)
"""Assignments of a quoted value, which may contain spaces."""
_LETTERS_AND_DIGITS = (
    r"(?=[A-Za-z0-9+/=_~-]{0,200}\d)(?=[A-Za-z0-9+/=_~-]{0,200}[A-Za-z])"
    r"[A-Za-z0-9+=_~-][A-Za-z0-9+/=_~-]{15,4000}(?![\w./-])"
)
"""A string of letters and digits that is not a word, a path or a version."""
CLIENT_PASSWORDS = (
    # the same commands as a Python list, as subprocess.CalledProcessError prints them
    re.compile(
        r"(?i)([\"'](?:mysql\w{0,12}|mariadb[\w-]{0,12}|sshpass|redis-cli|mongo\w{0,8}|docker|podman)[\"'][^\n]{0,200}?"
        r"[\"']-[pa])([\"'],[ \t]?[\"'])([^\"'\n]{3,200})"
    ),
    re.compile(
        r"(?i)([\"'](?:mysql\w{0,12}|mariadb[\w-]{0,12}|sshpass)[\"'][^\n]{0,200}?[\"']-p)()([^\"'\s,-][^\"'\n]{2,200})"
    ),
    # an option such as --api-key X or --key=X
    re.compile(
        r"(?i)((?<![\w-])--?[\w-]{0,40}key)([= \t]{1,3}[\"']?|[\"'],[ \t]?[\"'])"
        r"((?=[^\s\"',]{0,200}\d)(?=[^\s\"',]{0,200}[A-Za-z])[^\s\"',]{6,4000})"
    ),
    re.compile(rf"(?i)({_KEYWORD})([ \t]{{1,3}}[\"'])([^\"'\n]{{3,200}})(?=[\"'])"),
    # a client's option: mysql -pX, redis-cli -a X, docker login -p X
    re.compile(
        r"(?i)(\b(?:mysql\w{0,12}|mariadb[\w-]{0,12}|sshpass)\b[^\n|;&]{0,200}?[ \t]-p)([\"']?)"
        r"([^\s\"'-][^\s\"']{2,200})"
    ),
    re.compile(
        r"(?i)(\b(?:redis-cli|sshpass|mongo\w{0,8}|(?:docker|podman) login)\b[^\n|;&]{0,200}?[ \t]-[ap])"
        r"([ \t]{1,3}[\"']?)"
        r"([^\s\"'-][^\s\"']{2,200})"
    ),
    # curl -u USER:X
    re.compile(
        r"((?:^|[ \t'\"])(?:-u|-U|--user|--proxy-user)[ \t=]{0,2}[\"']?[^\s:\"'@/]{1,100})(:)([^\s\"'@]{3,500})"
    ),
    # .netrc
    re.compile(r"(?i)(\blogin[ \t]{1,3}\S{1,100}\s{1,8}(?:password|passwd|account))(\s{1,8})(\S{3,200})"),
    # an XML element
    re.compile(
        rf"(?i)(<(?:\w{{0,30}}{_KEYWORD}|{_SHORT_KEYWORD}|otp)>)([ \t]{{0,4}})([^<\n]{{3,2000}})(?=</)"
    ),
    # auth=("USER", "X") of requests
    re.compile(
        r"(?i)(\bauth=\([ \t]{0,2}[\"'][^\"'\n]{1,100}[\"'][ \t]{0,2},)([ \t]{0,2}[\"'])([^\"'\n]{3,2000})"
    ),
    # a conda channel with a token in its URL
    re.compile(r"(https?://[^\s/]{1,253}/t)(/)((?=[A-Za-z_-]{0,200}\d)[A-Za-z0-9_-]{8,200})(?=/(?!\d))"),
    re.compile(r"(\b[Pp]ass)(:[ \t]{1,3})((?=\S{0,100}\d)(?=\S{0,100}[A-Za-z])[^\s\"',;}]{8,200})"),
    re.compile(rf"(?i)(--?[\w-]{{0,40}}key)([ \t]{{1,3}}[\"']?|[\"'],[ \t]?[\"'])({_LETTERS_AND_DIGITS})"),
    re.compile(rf"(?i)([\"'](?:--?[\w-]{{0,30}})?{_KEYWORD})([\"'],[ \t]?[\"'])([^\"'\n]{{3,2000}})"),
    re.compile(r"(?i)(\bpass[ _-]?phrase)([\"']?[ \t]{0,2}[=:][ \t]{1,2}[\"']?)([^\n\"']{3,200})"),
    # echo X | docker login --password-stdin
    re.compile(
        r"(\becho)([ \t]{1,3}[\"']?)([^\s\"'|]{3,500})"
        r"(?=[\"']?[ \t]{0,3}\|[ \t]{0,3}(?:(?:docker|podman|helm)[^\n|]{0,200}--password-stdin|sudo[^\n|]{0,40} -S\b))"
    ),
    re.compile(r"(?i)(\botp)([ \t]{0,2}[=:][ \t]{0,2})(\w{4,100})"),
    # any value of NAME_KEY=, and of a bare key= if it has letters and digits
    re.compile(
        r"(?i)(\b[\w-]{1,60}key|\btokens)([\"']?[ \t]{0,2}=[ \t]{0,2}[\"']?)([^\s\"',;&)\]}]{5,4000})"
    ),
    re.compile(
        r"(?i)((?<![\w-])key)([\"']?[ \t]{0,2}=[ \t]{0,2}[\"']?)"
        r"((?=[^\s\"',;]{0,200}\d)(?=[^\s\"',;]{0,200}[A-Za-z])[^\s\"',;&)\]}]{8,4000})"
    ),
    re.compile(r"(\b[A-Z][A-Z0-9_]{0,60}_KEY)([\"']?:[ \t]{1,2}[\"']?)([^\s\"',;&)\]}]{5,4000})"),
    re.compile(rf"(?i)(\b\w{{0,60}}_KEY)([\"']?[ \t]{{0,2}}[=:][ \t]{{0,2}}[\"']?)({_LETTERS_AND_DIGITS})"),
    re.compile(rf"(?i)({_KEYWORD}|\blogin)([ \t]{{1,3}}[\"']?)({_LETTERS_AND_DIGITS})"),
    re.compile(r"(\bcurl\b[^\n]{0,200}?[ \t](?:-b|--cookie))([ \t]{1,3}[\"']?)([^\n\"']{3,2000})"),
    # a prompt or remark: Password for 'https://…': X
    re.compile(
        rf"(?i)({_KEYWORD}(?: for '[^'\n]{{1,100}}'| provided:| is| was| ist| est| es|:))([:：]?[ \t]{{1,3}}[\"']?)"
        r"(?=[^\s\"',;]{0,100}\d)([^\s\"',;]{4,200})"
    ),
    re.compile(r"(?im)^([ \t]{0,8}(?:password|passwd))([ \t]{1,8})(\S{3,200})[ \t]{0,8}$"),
    # .docker/config.json, kaggle.json and key files of Google Cloud
    re.compile(
        r"(?i)([\"'](?:auth|identitytoken|registrytoken|private_key_id)\\?[\"'])(\s{0,3}:\s{0,3}\\?[\"'])([A-Za-z0-9+/=_.-]{8,4000})"
    ),
    re.compile(r"(?i)([\"']key\\?[\"'])(\s{0,3}:\s{0,3}\\?[\"'])([A-Za-z0-9+/=_-]{20,4000})"),
    # HTTP headers, then parameters of a URL
    re.compile(
        r"(?i)(\b(?:cookie|set-cookie|proxy-authorization|authorization|x-[a-z-]{0,30}(?:auth|token|key|secret)[a-z-]{0,30})[\"']?:)"
        r"([ \t]{1,3}[\"']?)([^\n\"']{3,4000})"
    ),
    re.compile(
        r"(?i)([?&](?:x-amz-(?:signature|credential|security-token)|x-goog-signature|sig|signature|token|key|code)=)()([^\s&\"'<>]{8,4000})"
    ),
)
"""Passwords in the notations of clients. The groups are as in `SECRET_ASSIGNMENTS`."""
RANDOM_WORD = re.compile(
    r"(?<![A-Za-z0-9+/_.-])(?!_|0x|GPU-|MIG-)(?![A-Za-z0-9+_-]{0,200}[a-z]{7})(?=[A-Za-z0-9+_-]{0,200}[a-z])"
    r"(?=[A-Za-z0-9+_-]{0,200}[A-Z])(?=[A-Za-z+_-]{0,200}\d{1,20}[A-Za-z+_-]{1,200}\d)"
    r"[A-Za-z0-9+_-]{20,4000}={0,2}(?![A-Za-z0-9+/=_.-])"
)
"""A long string of small and capital letters with two or more numbers, which is random and not a name."""
PEM_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}(?:KEY|MESSAGE)[A-Z ]{0,20}-----|\bPrivate-Lines: \d")
PEM_END = re.compile(r"-----END [A-Z0-9 ]{0,60}-----")
PEM_LINE = re.compile(
    r"(?<![A-Za-z0-9+/=])(?:[A-Za-z0-9+/]{8,200}={0,2}|[A-Za-z0-9+/]{2,7}={1,2})(?=[\s\"',\\]{0,4}$)"
)
"""A line of a private key's body, possibly after a log prefix."""
PEM_WORD = re.compile(r"(?<![A-Za-z0-9+/=-])[A-Za-z0-9+/]{32,200}={0,2}(?![A-Za-z0-9+/=-])")
PEM_HEADER = re.compile(r"-----|(?:Proc-Type|DEK-Info|Comment): ")
MAX_PEM_LINES = 400
"""The most lines of one private key."""
SECRET_FLAG = re.compile(
    rf"(?i)(?<![\w-])(--?(?:[a-z0-9_-]{{0,30}}{_KEYWORD}|(?:[a-z0-9_-]{{0,30}}[_-])?(?:pw|pwd|pass)))"
    r"([ \t]{1,3}[\"']?)([^\s\"'&;,<>-][^\s\"'&;,<>]{2,20000})"
)
BEARER = re.compile(
    r"(?i)\b(bearer|basic|negotiate|apikey)([ \t]{1,3})((?=[^\s\"',]{0,200}[\d=+/])[A-Za-z0-9._~+/=-]{8,4000})"
)
SECRET_ASSIGNMENTS = (BEARER, ASSIGNED_SECRET, *QUOTED_SECRETS, SECRET_FLAG, *CLIENT_PASSWORDS)
"""Patterns with three groups: the text before a secret, a delimiter, and the secret."""
USERINFO = re.compile(r"(?i)(\b[a-z][a-z0-9+.-]{1,20}://)([^\s/@\"'<>]{1,512})(@)")
SLASHED_USERINFO = re.compile(
    r"(?i)(\b[a-z][a-z0-9+.-]{1,20}://)([^\s/@:\"'<>]{1,256}:(?!\d{1,5}[/?#])[^\s@\"'<>]{1,512})(@)"
)
"""USERINFO whose password has a slash, as access keys of AWS often do."""
CUT_USERINFO = re.compile(
    r"(?i)(\b[a-z][a-z0-9+.-]{1,20}://)([^\s/@:\"'<>]{1,256}:(?!\d{1,5} )[^\s/@\"'<>]{1,512})( \[…\])"
)
"""USERINFO in a text that was truncated before the @."""
USERINFO_PATTERNS = (USERINFO, SLASHED_USERINFO, CUT_USERINFO)
"""Patterns with three groups: the scheme, the user and password, and what ends them."""
TOKEN_PATTERNS = (
    re.compile(
        r"-----BEGIN [A-Z0-9 ]{0,40}(?:KEY|CERTIFICATE|MESSAGE)[A-Z ]{0,20}-----"
        r"(?:\s{0,4}(?:Proc-Type|DEK-Info): [^\n]{0,99}){0,3}"
        r"[A-Za-z0-9+/=\s\\]{0,20000}(?:-----END [A-Z0-9 ]{0,60}-----)?"
    ),
    re.compile(
        r"\bssh-(?:rsa|ed25519|dss) AAAA[A-Za-z0-9+/=]{20,2000}|\becdsa-[\w-]{5,40} AAAA[A-Za-z0-9+/=]{20,2000}"
    ),
    re.compile(
        r"(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{5,4000}\.[A-Za-z0-9_-]{5,4000}(?:\.[A-Za-z0-9_-]{0,4000})?"
    ),
    re.compile(
        r"(?i)(?<=hooks\.slack\.com/)(?:services|workflows)/[\w/-]{10,200}|(?<=/api/webhooks/)\d{5,30}/[\w-]{20,200}"
    ),
    re.compile(
        r"(?<=/bot)\d{6,12}:[\w-]{20,60}|(?<![A-Za-z0-9])(?:AGE-SECRET-KEY-1[A-Z0-9]{20,80}|gh[pousr]_[A-Za-z0-9]{16,255}|github_pat_\w{20,255}|glpat-[\w-]{16,64}|hf_[A-Za-z0-9]{16,64}"
        r"|(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,32}|AIza[\w-]{30,50}|ya29\.[\w-]{20,300}|(?:xox[abeoprs]|xapp)-[\w-]{10,200}"
        r"|sk-[A-Za-z0-9_-]{16,200}|nvapi-[\w-]{16,200}|dckr_pat_[\w-]{16,100}|npm_[A-Za-z0-9]{20,60}"
        r"|p[y]pi-[A-Za-z0-9_-]{16,300}|r8_[A-Za-z0-9]{20,60}|wandb_v1_\w{16,100}|dapi[0-9a-f]{32}|SG\.[\w-]{16,80}\.[\w-]{16,80}"
        r"|(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{10,100}|hvs\.[\w-]{20,200}|ATATT3[\w=-]{20,300}|dop_v1_[0-9a-f]{40,80}"
        r"|gl(?:rt|dt|cbt|ptt)-[\w-]{16,64}|sq0(?:atp|csp)-[\w-]{20,60}"
        r"|tskey-[\w-]{10,80}|lin_api_\w{16,60}|gsk_[A-Za-z0-9]{20,80})"
    ),
)
"""Secrets with a recognizable format: keys, certificates, and tokens of known services."""
_NOT_SECRET = re.compile(
    r"(?i)(?:none|null|str|bytes|int|true|false|yes|no|not|n/a|unset|set|required|invalid|missing|expired|\d{1,5}|\d+(?:\.\d+){1,3}"
    r"|-{3,}.*|<[^>]{0,40}>?|\*+|[/~$%].*|\\.*|\(.*|\[.*|\{.*)"
)
"""A value that is not a secret: a remark, a number, a path, a variable or a placeholder."""

_SWITCH = re.compile(r"(?i)[-+]?[\d.]{1,20}|true|false|t|f|yes|no|y|n|on|off|none")
VARIABLE_FORMS = {
    **dict.fromkeys(
        (
            "CUDA_CACHE_DISABLE", "CUDA_CACHE_MAXSIZE", "CUDA_DISABLE_PTX_JIT", "CUDA_FORCE_PTX_JIT",
            "CUDA_LAUNCH_BLOCKING", "NVIDIA_DISABLE_REQUIRE", "NVIDIA_TF32_OVERRIDE", "PYTHONOPTIMIZE",
            "TF_CPP_MAX_VLOG_LEVEL", "TF_CPP_MIN_LOG_LEVEL", "TF_CPP_MIN_VLOG_LEVEL", "TF_FORCE_GPU_ALLOW_GROWTH",
            "TF_ENABLE_GPU_GARBAGE_COLLECTION", "TF_MIN_GPU_MULTIPROCESSOR_COUNT", "TF_USE_LEGACY_KERAS",
            "XLA_PYTHON_CLIENT_PREALLOCATE",
        ),
        _SWITCH,
    ),
    **dict.fromkeys(
        ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
        re.compile(
            r"(?i)(?:cuda|gpu|mig|nodevfiles|none|void|null|all|[0-9a-f]{4,40}|[\s\d,;:'\"\[\](){}/_.-]){0,4000}"
        ),
    ),
    "NVIDIA_DRIVER_CAPABILITIES": re.compile(
        r"(?i)(?:all|compute|compat32|graphics|utility|video|display|ngx|[\s,;]){0,100}"
    ),
    "CUDA_DEVICE_ORDER": re.compile(r"(?i)(?:fastest|first|pci|bus|id|[_ -])+"),
    "KERAS_BACKEND": re.compile(r"(?i)tensorflow|tf|jax|(?:py)?torch|theano|cntk|numpy|mxnet|openvino"),
    "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": re.compile(r"(?i)python|cpp|upb"),
    "SETUPTOOLS_USE_DISTUTILS": re.compile(r"(?i)local|stdlib"),
    "TF_CPP_VMODULE": re.compile(r"(?:[A-Za-z_*?./-]{1,60}=\d{1,2},?){1,40}"),
    "TF_GPU_ALLOCATOR": re.compile(r"(?i)(?:cuda|malloc|async|bfc|allocator|platform|default|[_ -])+"),
    "TF_GPU_THREAD_MODE": re.compile(r"(?i)(?:global|gpu|private|shared|[_ -])+"),
}  # fmt: skip
"""The form of the values of variables. A value of another form could be anything and is replaced."""


def is_secret_value(value: str) -> bool:
    """Return whether the value after `token=` may be a secret rather than a path, a number or a remark."""
    first_part = re.split("[;,]", value.strip(), maxsplit=1)[0]
    return (
        len(value) >= 3
        and _NOT_SECRET.fullmatch(value.strip()) is None
        and _NOT_SECRET.fullmatch(first_part) is None
    )


# ---------------------------------------------------------------- identifiers

UUID = re.compile(
    r"(?i)(?:(?<![0-9a-z])|(?<=pod))([0-9a-f]{8}([-_])[0-9a-f]{4}\2[0-9a-f]{4}\2[0-9a-f]{4}\2[0-9a-f]{12})(?![0-9a-z])"
)
SHORT_UUID = re.compile(
    r"(?i)\b((?:MIG-)?(?:GPU|MIG)-)([0-9a-f]{4,8}(?:-[0-9a-f]{0,4}){0,3}(?:-[0-9a-f]{0,11})?)(?![\w-])"
)
"""The abbreviated UUID of a GPU or MIG device, as in CUDA_VISIBLE_DEVICES."""
SHORT_PLACEHOLDER = re.compile(r"0{4}[0-9a-f]{0,4}[0-]{0,40}")
HEX_ID = re.compile(r"(?<![0-9A-Za-z])(?:[0-9a-f]{64}|[0-9a-f]{40}|[0-9a-f]{32})(?![0-9A-Za-z])")
SHORT_ID = re.compile(
    r"(?<![0-9A-Za-z])(?<![0-9A-Fa-f]-)(?=[0-9a-f]{0,11}[0-9])(?=[0-9a-f]{0,11}[a-f])[0-9a-f]{12}(?![0-9A-Za-z])"
)
"""The first twelve digits of a container ID."""
LONG_SERIAL = re.compile(r"(?<![\w.-])[01]\d{12}(?![\w.-])")
SERIAL_KEY = re.compile(
    r"(?i)serial|part_?number|asset_?tag|service_?tag|machine_?id|board_?id|\bguid|boot_?id"
)
SERIAL = re.compile(
    r"(?i)(\b(?:serial(?:[ _-]?(?:number|no\.?|num))?|board[ _-]?id|part[ _-]?number|guid|machine[ _-]?id|boot[ _-]?id"
    r"|asset[ _-]?tag|service[ _-]?tag)\b[\"']?(?:[ \t]{0,40}[:=][ \t\"']{0,4}|[ \t]{1,3}(?=[0-9a-f]{2}-)))"
    r"([^\s\"',;<>]{1,80})"
)
SERIAL_TAG = re.compile(
    r"(<(?:\w{0,30}serial\w{0,30}|board_id|\w{0,20}part_number|\w{0,20}guid|host_id)>)([^<\n]{1,80})(?=<)"
)
NO_VALUE = re.compile(
    r"(?i)\s*(?:|\[?n/?a\]?|none|unknown|\[?not (?:supported|available|found|specified).*|0|-|\[.{0,40}\])\s*"
)
"""A value that means "no value"."""
PROCESS_TAG = re.compile(r"(<process_name>)([^<\n]{1,4000})(?=</)")
PROCESS_ROW = re.compile(
    r"(?m)^(\|[ \t]{1,8}\d{1,3}[ \t]{1,8}(?:(?:\d{1,4}|N/A)[ \t]{1,8}(?:\d{1,4}|N/A)[ \t]{1,8})?\d{1,10}[ \t]{1,8}"
    r"(?:C|G|C\+G|M\+C|M\+C\+G)[ \t]{1,8})(\S.{0,120}?)(?=[ \t]{1,60}(?:\d{1,9}MiB|N/A)[ \t]{0,4}\|)"
)
"""A row of nvidia-smi's process table."""
SCRIPT_SUFFIX = re.compile(r"\.(?:py|pyc|ipynb)\Z")
PROCESS_FIELD = re.compile(r"(\bpid='?[^,\n]{1,20}, name=)([^,\n]{1,64})")
PROGRAM = re.compile(
    r"python(?:\d(?:\.\d{1,2})?)?|Xorg|Xwayland|gnome-shell|nvidia-cuda-mps-server|nvidia-cuda-mps-control|nvidia-smi"
    r"|nvidia-persistenced|jupyter(?:-\w{1,20})?|ipython3?|kwin_x11|plasmashell|firefox|chrome|tritonserver|ollama|dockerd"
    r"|process-\d{1,6}|<unknown>|\[Not"
)
"""The name of a widely known program, which is not replaced."""


def is_public(name: str) -> bool:
    """Return whether a host name in lower case is a project's public site, or does not identify anyone."""
    return name in GENERIC_NAMES or any(
        name == domain or name.endswith(f".{domain}") for domain in PUBLIC_DOMAINS
    )


def is_address(text: str) -> bool:
    """Return whether four numbers can be a host's address.

    Loopback addresses, wildcards (0.…) and 255.255.255.255 are not.
    """
    parts = [int(part) for part in text.split(".")]
    return all(part <= 255 for part in parts) and parts[0] not in (0, 127) and parts != [255] * 4


def normalize_ipv6(text: str) -> str | None:
    """Return an IPv6 address in canonical form.

    Return None if the text is not an address, is loopback or unspecified, or looks like a C++ scope (a::b).
    """
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return None
    is_scope = len(text) < 5 or (text.count(":") < 3 and not any(char.isdigit() for char in text))
    return None if is_scope or address.is_loopback or address.is_unspecified else str(address)


def make_secret_pattern(values: Iterable[str]) -> re.Pattern[str]:
    """Return one pattern for all secrets. Those of fewer than 8 characters match only as words."""
    return _join_alternatives(
        re.escape(value) if len(value) >= 8 else rf"(?<![A-Za-z0-9]){re.escape(value)}(?![A-Za-z0-9])"
        for value in _sort_longest_first(values)
    )


def make_name_pattern(values: Iterable[str]) -> re.Pattern[str]:
    """Return one pattern for all names. The shorter a name, the stricter its delimiters.

    Names of one or two letters never match, because they would match in too many places.
    """
    ordered = _sort_longest_first(values)
    exact = [rf"(?<![A-Za-z0-9]){re.escape(v)}(?![A-Za-z0-9])" for v in ordered if len(v) == 4]
    exact += [rf"(?<![\w.-]){re.escape(v)}(?![\w.-])" for v in ordered if len(v) == 3]
    long_names = "|".join(re.escape(v) for v in ordered if len(v) >= 5)
    return _join_alternatives(
        ([rf"(?<![A-Za-z0-9])(?i:{long_names})(?![A-Za-z0-9])"] if long_names else []) + exact
    )


def _sort_longest_first(values: Iterable[str]) -> list[str]:
    return sorted(values, key=lambda value: (-len(value), value))


def _join_alternatives(parts: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(parts) or r"(?!)")
