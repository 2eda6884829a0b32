"""Replace everything in texts that identifies a user or machine, so that the texts keep their meaning.

A `Redactor` first learns from every text of a recording, and then replaces. The same value gets the same placeholder
everywhere, and different values get different ones. So a path remains the path of the same file in all texts, and a
GPU's UUID in CUDA_VISIBLE_DEVICES remains equal to the one that nvidia-smi reports. Values from one text, such as a
host name from /etc/hostname or a token from a variable, are replaced in all texts.

A version can look like an address: 9.1.0.70 is a version of cuDNN, and could be a host. Four numbers count as an
address unless the recording shows that they are a version.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from tfdoctor.core.privacy import clusters, patterns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

MAX_LITERALS = 2000
"""The most names and secrets that are searched for in every text."""
MIN_FOLDER_CHARS = 4
"""The least characters of a folder's name that is replaced outside its path, too. "0A" is a number elsewhere."""
MAX_PASSES = 6
"""The most repetitions of learning and replacing."""


def is_placeholder(text: str) -> bool:
    """Return whether a text is a placeholder of a Redactor."""
    return patterns.PLACEHOLDER.fullmatch(text) is not None


class Redactor:
    """A replacer of names, addresses, tokens and identifiers. Equal values get the same placeholder."""

    def __init__(
        self, *, users: Iterable[str] = (), hosts: Iterable[str] = (), secrets: Iterable[str] = ()
    ) -> None:
        self.replaced: Counter[str] = Counter()
        """The number of replacements of each kind."""
        self._replaced_values: dict[str, set[str]] = {}
        """The distinct values that were replaced, by kind."""
        self._placeholders: dict[str, dict[str, str]] = {}
        """The placeholder of each value, by kind."""
        self._reserved: set[str] = set()
        """The placeholders that must not be assigned again."""
        self._versions: set[str] = set()
        """The versions that look like addresses."""
        self._kept: set[str] = set()
        """The texts that look like identifiers but stay unchanged."""
        self._pending: dict[tuple[str, str], None] = {}
        """(kind, value) of what was learned and has no placeholder yet, in order."""
        self._literals: tuple[re.Pattern[str], re.Pattern[str]] | None = None
        """The patterns of all learned secrets and of all learned names. None if something was learned since."""
        self._literal_kinds: dict[str, str] = {}
        """The kind of each value that is searched for literally."""
        self._cache: dict[str, str] = {}
        """The redacted form of each short text."""
        self._remaining_key_lines = 0
        """The number of further lines that may belong to the private key that has begun. 0 outside a key."""
        for name in users:
            self._learn_name("user", name)
        for name in hosts:
            self._learn_host(name)
        for value in secrets:
            self._learn_secret(value)

    # ------------------------------------------------------------ learning

    def learn_version(self, text: str) -> None:
        """Remember the versions in a text, so that they are not taken for addresses in any text. Paths have none."""
        for word in text.split():
            if "/" not in word:
                self._versions.update(patterns.IPV4.findall(word))

    def exempt(self, value: str) -> None:
        """Exempt a text from replacement that looks like an identifier but is not one."""
        self._kept.add(value)

    def learn(self, text: str, key: str = "") -> None:
        """Learn the secrets, names and identifiers in `text`. `key` is the name of its field, or ""."""
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
        for pattern in patterns.USER_PATTERNS:
            for match in pattern.finditer(text):
                self._learn_name("user", match[1])
        for match in patterns.HOME_PATH.finditer(text):
            for folder in patterns.list_home_folders(match[2]):
                if len(folder) >= MIN_FOLDER_CHARS:
                    self._learn_name("user", folder)
        for pattern in patterns.USERINFO_PATTERNS:
            for match in pattern.finditer(text):
                for part in match[2].split(":"):
                    self._learn_secret(part)
        for pattern in patterns.SECRET_ASSIGNMENTS:
            for match in pattern.finditer(text):
                if patterns.is_secret_value(match[3]):
                    self._learn_secret(match[3])
        self._learn_key_body(text)
        for pattern in (*patterns.HOST_PATTERNS, *patterns.MESSAGE_HOST_PATTERNS):
            for match in pattern.finditer(text):
                self._learn_host(match[1])
        for start, end in clusters.find_spans(text):
            self._learn_cluster(text[start:end])
        for pattern in patterns.NAME_PATTERNS:
            for match in pattern.finditer(text):
                for name in match.groups():
                    self._learn_name("name", name or "")
        for pattern in (patterns.PROCESS_TAG, patterns.PROCESS_ROW, patterns.PROCESS_FIELD):
            for match in pattern.finditer(text):
                self.learn_process(match[2])
        for match in patterns.UUID.finditer(text):  # so that an abbreviation gets the same placeholder
            self._pending.setdefault(("uuid", _normalize_uuid(match[1])))
        for match in patterns.HEX_ID.finditer(text):
            self._pending.setdefault(("id", match[0]))

    def _learn_key_body(self, text: str) -> None:
        """Learn the lines of a private key as secrets, even if each line is a separate text."""
        if not self._remaining_key_lines and "-----BEGIN" not in text:
            return
        for line in text.split("\n"):
            begin = patterns.PEM_BEGIN.search(line)
            if begin is not None:
                self._remaining_key_lines = patterns.MAX_PEM_LINES
                for word in patterns.PEM_WORD.findall(line, begin.end()):  # lines that were joined into one
                    self._learn_secret(word)
            elif self._remaining_key_lines:
                match = patterns.PEM_LINE.search(line)
                if match is not None and not patterns.PEM_END.search(line):
                    self._remaining_key_lines -= 1
                    self._learn_secret(match[0])
                elif len(line.split()) > 1 and not patterns.PEM_HEADER.search(line):
                    self._remaining_key_lines = 0

    def learn_process(self, command: str) -> None:
        """Learn a command line, unless it is short or its program is widely known."""
        name = command.strip()
        program = name.split(" ")[0].rpartition("/")[2]
        if (
            len(name) >= 5
            and not patterns.PROGRAM.fullmatch(program)
            and not patterns.NO_VALUE.fullmatch(name)
        ):
            self._learn_name("process", name)

    def _learn_keyed(self, text: str, key: str) -> None:
        """Learn a value according to the name of its field."""
        if patterns.SECRET_KEY.search(key):
            if patterns.is_secret_value(text):
                self._learn_secret(text)
        elif patterns.VERSION_KEY.search(key):
            self.learn_version(text)
        elif patterns.HOST_KEY.fullmatch(key):
            self._learn_host(text)
        elif patterns.USER_KEY.fullmatch(key):
            self._learn_name("user", text)
        elif key == "TF_CONFIG":
            self._learn_cluster(text)
        elif patterns.NAME_KEY.fullmatch(key):
            self._learn_name("name", text)
        elif patterns.SERIAL_KEY.search(key) and len(text) >= 6:
            self._pending.setdefault(("serial", text.strip()))

    def _learn_cluster(self, text: str) -> None:
        """Learn the hosts in a text that names the hosts of a cluster."""
        for host in clusters.iter_hosts(text):
            self._learn_host(host)

    def _learn_name(self, kind: str, name: str) -> None:
        """Learn a name of this kind, unless it does not identify anyone."""
        name = name.strip()
        if (
            name
            and name.lower() not in patterns.GENERIC_NAMES
            and not name.isdigit()
            and not is_placeholder(name)
        ):
            self._pending.setdefault((kind, name))

    def _learn_host(self, name: str) -> None:
        """Learn a host name, its first label and its domain, unless they are public."""
        name = name.strip().strip(".[]")
        lowered = name.lower()
        if (
            not patterns.HOST_NAME.fullmatch(name)
            or patterns.is_public(lowered)
            or patterns.IPV4.fullmatch(name)
        ):
            return
        self._learn_name("host", name)
        if name.count(".") and not name.replace(".", "").isdigit():
            first_label, _, domain = name.partition(".")
            self._learn_name("host", first_label)
            if domain.count(".") and not patterns.is_public(domain.lower()):
                self._learn_name("host", domain)

    def _learn_secret(self, value: str) -> None:
        """Learn a secret, also in its percent-encoded spelling."""
        value = value.strip().strip("\"'")
        if len(value) < 3 or value.lower() in patterns.GENERIC_NAMES or is_placeholder(value):
            return
        for spelling in dict.fromkeys((value, quote(value, safe=""), unquote(value))):
            self._pending.setdefault(("secret", spelling))

    # ------------------------------------------------------------ placeholders

    def _get_placeholder(self, kind: str, value: str) -> str:
        """Return the placeholder of `value`, which is always the same for equal values."""
        placeholders = self._placeholders.setdefault(kind, {})
        if value not in placeholders:
            number = len(placeholders) + 1
            while (placeholder := _make_placeholder(kind, number, value)) in self._reserved:
                number += 1
            self._reserved.add(placeholder)
            placeholders[value] = placeholder
        return placeholders[value]

    def _replace(self, kind: str, value: str, original: str | None = None) -> str:
        """Return the placeholder of a value, and count the replacement.

        If the value is a placeholder already, return `original` (its spelling in the text), or else the value itself.
        """
        if is_placeholder(value):
            return original or value
        return self._count(kind, value, self._get_placeholder(kind, value))

    def _count(self, kind: str, value: str, placeholder: str) -> str:
        """Count a replacement and return the placeholder."""
        self.replaced[kind] += 1
        self._replaced_values.setdefault(kind, set()).add(value)
        return placeholder

    def _assign_placeholders(self) -> tuple[re.Pattern[str], re.Pattern[str]]:
        """Assign placeholders in the order of learning, and return the patterns of all secrets and all names."""
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
        """Redact one text after learning from it."""
        return self.redact_texts([text])[text]

    def redact_texts(self, texts: Iterable[str]) -> dict[str, str]:
        """Redact several texts after learning from all of them, and map each text to its redacted form."""
        redacted = {text: text for text in texts}

        def learn() -> None:
            for text in redacted.values():
                self.learn(text)

        def apply() -> bool:
            previous = dict(redacted)
            redacted.update((text, self(latest)) for text, latest in previous.items())
            return redacted != previous

        self.repeat_until_stable(learn, apply)
        return redacted

    def __call__(self, text: str) -> str:
        """Replace everything in `text` that was learned, or that looks like a secret by itself."""
        if text in self._cache:
            return self._cache[text]
        result = self._apply(text)
        if len(text) < 1000 and len(self._cache) < 100_000:
            self._cache[text] = result
        return result

    def _apply(self, text: str) -> str:
        """Redact a text with all patterns, without the cache."""
        (secrets, names), replace = self._assign_placeholders(), self._replace
        text = secrets.sub(lambda m: replace("secret", m[0]), text)
        for pattern in (*patterns.TOKEN_PATTERNS, patterns.RANDOM_WORD):
            text = pattern.sub(lambda m: m[0] if m[0] in self._kept else replace("secret", m[0]), text)
        for pattern in patterns.SECRET_ASSIGNMENTS:
            text = pattern.sub(self._replace_assigned, text)
        for pattern in patterns.USERINFO_PATTERNS:
            text = pattern.sub(self._replace_userinfo, text)
        text = patterns.SERIAL.sub(self._replace_serial, text)
        text = patterns.SERIAL_TAG.sub(self._replace_serial, text)
        text = patterns.PROCESS_TAG.sub(self._replace_process, text)
        text = patterns.PROCESS_ROW.sub(self._replace_process_row, text)
        text = patterns.PROCESS_FIELD.sub(self._replace_process, text)
        text = patterns.EMAIL.sub(self._replace_email, text)
        text = patterns.UUID.sub(
            lambda m: m[0] if m[0] in self._kept else replace("uuid", _normalize_uuid(m[1]), m[1]), text
        )
        text = patterns.SHORT_UUID.sub(self._replace_short_uuid, text)
        text = patterns.MAC.sub(lambda m: replace("mac", _normalize_mac(m[0])), text)
        text = patterns.CISCO_MAC.sub(lambda m: replace("mac", _normalize_mac(m[0])), text)
        text = patterns.HEX_ID.sub(lambda m: m[0] if m[0] in self._kept else replace("id", m[0]), text)
        text = patterns.SHORT_ID.sub(self._replace_short_id, text)
        text = patterns.ENCODED_IPV6.sub(self._replace_encoded_ipv6, text)
        text = patterns.IPV6_TARGET.sub(self._replace_ipv6, text)
        text = patterns.IPV6.sub(self._replace_ipv6, text)
        text = patterns.IPV4.sub(self._replace_ipv4, text)
        text = patterns.LONG_SERIAL.sub(lambda m: replace("serial", m[0]), text)
        text = patterns.PHONE.sub(lambda m: replace("serial", m[0]), text)
        text = names.sub(lambda m: self._replace_literal(m[0]), text)
        text = self._replace_clusters(text)
        for pattern in patterns.USER_PATTERNS:
            text = pattern.sub(self._replace_user, text)
        text = patterns.HOME_PATH.sub(self._replace_home, text)
        for pattern in (*patterns.MESSAGE_HOST_PATTERNS, patterns.BEFORE_DOMAIN):
            text = pattern.sub(self._replace_host, text)
        return text

    def _replace_literal(self, matched: str) -> str:
        kind = self._literal_kinds.get(matched)
        if kind is None:  # learned in another case: Alice, alice
            lowered = matched.lower()
            known_name = next(name for name in self._literal_kinds if name.lower() == lowered)
            matched, kind = known_name, self._literal_kinds[known_name]
        return self._replace(kind, matched)

    def _replace_user(self, match: re.Match[str]) -> str:
        name = match[1]
        if name.lower() in patterns.GENERIC_NAMES or is_placeholder(name):
            return match[0]
        return match[0][: match.start(1) - match.start()] + self._replace("user", name)

    def _replace_home(self, match: re.Match[str]) -> str:
        """Replace the folders below a folder of homes that may name a user or a group."""
        folders = match[2].split("/")
        for index, folder in enumerate(patterns.list_home_folders(match[2])):
            if folder.lower() not in patterns.GENERIC_NAMES and not is_placeholder(folder):
                folders[index] = self._replace("user", folder)
        return match[1] + "/".join(folders)

    def _replace_host(self, match: re.Match[str]) -> str:
        name = match[1]
        if patterns.is_public(name.lower()) or patterns.IPV4.fullmatch(name) or is_placeholder(name):
            return match[0]
        start = match.start(1) - match.start()
        return f"{match[0][:start]}{self._replace('host', name)}{match[0][start + len(name) :]}"

    def _replace_clusters(self, text: str) -> str:
        """Replace the hosts in the parts of a text that name the hosts of a cluster."""
        parts, position = [], 0
        for start, end in clusters.find_spans(text):
            parts += [text[position:start], self._replace_cluster(text[start:end])]
            position = end
        return "".join((*parts, text[position:])) if parts else text

    def _replace_cluster(self, text: str) -> str:
        """Replace every word that may be a host in the value of TF_CONFIG or of a similar variable."""
        return self._replace_words("host", text, clusters.iter_words(text))

    def _replace_words(self, kind: str, text: str, matches: Iterable[re.Match[str]]) -> str:
        """Replace these words of a text, except placeholders and names that identify nobody."""
        parts, position = [], 0
        for match in matches:
            word = match[0]
            if not is_placeholder(word) and word.lower() not in patterns.GENERIC_NAMES:
                parts += [text[position : match.start()], self._replace(kind, word)]
                position = match.end()
        return "".join((*parts, text[position:]))

    def learn_prefix(self, prefix: str) -> None:
        """Learn the words before a log message that are surely names, so that they are replaced everywhere."""
        self._literals = None
        self._cache.clear()
        for match in clusters.iter_prefix_words(prefix):
            if any(char.isdigit() for char in match[0]):
                self._learn_host(match[0])

    def redact_prefix(self, prefix: str) -> str:
        """Replace every word of the text before a log message, unless it is a date, a number or a known word."""
        return self._replace_words("name", prefix, clusters.iter_prefix_words(prefix))

    def _replace_assigned(self, match: re.Match[str]) -> str:
        if not patterns.is_secret_value(match[3]) or is_placeholder(match[3]):
            return match[0]
        return f"{match[1]}{match[2]}{self._replace('secret', match[3])}"

    def _replace_userinfo(self, match: re.Match[str]) -> str:
        parts = [
            part
            if not part or part.lower() in patterns.GENERIC_NAMES or is_placeholder(part)
            else self._replace("secret", part)
            for part in match[2].split(":")
        ]
        return f"{match[1]}{':'.join(parts)}{match[3]}"

    def _replace_serial(self, match: re.Match[str]) -> str:
        value = match[2].strip()
        if patterns.NO_VALUE.fullmatch(value) or is_placeholder(value):
            return match[0]
        return f"{match[1]}{match[2].replace(value, self._replace('serial', value))}"

    def _replace_process(self, match: re.Match[str]) -> str:
        return f"{match[1]}{self.redact_program(match[2])}"

    def _replace_process_row(self, match: re.Match[str]) -> str:
        width = len(match[2])
        return f"{match[1]}{self.redact_program(match[2])[:width].ljust(width)}"

    def redact_program(self, command: str) -> str:
        """Reduce a command to its program's name if that is widely known, else replace it by a placeholder.

        An empty command or a placeholder is returned unchanged.
        """
        command = command.strip()
        words = command.split()
        name = words[0].replace("\\", "/").rpartition("/")[2] if words else ""
        if not name or is_placeholder(command) or patterns.NO_VALUE.fullmatch(command):
            return command
        if patterns.PROGRAM.fullmatch(name):
            return name if name == command else self._count("process", command, name)
        return self._replace("process", command)

    def redact_argument(self, number: int, word: str) -> str:
        """Redact one argument of a command line. `number` is its index, and 0 is the program itself.

        Options become "--option", and other arguments a placeholder. A few harmless ones, such as "-m", stay.
        """
        if number == 0:
            return self.redact_program(word)
        if not word or word in ("-m", "-c", "-", "-u", "-B", "--") or is_placeholder(word):
            return word
        if "ipykernel" in word:
            return "ipykernel_launcher"
        if word.startswith("-"):
            return "--option"
        return self._replace("process", word.rpartition("/")[2] or word)

    def _replace_email(self, match: re.Match[str]) -> str:
        is_not_user = match[1].lower() == "git" or is_placeholder(match[1])
        if is_not_user or patterns.NOT_A_HOST.match(match[2]):
            return match[0]
        return self._replace("email", match[0])

    def _replace_short_uuid(self, match: re.Match[str]) -> str:
        """Replace an abbreviated UUID, as in CUDA_VISIBLE_DEVICES, by the beginning of the same placeholder."""
        digits = match[2].lower()
        if patterns.SHORT_PLACEHOLDER.fullmatch(digits):
            return match[0]
        matches = {u: name for u, name in self._placeholders.get("uuid", {}).items() if u.startswith(digits)}
        if not matches:
            if len(digits) < 8:
                return match[0]
            matches = {digits: self._get_placeholder("uuid", digits)}
        # the placeholders of several matches all begin with "0000000", so the abbreviation stays ambiguous
        uuid, name = next(iter(matches.items()))
        return match[1] + self._count("uuid", uuid, name[:8] if len(matches) == 1 else "0000000")

    def _replace_short_id(self, match: re.Match[str]) -> str:
        """Replace the first twelve digits of a container ID."""
        for value, placeholder in self._placeholders.get("id", {}).items():
            if len(value) == 64 and value.startswith(match[0]):
                return self._count("id", value, placeholder[:12])
        return match[0] if match[0].startswith("0000") else self._replace("id", match[0])

    def _replace_ipv4(self, match: re.Match[str]) -> str:
        value = match[0]
        if value in self._versions or not patterns.is_address(value):
            return value
        return self._replace("address", value)

    def _replace_ipv6(self, match: re.Match[str]) -> str:
        value = patterns.normalize_ipv6(match[0])
        return match[0] if value is None else self._replace("address", value)

    def _replace_encoded_ipv6(self, match: re.Match[str]) -> str:
        value = patterns.normalize_ipv6(match[1])
        return match[0] if value is None else f"%5B{self._replace('address', value)}%5D"

    # ------------------------------------------------------------ JSON

    def learn_json(self, value: Any, key: str = "") -> None:
        """Learn every text in a JSON value, each with its key."""
        if isinstance(value, str):
            self.learn(value, key)
        elif isinstance(value, dict):
            if "ServerVersion" in value and isinstance(value.get("Name"), str):  # `docker info`
                self._learn_host(value["Name"])
            for name, inner in value.items():
                self.learn(str(name))
                self.learn_json(inner, str(name))
        elif isinstance(value, list):
            for inner in value:
                self.learn_json(inner, key)

    def json(self, value: Any, key: str = "") -> Any:
        """Return a JSON value with all its texts and keys redacted."""
        if isinstance(value, str):
            return self.redact_keyed(key, value)
        if isinstance(value, dict):
            return {self(str(name)): self.json(inner, str(name)) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.json(inner, key) for inner in value]
        return value

    def redact_keyed(self, key: str, value: str) -> str:
        """Redact the value of `key`, or replace all of it if the key demands it.

        That is the key of a secret or serial number, or of a variable whose values have another form.
        """
        if patterns.SECRET_KEY.search(key) and patterns.is_secret_value(value) and not is_placeholder(value):
            self._assign_placeholders()
            return self._replace("secret", value)
        if key == "TF_CONFIG" and not is_placeholder(value):
            if not _is_json(value):  # hosts in it could have any spelling
                return self._replace("secret", value)
            return self._replace_cluster(self(json.dumps(json.loads(value), ensure_ascii=False)))
        form = patterns.VARIABLE_FORMS.get(key)
        if form is not None and value and not form.fullmatch(value.strip()) and not is_placeholder(value):
            return self._replace("secret", value)
        if patterns.SERIAL_KEY.search(key) and not patterns.NO_VALUE.fullmatch(value):
            return self._replace("serial", value.strip())
        return self(value)

    def repeat_until_stable(self, learn: Callable[[], None], apply: Callable[[], bool]) -> None:
        """Call `learn` and `apply` until `apply` returns False, because replaced text may reveal more."""
        for _ in range(MAX_PASSES):
            learn()
            if not apply():
                return

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """Return the numbers of distinct values and of replacements by kind: {"distinct": …, "replaced": …}."""
        return {
            kind: {"distinct": len(used), "replaced": self.replaced[kind]}
            for kind, used in sorted(self._replaced_values.items())
        }


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _normalize_mac(text: str) -> str:
    """Return a MAC address in the usual notation, so that equal ones get the same placeholder."""
    digits = re.sub(r"[^0-9a-f]", "", text.lower())
    return ":".join(digits[index : index + 2] for index in range(0, len(digits), 2))


