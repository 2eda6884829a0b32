"""Who set an environment variable, and how it goes again where it was set."""

from __future__ import annotations

import ast
import posixpath
import re
from typing import TYPE_CHECKING

from tfdoctor import advice
from tfdoctor.causes.steps import Drop, TakeOut, Unset
from tfdoctor.facts import MODULE_PATH
from tfdoctor.findings import Evidence, Remedy
from tfdoctor.text import entries_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.facts import Origin
    from tfdoctor.predict import Led
    from tfdoctor.rules.base import RuleContext

ORIGIN_LABELS = {
    "start": "something that this Python runs when it starts (sitecustomize.py, usercustomize.py, a .pth file)",
    "wrapper": "the script that starts this Python",
    "shell": "the shell that tfdoctor was started from, or something that this has read",
}
CONTAINER = "the container (its image, or how it was started) or a shell in it"


def origin_label(context: RuleContext, name: str, entry: str | None = None) -> str:
    """Return who set the variable or added the entry, for a sentence; empty if it is not known."""
    origin = context.facts.environment.origin(name, entry)
    if origin is None:
        return ""
    if origin.path:
        return f"{origin.path}{f', line {origin.line}' if origin.line is not None else ''}"
    if origin.by == "shell" and context.facts.environment.scheduler is not None:
        return f"{context.facts.environment.scheduler} or the shell"
    if origin.by == "shell" and context.facts.machine.container:
        return CONTAINER
    return ORIGIN_LABELS.get(origin.by, "")


def origin_sentence(context: RuleContext, name: str, entry: str | None = None) -> str:
    """Return the origin as a sentence that follows another one; empty if it is not known."""
    known = origin_label(context, name, entry)
    if not known:
        return ""
    return f" {entry} is put there by {known}." if entry is not None else f" It is set by {known}."


def origin_evidence(context: RuleContext, name: str, entry: str | None = None) -> list[Evidence]:
    """Return the line that sets the variable; empty if no file is known."""
    origin = context.facts.environment.origin(name, entry)
    if origin is None or not origin.path:
        return []
    return [Evidence(origin.path, " ".join(origin.text.split()), origin.line)]


def unset_remedy(context: RuleContext, name: str, text: str, *, steps: bool = True) -> Remedy:
    """Return the remedy that unsets the variable.

    Where it is set if that is this environment's own, else in the shell. If `steps` is false, only a
    person may decide it.
    """
    origin = context.facts.environment.origin(name)
    again = advice.check_again(context.target)
    if origin is not None and origin.by in ("start", "wrapper"):
        return _startup_variable_remedy(context, origin, text, steps=steps)
    commands = (f"unset {name}", *permanent_commands(context, name), again)
    return Remedy(
        f"{text}{_permanent_change_sentence(context, origin)}",
        commands,
        steps=(Unset(name),) if steps else (),
    )


def remove_entries_remedy(
    context: RuleContext,
    name: str,
    entries: Sequence[str],
    kept: Sequence[str],
    text: str,
    *,
    separator: str = ":",
) -> Remedy:
    """Return the remedy that removes entries from a list, of which `kept` stay."""
    line = f"export {name}={advice.quote(separator.join(kept))}" if kept else f"unset {name}"
    origins = [context.facts.environment.origin(name, entry) for entry in entries]
    if any(origin is not None and origin.by == "wrapper" for origin in origins):
        places = dict.fromkeys(origin_label(context, name, entry) for entry in entries)
        return Remedy(f"{text} It is {' and '.join(places)} that puts it there: change it there.")
    last = [command for entry in entries for command in permanent_commands(context, name, entry)]
    where = "".join(dict.fromkeys(_permanent_change_sentence(context, origin) for origin in origins))
    return Remedy(
        f"{text}{where}",
        (line, *dict.fromkeys(last), advice.check_again(context.target)),
        steps=(Drop(name, tuple(dict.fromkeys(entries))),),
    )


def path_source_phrase(context: RuleContext, led: Led) -> str:
    """Return half a sentence that names what puts the folder first on the path."""
    return f"{led.by if led.by != MODULE_PATH else origin_label(context, led.by, led.entry)} puts"


def remove_from_python_path(context: RuleContext, led: Led) -> Remedy:
    """Return the remedy that removes a folder from what puts it first on Python's path."""
    entry = led.entry
    if led.by == MODULE_PATH:
        return _startup_path_remedy(context, entry)
    entries = entries_of("PYTHONPATH", context.facts.environment.variables.get("PYTHONPATH", ""))
    gone = [one for one in entries if posixpath.normpath(one) == posixpath.normpath(entry)]
    kept = [one for one in entries if one not in gone]
    return remove_entries_remedy(
        context, "PYTHONPATH", gone, kept, f"Remove {entry.rstrip('/')} from PYTHONPATH."
    )


