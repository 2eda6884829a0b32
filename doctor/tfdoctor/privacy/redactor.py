"""Replacing what tells who and where somebody is, so that what is left still means the same.

A `Redactor` first learns from every text of a recording, then replaces: one secret by one placeholder everywhere,
different secrets by different ones. So a path stays the path of the same file wherever it is written, and a GPU's
UUID in CUDA_VISIBLE_DEVICES stays the one that nvidia-smi shows. What was learned in one place (a host name from
/etc/hostname, a token from a variable) is replaced in all places.

Versions look like addresses (9.1.0.70 is a cuDNN, and might be a host): a number of four parts is taken for an
address unless something in the recording says that it is a version.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from tfdoctor.privacy import patterns

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable, Mapping

MAX_LITERALS = 2000
"""Names and secrets that are looked for in every text."""
MAX_PASSES = 6


def is_placeholder(text: str) -> bool:
    """Return whether a text is what a Redactor puts in."""
    return patterns.PLACEHOLDER.fullmatch(text) is not None


class Redactor:
    """Replaces names, addresses, tokens and identifiers; the same one always by the same placeholder."""

    def __init__(
        self, *, users: Iterable[str] = (), hosts: Iterable[str] = (), secrets: Iterable[str] = ()
    ) -> None:
        self.replaced: Counter[str] = Counter()
        """Kind → how often something was replaced."""
        self._used: dict[str, set[str]] = {}
        self._known: dict[str, dict[str, str]] = {}
        self._reserved: set[str] = set()
        self._versions: set[str] = set()
        self._kept: set[str] = set()
        self._pending: dict[tuple[str, str], None] = {}
        self._literals: tuple[re.Pattern[str], re.Pattern[str]] | None = None
        self._literal_kinds: dict[str, str] = {}
        self._cache: dict[str, str] = {}
        self._key_lines = 0
        """How many more lines may belong to the private key that has begun."""
        for name in users:
            self._name("user", name)
        for name in hosts:
            self._host(name)
        for value in secrets:
            self._secret(value)

    # ------------------------------------------------------------ learning

    def learn_version(self, text: str) -> None:
        """Remember a version that is known as one: it is no address, wherever it stands."""
        self._versions.update(patterns.IPV4.findall(text))

    def keep(self, value: str) -> None:
        """Keep a text that looks like an identifier and is none."""
        self._kept.add(value)

    def learn(self, text: str, key: str = "") -> None:
        """Take note of what is secret in `text`; `key` is the name that the value stands under, if any."""
        self._literals = None
        self._cache.clear()
        for match in patterns.PLACEHOLDER.finditer(text):
            self._reserved.add(match[0])
        if patterns.PLAIN_USER.search(text):
            self._reserved.add("user")
        if key:
            self._learn_keyed(text, key)
        for match in patterns.VERSION.finditer(_strip_secrets(text)):
            self._versions.update(group for group in match.groups() if group)
        for pattern in patterns.HOMES:
            for match in pattern.finditer(text):
                self._name("user", match[1])
        for pattern in (patterns.USERINFO, patterns.CUT_USERINFO):
            for match in pattern.finditer(text):
                for part in match[2].split(":"):
                    self._secret(part)
        for pattern in patterns.WITH_VALUE:
            for match in pattern.finditer(text):
                if patterns.is_secret_value(match[3]):
                    self._secret(match[3])
        self._learn_key_body(text)
        for pattern in (*patterns.HOSTS, *patterns.TOLD_HOSTS):
            for match in pattern.finditer(text):
                self._host(match[1])
        for pattern in patterns.NAMES:
            for match in pattern.finditer(text):
                for name in match.groups():
                    self._name("name", name or "")
        for pattern in (patterns.PROCESS_TAG, patterns.PROCESS_ROW, patterns.PROCESS_FIELD):
            for match in pattern.finditer(text):
                self.learn_process(match[2])
        for match in patterns.UUID.finditer(text):  # before any abbreviation of it is met
            self._pending.setdefault(("uuid", _plain_uuid(match[1])))
        for match in patterns.HEX_ID.finditer(text):
            self._pending.setdefault(("id", match[0]))

    def _learn_key_body(self, text: str) -> None:
        """Take the lines of a private key for secrets, though each line is a text of its own."""
        if not self._key_lines and "-----BEGIN" not in text:
            return
        for line in text.split("\n"):
            begin = patterns.PEM_BEGIN.search(line)
            if begin is not None:
                self._key_lines = patterns.MAX_PEM_LINES
                for word in patterns.PEM_WORD.findall(line, begin.end()):  # lines joined into one
                    self._secret(word)
            elif self._key_lines:
                match = patterns.PEM_LINE.search(line)
                if match is not None and not patterns.PEM_END.search(line):
                    self._key_lines -= 1
                    self._secret(match[0])
                elif len(line.split()) > 1 and not patterns.PEM_HEADER.search(line):
                    self._key_lines = 0

    def learn_process(self, command: str) -> None:
        """Remember what a program is called, to find it elsewhere."""
        name = command.strip()
        program = name.split(" ")[0].rpartition("/")[2]
        if (
            len(name) >= 5
            and not patterns.PROGRAM.fullmatch(program)
            and not patterns.NOTHING.fullmatch(name)
        ):
            self._name("process", name)

    def _learn_keyed(self, text: str, key: str) -> None:
        if patterns.SECRET_KEY.search(key):
            if patterns.is_secret_value(text):
                self._secret(text)
        elif patterns.VERSION_KEY.search(key):
            self.learn_version(text)
        elif patterns.HOST_KEY.fullmatch(key):
            self._host(text)
        elif patterns.USER_KEY.fullmatch(key):
            self._name("user", text)
        elif key == "TF_CONFIG":
            for match in patterns.CLUSTER.finditer(text):
                self._host(match[1])
        elif patterns.NAME_KEY.fullmatch(key):
            self._name("name", text)
        elif patterns.SERIAL_KEY.search(key) and len(text) >= 6:
            self._pending.setdefault(("serial", text.strip()))

    def _name(self, kind: str, name: str) -> None:
        name = name.strip()
        if name and name.lower() not in patterns.GENERIC and not name.isdigit() and not is_placeholder(name):
            self._pending.setdefault((kind, name))

    def _host(self, name: str) -> None:
        name = name.strip().strip(".[]")
        lowered = name.lower()
        if (
            not patterns.HOST_NAME.fullmatch(name)
            or patterns.is_public(lowered)
            or patterns.IPV4.fullmatch(name)
        ):
            return
        self._name("host", name)
        if name.count(".") and not name.replace(".", "").isdigit():
            first, _, domain = name.partition(".")
            self._name("host", first)
            if domain.count(".") and not patterns.is_public(domain.lower()):
                self._name("host", domain)

    def _secret(self, value: str) -> None:
        value = value.strip().strip("\"'")
        if len(value) < 3 or value.lower() in patterns.GENERIC or is_placeholder(value):
            return
        for spelling in dict.fromkeys((value, quote(value, safe=""), unquote(value))):
            self._pending.setdefault(("secret", spelling))

    # ------------------------------------------------------------ placeholders

    def _get_placeholder(self, kind: str, value: str) -> str:
        """Return the placeholder of `value`, the same as the last time."""
        known = self._known.setdefault(kind, {})
        if value not in known:
            number = len(known) + 1
            while (made := _make_placeholder(kind, number, value)) in self._reserved:
                number += 1
            self._reserved.add(made)
            known[value] = made
        return known[value]

    def _replace(self, kind: str, value: str, shown: str | None = None) -> str:
        if is_placeholder(value):
            return shown or value
        return self._count(kind, value, self._get_placeholder(kind, value))

    def _count(self, kind: str, value: str, shown: str) -> str:
        self.replaced[kind] += 1
        self._used.setdefault(kind, set()).add(value)
        return shown

    def _settle(self) -> tuple[re.Pattern[str], re.Pattern[str]]:
        """Give everything learned its placeholder, in the order learned; the patterns of secrets and of names."""
        if self._literals is None:
            for kind, value in self._pending:
                if kind in patterns.LITERAL_KINDS and len(self._literal_kinds) < MAX_LITERALS:
                    self._literal_kinds.setdefault(value, kind)
                if not is_placeholder(value):
                    self._get_placeholder(kind, value)
            self._pending.clear()
            secrets = [value for value, kind in self._literal_kinds.items() if kind == "secret"]
            names = [value for value, kind in self._literal_kinds.items() if kind != "secret"]
            self._literals = patterns.make_secret_pattern(secrets), patterns.make_name_pattern(names)
        return self._literals

    # ------------------------------------------------------------ replacing

    def text(self, text: str) -> str:
        """Redact one text, and learn from it alone."""
        return self.texts([text])[text]

    def texts(self, texts: Iterable[str]) -> dict[str, str]:
        """Redact several texts, and learn from all: each text → what of it may be published."""
        made = {text: text for text in texts}

        def learn() -> None:
            for text in made.values():
                self.learn(text)

        def apply() -> bool:
            before = dict(made)
            made.update((text, self(last)) for text, last in before.items())
            return made != before

        self.stable(learn, apply)
        return made

    def __call__(self, text: str) -> str:
        """Return `text` with everything replaced that was learned, and whatever looks like a secret by itself."""
        if text in self._cache:
            return self._cache[text]
        result = self._apply(text)
        if len(text) < 1000 and len(self._cache) < 100_000:
            self._cache[text] = result
        return result

    def _apply(self, text: str) -> str:
        (secrets, names), put = self._settle(), self._replace
        text = secrets.sub(lambda m: put("secret", m[0]), text)
        for pattern in (*patterns.TOKENS, patterns.RANDOM_WORD):
            text = pattern.sub(lambda m: m[0] if m[0] in self._kept else put("secret", m[0]), text)
        for pattern in patterns.WITH_VALUE:
            text = pattern.sub(self._replace_assigned, text)
        text = patterns.USERINFO.sub(self._userinfo, text)
        text = patterns.CUT_USERINFO.sub(self._userinfo, text)
        text = patterns.SERIAL.sub(self._serial, text)
        text = patterns.SERIAL_TAG.sub(self._serial, text)
        text = patterns.PROCESS_TAG.sub(self._process, text)
        text = patterns.PROCESS_ROW.sub(self._process_row, text)
        text = patterns.PROCESS_FIELD.sub(self._process, text)
        text = patterns.EMAIL.sub(self._email, text)
        text = patterns.UUID.sub(
            lambda m: m[0] if m[0] in self._kept else put("uuid", _plain_uuid(m[1]), m[1]), text
        )
        text = patterns.SHORT_UUID.sub(self._short_uuid, text)
        text = patterns.MAC.sub(lambda m: put("mac", m[0].lower().replace("-", ":")), text)
        text = patterns.HEX_ID.sub(lambda m: m[0] if m[0] in self._kept else put("id", m[0]), text)
        text = patterns.SHORT_ID.sub(self._short_id, text)
        text = patterns.IPV6.sub(self._ipv6, text)
        text = patterns.IPV4.sub(self._ipv4, text)
        text = patterns.LONG_SERIAL.sub(lambda m: put("serial", m[0]), text)
        text = patterns.PHONE.sub(lambda m: put("serial", m[0]), text)
        text = names.sub(lambda m: self._literal(m[0]), text)
        for pattern in patterns.HOMES:
            text = pattern.sub(self._home, text)
        for pattern in (*patterns.TOLD_HOSTS, patterns.BEFORE_DOMAIN):
            text = pattern.sub(self._replace_host, text)
        return text

    def _literal(self, found: str) -> str:
        kind = self._literal_kinds.get(found)
        if kind is None:  # in other letters: Alice, alice
            lowered = found.lower()
            original = next(name for name in self._literal_kinds if name.lower() == lowered)
            found, kind = original, self._literal_kinds[original]
        return self._replace(kind, found)

    def _home(self, match: re.Match[str]) -> str:
        name = match[1]
        if name.lower() in patterns.GENERIC or is_placeholder(name):
            return match[0]
        return match[0][: match.start(1) - match.start()] + self._replace("user", name)

    def _replace_host(self, match: re.Match[str]) -> str:
        name = match[1]
        if patterns.is_public(name.lower()) or patterns.IPV4.fullmatch(name) or is_placeholder(name):
            return match[0]
        at = match.start(1) - match.start()
        return f"{match[0][:at]}{self._replace('host', name)}{match[0][at + len(name) :]}"

    def _replace_assigned(self, match: re.Match[str]) -> str:
        if not patterns.is_secret_value(match[3]) or is_placeholder(match[3]):
            return match[0]
        return f"{match[1]}{match[2]}{self._replace('secret', match[3])}"

    def _userinfo(self, match: re.Match[str]) -> str:
        parts = [
            part
            if not part or part.lower() in patterns.GENERIC or is_placeholder(part)
            else self._replace("secret", part)
            for part in match[2].split(":")
        ]
        return f"{match[1]}{':'.join(parts)}{match[3]}"

    def _serial(self, match: re.Match[str]) -> str:
        value = match[2].strip()
        if patterns.NOTHING.fullmatch(value) or is_placeholder(value):
            return match[0]
        return f"{match[1]}{match[2].replace(value, self._replace('serial', value))}"

    def _process(self, match: re.Match[str]) -> str:
        return f"{match[1]}{self.program(match[2])}"

    def _process_row(self, match: re.Match[str]) -> str:
        width = len(match[2])
        return f"{match[1]}{self.program(match[2])[:width].ljust(width)}"

    def program(self, command: str) -> str:
        """Return a command without what is somebody's work: only names of programs that everybody has are kept."""
        command = command.strip()
        words = command.split()
        name = words[0].replace("\\", "/").rpartition("/")[2] if words else ""
        if not name or is_placeholder(command) or patterns.NOTHING.fullmatch(command):
            return command
        if patterns.PROGRAM.fullmatch(name):
            return name if name == command else self._count("process", command, name)
        return self._replace("process", command)

    def argument(self, number: int, word: str) -> str:
        """Redact the `number`th word of a command line: what kind of thing runs is kept, and nothing else."""
        if number == 0:
            return self.program(word)
        if not word or word in ("-m", "-c", "-", "-u", "-B", "--") or is_placeholder(word):
            return word
        if "ipykernel" in word:
            return "ipykernel_launcher"
        if word.startswith("-"):
            return "--option"
        return self._replace("process", word.rpartition("/")[2] or word)

    def _email(self, match: re.Match[str]) -> str:
        own = match[1].lower() == "git" or is_placeholder(match[1])
        if own or patterns.NOT_A_HOST.match(match[2]):
            return match[0]
        return self._replace("email", match[0])

    def _short_uuid(self, match: re.Match[str]) -> str:
        """Replace an abbreviated UUID, as CUDA_VISIBLE_DEVICES takes it, by that of the same placeholder."""
        digits = match[2].lower()
        if patterns.SHORT_PLACEHOLDER.fullmatch(digits):
            return match[0]
        full = {u: made for u, made in self._known.get("uuid", {}).items() if u.startswith(digits)}
        if not full:
            if len(digits) < 8:
                return match[0]
            full = {digits: self._get_placeholder("uuid", digits)}
        uuid, made = next(iter(full.items()))
        return match[1] + self._count("uuid", uuid, made[:8] if len(full) == 1 else "0000000")

    def _short_id(self, match: re.Match[str]) -> str:
        """Replace the first twelve digits of a container's id."""
        for value, made in self._known.get("id", {}).items():
            if len(value) == 64 and value.startswith(match[0]):
                return self._count("id", value, made[:12])
        return match[0] if match[0].startswith("0000") else self._replace("id", match[0])

    def _ipv4(self, match: re.Match[str]) -> str:
        value = match[0]
        if value in self._versions or not patterns.is_address(value):
            return value
        return self._replace("address", value)

    def _ipv6(self, match: re.Match[str]) -> str:
        value = patterns.normalize_ipv6(match[0])
        return match[0] if value is None else self._replace("address", value)

    # ------------------------------------------------------------ JSON

    def learn_json(self, value: Any, key: str = "") -> None:
        """Learn every text in a JSON value, each under its key."""
        if isinstance(value, str):
            self.learn(value, key)
        elif isinstance(value, dict):
            if "ServerVersion" in value and isinstance(value.get("Name"), str):  # `docker info`
                self._host(value["Name"])
            for name, inner in value.items():
                self.learn(str(name))
                self.learn_json(inner, str(name))
        elif isinstance(value, list):
            for inner in value:
                self.learn_json(inner, key)

    def json(self, value: Any, key: str = "") -> Any:
        """Return a JSON value with every text in it redacted, keys too."""
        if isinstance(value, str):
            return self.redact_keyed(key, value)
        if isinstance(value, dict):
            return {self(str(name)): self.json(inner, str(name)) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.json(inner, key) for inner in value]
        return value

    def redact_keyed(self, key: str, value: str) -> str:
        """Redact the value that stands under `key`: all of it if the key says that it is a secret."""
        if patterns.SECRET_KEY.search(key) and patterns.is_secret_value(value) and not is_placeholder(value):
            self._settle()
            return self._replace("secret", value)
        if patterns.SERIAL_KEY.search(key) and not patterns.NOTHING.fullmatch(value):
            return self._replace("serial", value.strip())
        return self(value)

    def stable(self, learn: Callable[[], None], apply: Callable[[], bool]) -> None:
        """Repeat learning and applying until nothing changes: what one pass wrote may tell the next one more."""
        for _ in range(MAX_PASSES):
            learn()
            if not apply():
                return

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """Return kind → {"distinct": …, "replaced": …}, for the reader."""
        return {
            kind: {"distinct": len(used), "replaced": self.replaced[kind]}
            for kind, used in sorted(self._used.items())
        }


def _plain_uuid(text: str) -> str:
    return text.lower().replace("_", "-")


def _make_placeholder(kind: str, number: int, value: str) -> str:
    """Return the placeholder for the `number`th of its kind, shaped if the shape says something."""
    if kind == "uuid":
        return f"{number:08x}-0000-0000-0000-000000000000"
    if kind == "id":
        return f"{number:012x}".ljust(len(value), "0")
    if kind == "user":
        return "user" if number == 1 else f"user-{number}"
    suffix = patterns.SCRIPT.search(value) if kind == "process" else None
    return f"{patterns.WORDS.get(kind, kind)}-{number}{suffix[0] if suffix is not None else ''}"


def _strip_secrets(text: str) -> str:
    """Return text without assigned secrets.

    A word in one ("TOKEN=version 1.0.0.0") does not make a number a version.
    """
    for pattern in patterns.WITH_VALUE:
        text = pattern.sub(
            lambda m: m[0].replace(m[3], "…") if patterns.is_secret_value(m[3]) else m[0], text
        )
    return patterns.SERIAL.sub(lambda m: m[0].replace(m[2], "…"), text)