def _normalize_uuid(text: str) -> str:
    return text.lower().replace("_", "-")


def _make_placeholder(kind: str, number: int, value: str) -> str:
    """Return the `number`th placeholder of a kind.

    A UUID, an ID and a script keep the format of the value.
    """
    if kind == "uuid":
        return f"{number:08x}-0000-0000-0000-000000000000"
    if kind == "id":
        return f"{number:012x}".ljust(len(value), "0")
    if kind == "user":
        return "user" if number == 1 else f"user-{number}"
    suffix = patterns.SCRIPT_SUFFIX.search(value) if kind == "process" else None
    return f"{patterns.PLACEHOLDER_WORDS.get(kind, kind)}-{number}{suffix[0] if suffix is not None else ''}"


def _strip_secrets(text: str) -> str:
    """Return the text without tokens, assigned secrets and the hosts of URLs.

    Otherwise a word in one of them ("TOKEN=version 1.0.0.0") would make an address count as a version.
    """
    text = patterns.URL_HOST.sub("://…", text)
    for pattern in patterns.SECRET_ASSIGNMENTS:
        text = pattern.sub(
            lambda m: m[0].replace(m[3], "…") if patterns.is_secret_value(m[3]) else m[0], text
        )
    for pattern in patterns.TOKEN_PATTERNS:
        text = pattern.sub("…", text)
    return patterns.SERIAL.sub(lambda m: m[0].replace(m[2], "…"), text)