def _permanent_change_sentence(context: RuleContext, origin: Origin | None) -> str:
    """Return where to change the variable permanently."""
    if origin is None or not origin.path or origin.by == "kernel":  # `advice.kernel` says how that is changed
        return ""
    place = origin_label(context, origin.name, origin.entry)
    if _is_own_file(context, origin.path):
        return f" {place} does it, whenever the environment is activated."
    return f" To make this permanent, remove it from {place}, which is not this environment's own."


def permanent_commands(context: RuleContext, name: str, entry: str | None = None) -> list[str]:
    """Return the command that removes the line from the environment's own script.

    Empty if the line does more.
    """
    origin = context.facts.environment.origin(name, entry)
    if (
        origin is None
        or origin.by != "activation"
        or origin.line is None
        or not _is_own_file(context, origin.path)
    ):
        return []
    if origin.path.endswith("/conda-meta/state"):
        prefix = context.python.prefix if context.python is not None else ""
        return [f"conda env config vars unset --prefix {advice.quote(prefix)} {name}"]
    rest = re.sub(rf"^\s*(?:export\s+)?{re.escape(name)}=", "", origin.text, count=1)
    if rest == origin.text:
        return []
    if entry is not None:
        rest = rest.replace(entry, "", 1)
        rest = re.sub(rf"\$\{{?{re.escape(name)}\b(?::?[+-][^}}]*\}})?\}}?|[\"':/\s]", "", rest)
        if rest:
            return []
    elif not re.fullmatch(r"""(?:"[^"$`\\]*"|'[^']*'|[^\s;&|"'$`\\()]*)\s*(?:#.*)?""", rest):
        return []
    return [_edit(origin, ": # ")]


def _edit(origin: Origin, mark: str) -> str:
    """Return the command that comments out one line if it is still the line that was seen."""
    begin = r"^\([[:space:]]*\)" if mark.startswith("pass") else "^"
    new = rf"\1{mark}" if mark.startswith("pass") else mark
    seen = origin.name if origin.name in origin.text else _plain_word(origin.text)
    return f"sed -i '{origin.line}{{/{seen}/s/{begin}/{new}/}}' {advice.quote(origin.path)}"


def _plain_word(line: str) -> str:
    """Return the last word of a line that has no special meaning in a sed pattern.

    Empty, which matches every line, if the line has no word.
    """
    words: list[str] = re.findall(r"[A-Za-z0-9_]+", line)
    return words[-1] if words else ""


# ---------------------------------------------------------------- what Python's own start sets


def _startup_variable_remedy(context: RuleContext, origin: Origin, text: str, *, steps: bool) -> Remedy:
    again = advice.check_again(context.target)
    if not origin.path:
        sites = " ".join(advice.quote(folder) for folder in _sites(context))
        look = f"grep -rn --include='*.pth' --include='*customize.py' {origin.name} {sites}"
        return Remedy(
            f"{text} `unset` is of no use: {ORIGIN_LABELS[origin.by]} sets it, whatever the shell has. Look where.",
            (look,) if sites and origin.by == "start" else (),
        )
    place = origin_label(context, origin.name)
    if not _is_own_file(context, origin.path):
        return Remedy(
            f"{text} `unset` is of no use: {place} sets it whenever this Python starts. That file is not this "
            "environment's own: remove the line there, or ask whoever looks after it."
        )
    if origin.by == "wrapper":
        return Remedy(f"{text} `unset` is of no use: {place} sets it before Python starts. Change it there.")
    step = _step(origin)
    if step is None:
        return Remedy(
            f"{text} `unset` is of no use: {place} sets it whenever this Python starts, among other things. Change it "
            "there."
        )
    mark = "# " if origin.path.endswith(".pth") else "pass  # "
    return Remedy(
        f"Remove line {origin.line} from {origin.path}: it sets {origin.name} whenever this Python starts, whatever "
        "the shell has.",
        (_edit(origin, mark), again),
        steps=(step,) if steps else (),
    )


def _startup_path_remedy(context: RuleContext, folder: str) -> Remedy:
    """Remove the line that puts a folder on Python's path."""
    origin = context.facts.environment.origin(MODULE_PATH, folder)
    first = f"it puts {folder} before this Python's own packages whenever it starts."
    if origin is None or not origin.path:
        sites = " ".join(advice.quote(one) for one in _sites(context) if one != folder)
        look = f"grep -rn --include='*.pth' --include='*customize.py' sys.path {sites}"
        return Remedy(
            f"Something that this Python runs when it starts (a .pth file, sitecustomize.py) has a line for {folder}, "
            "which is then before its own packages. Remove that line.",
            (look,) if sites else (),
        )
    step = _step(origin)
    if not _is_own_file(context, origin.path) or step is None:
        return Remedy(f"Remove {folder} from {origin_label(context, MODULE_PATH, folder)}: {first}")
    mark = "# " if origin.path.endswith(".pth") else "pass  # "
    return Remedy(
        f"Remove line {origin.line} from {origin.path}: {first}",
        (_edit(origin, mark), advice.check_again(context.target)),
        steps=(step,),
    )


def _step(origin: Origin) -> TakeOut | None:
    """Return the step that removes the line.

    None if the line does more than set this variable or put this folder on the path.
    """
    alone = _adds_alone if origin.name == MODULE_PATH else _sets_alone
    if origin.line is None or not alone(origin) or not origin.path.isprintable():
        return None
    return TakeOut(origin.path, origin.line, origin.text.rstrip())


def _sets_alone(origin: Origin) -> bool:
    """Return whether a Python line only imports os and sets (or removes) this variable there."""
    body = _body(origin.text)
    return bool(body) and all(_imports(one) or _is_harmless(one, origin.name) for one in body)


def _adds_alone(origin: Origin) -> bool:
    """Return whether a line only puts this one folder on Python's path."""
    if origin.path.endswith(".pth") and not origin.text.startswith(("import ", "import\t")):
        return True
    doing = [one for one in _body(origin.text) if not _imports(one)]
    if len(doing) != 1 or not isinstance(doing[0], ast.Expr) or not isinstance(doing[0].value, ast.Call):
        return False
    call = doing[0].value
    names = (
        "sys.path.insert",
        "sys.path.append",
        "path.insert",
        "path.append",
        "site.addsitedir",
        "addsitedir",
    )
    return (
        ast.unparse(call.func) in names
        and not call.keywords
        and all(isinstance(one, ast.Constant) for one in call.args)
        and str(getattr(call.args[-1], "value", "")).rstrip("/") == (origin.entry or "").rstrip("/")
    )


def _body(line: str) -> list[ast.stmt]:
    """Parse the statements of a Python line; empty if the line is not complete."""
    try:
        return ast.parse(line.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _imports(statement: ast.stmt) -> bool:
    """Return whether the statement only imports modules without an effect of their own."""
    if isinstance(statement, ast.Import):
        return all(alias.name in ("os", "sys", "site") for alias in statement.names)
    return isinstance(statement, ast.ImportFrom) and statement.module in ("os", "sys", "site")


def _is_harmless(statement: ast.stmt, name: str) -> bool:
    if isinstance(statement, ast.Assign):
        return all(_is_entry(target, name) for target in statement.targets) and _is_plain(statement.value)
    if isinstance(statement, ast.Delete):
        return all(_is_entry(target, name) for target in statement.targets)
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    call = statement.value
    function = ast.unparse(call.func)
    if not re.fullmatch(r"(os\.)?(environ\.(setdefault|pop|update|__setitem__)|putenv|unsetenv)", function):
        return False
    named = [word.arg for word in call.keywords]
    first = call.args[0] if call.args else None
    if function.endswith("update"):
        return not call.args and named == [name] and all(_is_plain(word.value) for word in call.keywords)
    return (
        not named
        and isinstance(first, ast.Constant)
        and first.value == name
        and all(map(_is_plain, call.args))
    )


def _is_entry(target: ast.expr, name: str) -> bool:
    return (
        isinstance(target, ast.Subscript)
        and ast.unparse(target.value) in ("os.environ", "environ")
        and isinstance(target.slice, ast.Constant)
        and target.slice.value == name
    )


def _is_plain(value: ast.expr) -> bool:
    """Return whether evaluating the expression has no side effect."""
    return not any(
        isinstance(node, (ast.Call, ast.NamedExpr, ast.Await, ast.Yield)) for node in ast.walk(value)
    )


def _sites(context: RuleContext) -> tuple[str, ...]:
    python = context.python
    if python is None:
        return ()
    return tuple(path for path in python.sys_path if path.endswith(("site-packages", "dist-packages")))


def _is_own_file(context: RuleContext, path: str) -> bool:
    """Return whether a file lies in the examined environment.

    The system's Python is nobody's environment. In an image every file counts as its own.
    """
    python = context.python
    if context.target.image is not None:
        return True
    if python is None or not (python.virtual or python.conda_prefix):
        return False
    return posixpath.normpath(path).startswith(f"{python.prefix.rstrip('/')}/")
