"""Helpers that show where an environment variable is set, and make the remedies to change it there."""

from __future__ import annotations

import ast
import posixpath
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from tfdoctor.core.causes.steps import CommentOutLine, RemoveEntries, SetVariable, UnsetVariable
from tfdoctor.core.facts import MODULE_PATH
from tfdoctor.core.findings import Evidence, Remedy
from tfdoctor.core.text import split_path_list
from tfdoctor.remedies.pip import format_check_command, quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdoctor.core.facts import Origin
    from tfdoctor.prediction.shadowing import LeadingFolder
    from tfdoctor.rules.base import RuleContext

ORIGIN_LABELS = {
    "start": "something that this Python runs when it starts (sitecustomize.py, usercustomize.py, a .pth file)",
    "wrapper": "the script that starts this Python",
    "shell": "the shell that tfdoctor was started from, or something that this has read",
}
"""Labels of the origins without a file, by the value of Origin.by."""
CONTAINER_LABEL = "the container (its image, or how it was started) or a shell in it"
"""The label of the origin of a variable that is set when a container starts."""


def format_origin(context: RuleContext, name: str, entry: str | None = None) -> str:
    """Return a phrase for the origin of the variable or of its entry; "" if the origin is not known."""
    origin = context.facts.environment.find_origin(name, entry)
    if origin is None:
        return ""
    if origin.path:
        return f"{origin.path}{f', line {origin.line}' if origin.line is not None else ''}"
    if origin.by == "shell" and context.facts.environment.scheduler is not None:
        return f"{context.facts.environment.scheduler} or the shell"
    if origin.by == "shell" and context.facts.machine.container:
        return CONTAINER_LABEL
    return ORIGIN_LABELS.get(origin.by, "")


def format_origin_sentence(context: RuleContext, name: str, entry: str | None = None) -> str:
    """Return a sentence about the origin, with a leading space; "" if it is not known."""
    label = format_origin(context, name, entry)
    if not label:
        return ""
    return f" {entry} is put there by {label}." if entry is not None else f" It is set by {label}."


def list_origin_evidence(context: RuleContext, name: str, entry: str | None = None) -> list[Evidence]:
    """Return the line that sets the variable as evidence; an empty list if no file is known."""
    origin = context.facts.environment.find_origin(name, entry)
    if origin is None or not origin.path:
        return []
    return [Evidence(origin.path, " ".join(origin.text.split()), origin.line)]


def make_unset_remedy(context: RuleContext, name: str, text: str, *, with_steps: bool = True) -> Remedy:
    """Return the remedy to unset the variable.

    If a file sets the variable when Python starts, the remedy changes that file, otherwise the shell. Without
    `steps`, `tfdoctor fix` does not apply the remedy, because the user has to decide.
    """
    origin = context.facts.environment.find_origin(name)
    check_command = format_check_command(context.target)
    if origin is not None and origin.by in ("start", "wrapper"):
        return _build_startup_variable_remedy(context, origin, text, with_steps=with_steps)
    commands = (f"unset {name}", *list_permanent_removal_commands(context, name), check_command)
    return Remedy(
        f"{text}{_format_permanent_change(context, origin)}",
        commands,
        steps=(UnsetVariable(name),) if with_steps else (),
    )


def make_entries_removal_remedy(
    context: RuleContext,
    name: str,
    entries: Sequence[str],
    remaining: Sequence[str],
    text: str,
    *,
    separator: str = ":",
) -> Remedy:
    """Return the remedy to remove `entries` from a list variable, which leaves the entries `remaining`."""
    shell_command = f"export {name}={quote(separator.join(remaining))}" if remaining else f"unset {name}"
    origins = [context.facts.environment.find_origin(name, entry) for entry in entries]
    if any(origin is not None and origin.by == "wrapper" for origin in origins):
        labels = dict.fromkeys(format_origin(context, name, entry) for entry in entries)
        return Remedy(f"{text} It is {' and '.join(labels)} that puts it there: change it there.")
    permanent_commands = [
        command for entry in entries for command in list_permanent_removal_commands(context, name, entry)
    ]
    notes = "".join(dict.fromkeys(_format_permanent_change(context, origin) for origin in origins))
    return Remedy(
        f"{text}{notes}",
        (shell_command, *dict.fromkeys(permanent_commands), format_check_command(context.target)),
        steps=(RemoveEntries(name, tuple(dict.fromkeys(entries))),),
    )


def make_keras_backend_remedies(context: RuleContext) -> list[Remedy]:
    """Return the remedies for a backend in keras.json that is not there: override it, or change the file."""
    environment = context.facts.environment
    backend = re.escape(environment.keras_backend).replace("/", r"\/")
    check_command = format_check_command(context.target)
    return [
        Remedy(
            "Have Keras compute with TensorFlow in this environment; the file stays for the others.",
            ("export KERAS_BACKEND=tensorflow", check_command),
            steps=(SetVariable("KERAS_BACKEND", "tensorflow"),),
        ),
        Remedy(
            f"Or change {environment.keras_file}, for all environments.",
            (
                f"""sed -i 's/\\("backend": *\\)"{backend}"/\\1"tensorflow"/' {quote(environment.keras_file)}""",
                check_command,
            ),
        ),
    ]


def format_path_setter(context: RuleContext, leader: LeadingFolder) -> str:
    """Return the beginning ("PYTHONPATH puts") of a sentence about a folder that comes first on the path."""
    return f"{leader.origin if leader.origin != MODULE_PATH else format_origin(context, leader.origin, leader.spelling)} puts"


def make_python_path_removal_remedy(context: RuleContext, leader: LeadingFolder) -> Remedy:
    """Return the remedy to remove a folder from PYTHONPATH, or from the startup file that adds it."""
    entry = leader.spelling
    if leader.origin == MODULE_PATH:
        return _build_startup_path_remedy(context, entry)
    entries = split_path_list("PYTHONPATH", context.facts.environment.variables.get("PYTHONPATH", ""))
    removed_entries = [item for item in entries if posixpath.normpath(item) == posixpath.normpath(entry)]
    remaining = [item for item in entries if item not in removed_entries]
    return make_entries_removal_remedy(
        context, "PYTHONPATH", removed_entries, remaining, f"Remove {entry.rstrip('/')} from PYTHONPATH."
    )


def _format_permanent_change(context: RuleContext, origin: Origin | None) -> str:
    """Return a sentence about the file in which to change the variable permanently; "" if none is known."""
    # `remedies.kernel` covers kernel specifications
    if origin is None or not origin.path or origin.by == "kernel":
        return ""
    label = format_origin(context, origin.name, origin.entry)
    if origin.by == "profile":
        return f" {label} does it in each new shell."
    if origin.by == "uv":
        return f" {label} does it: `uv run` reads that file, because UV_ENV_FILE names it."
    if _is_environment_file(context, origin.path):
        return f" {label} does it, whenever the environment is activated."
    return f" To make this permanent, remove it from {label}, which is not this environment's own."


def list_permanent_removal_commands(context: RuleContext, name: str, entry: str | None = None) -> list[str]:
    """Return the command that removes the setting from the activation script, conda's variables or the user's profile.

    Return an empty list if the origin is a different file, or if the line does more than set this variable.
    """
    origin = context.facts.environment.find_origin(name, entry)
    if origin is None or origin.line is None:
        return []
    if origin.by not in ("profile", "uv") and not (
        origin.by == "activation" and _is_environment_file(context, origin.path)
    ):
        return []
    if origin.path.endswith("/conda-meta/state"):
        prefix = context.python.prefix if context.python is not None else ""
        return [f"conda env config vars unset --prefix {quote(prefix)} {name}"]
    value = re.sub(rf"^\s*(?:export\s+)?{re.escape(name)}=", "", origin.text, count=1)
    if value == origin.text:
        return []
    if entry is not None:
        # besides the entry, the line may only contain the variable's old value and separators
        value = value.replace(entry, "", 1)
        value = re.sub(rf"\$\{{?{re.escape(name)}\b(?::?[+-][^}}]*\}})?\}}?|[\"':/\s]", "", value)
        if value:
            return []
    # without an entry, the line must set a plain value: no substitution, no second command
    elif not re.fullmatch(r"""(?:"[^"$`\\]*"|'[^']*'|[^\s;&|"'$`\\()]*)\s*(?:#.*)?""", value):
        return []
    return [_make_comment_out_command(origin, "# " if origin.by == "uv" else ": # ")]


def _make_comment_out_command(origin: Origin, comment_mark: str) -> str:
    """Return a sed command that comments out the line if it still contains the expected text.

    `comment_mark` is inserted at the beginning of the line, or after the indentation if it begins with "pass".
    """
    start = r"^\([[:space:]]*\)" if comment_mark.startswith("pass") else "^"
    replacement = rf"\1{comment_mark}" if comment_mark.startswith("pass") else comment_mark
    expected_text = origin.name if origin.name in origin.text else _find_last_plain_word(origin.text)
    return f"sed -i '{origin.line}{{/{expected_text}/s/{start}/{replacement}/}}' {quote(origin.path)}"


def _find_last_plain_word(line: str) -> str:
    """Return the last word of a line, as a sed pattern without special characters.

    Return "" if there is no word: this pattern matches every line.
    """
    words: list[str] = re.findall(r"[A-Za-z0-9_]+", line)
    return words[-1] if words else ""


# ---------------------------------------------------------------- startup files


def _build_startup_variable_remedy(
    context: RuleContext, origin: Origin, text: str, *, with_steps: bool
) -> Remedy:
    """Return the remedy for a variable that is set when this Python starts."""
    check_command = format_check_command(context.target)
    if not origin.path:
        quoted_folders = " ".join(quote(folder) for folder in _list_site_folders(context))
        grep_command = f"grep -rn --include='*.pth' --include='*customize.py' {origin.name} {quoted_folders}"
        return Remedy(
            f"{text} `unset` is of no use: {ORIGIN_LABELS[origin.by]} sets it, whatever the shell has. Look where.",
            (grep_command,) if quoted_folders and origin.by == "start" else (),
        )
    label = format_origin(context, origin.name)
    python_path = split_path_list("PYTHONPATH", context.facts.environment.variables.get("PYTHONPATH", ""))
    folder = posixpath.dirname(origin.path)
    path_entries = [entry for entry in python_path if posixpath.normpath(entry) == folder]
    if path_entries:
        remedy = make_entries_removal_remedy(
            context,
            "PYTHONPATH",
            path_entries,
            [entry for entry in python_path if entry not in path_entries],
            f"{text} `unset` is of no use: {label} sets it whenever a Python starts with {folder} in PYTHONPATH. That file "
            "is not this environment's own: take the folder out, if nothing else in it is needed, or remove the line.",
        )
        return replace(remedy, steps=())  # other programs may need the folder: the user decides
    if not _is_environment_file(context, origin.path):
        return Remedy(
            f"{text} `unset` is of no use: {label} sets it whenever this Python starts. That file is not this "
            "environment's own: remove the line there, or ask whoever looks after it."
        )
    if origin.by == "wrapper":
        return Remedy(f"{text} `unset` is of no use: {label} sets it before Python starts. Change it there.")
    step = _make_comment_out_step(origin)
    if step is None:
        return Remedy(
            f"{text} `unset` is of no use: {label} sets it whenever this Python starts, among other things. Change it "
            "there."
        )
    comment_mark = "# " if origin.path.endswith(".pth") else "pass  # "
    return Remedy(
        f"Remove line {origin.line} from {origin.path}: it sets {origin.name} whenever this Python starts, whatever "
        "the shell has.",
        (_make_comment_out_command(origin, comment_mark), check_command),
        steps=(step,) if with_steps else (),
    )


def _build_startup_path_remedy(context: RuleContext, folder: str) -> Remedy:
    """Return the remedy to remove the line that puts a folder on Python's path."""
    origin = context.facts.environment.find_origin(MODULE_PATH, folder)
    effect = f"it puts {folder} before this Python's own packages whenever it starts."
    if origin is None or not origin.path:
        quoted_folders = " ".join(quote(site) for site in _list_site_folders(context) if site != folder)
        grep_command = f"grep -rn --include='*.pth' --include='*customize.py' sys.path {quoted_folders}"
        return Remedy(
            f"Something that this Python runs when it starts (a .pth file, sitecustomize.py) has a line for {folder}, "
            "which is then before its own packages. Remove that line.",
            (grep_command,) if quoted_folders else (),
        )
    step = _make_comment_out_step(origin)
    if not _is_environment_file(context, origin.path) or step is None:
        return Remedy(f"Remove {folder} from {format_origin(context, MODULE_PATH, folder)}: {effect}")
    comment_mark = "# " if origin.path.endswith(".pth") else "pass  # "
    return Remedy(
        f"Remove line {origin.line} from {origin.path}: {effect}",
        (_make_comment_out_command(origin, comment_mark), format_check_command(context.target)),
        steps=(step,),
    )


def _make_comment_out_step(origin: Origin) -> CommentOutLine | None:
    """Return the step that comments out the line.

    Return None if the line is not known, or if it has any other effect than to set this variable or to add this
    folder to the path.
    """
    has_no_other_effect = _only_adds_folder if origin.name == MODULE_PATH else _only_sets_variable
    if origin.line is None or not has_no_other_effect(origin) or not origin.path.isprintable():
        return None
    return CommentOutLine(origin.path, origin.line, origin.text.rstrip())


def _only_sets_variable(origin: Origin) -> bool:
    """Return whether a Python line only sets or removes this variable, apart from harmless imports."""
    statements = _parse_statements(origin.text)
    return bool(statements) and all(
        _is_harmless_import(statement) or _changes_variable(statement, origin.name)
        for statement in statements
    )


def _only_adds_folder(origin: Origin) -> bool:
    """Return whether a line of a startup file only adds this folder to Python's path."""
    # Python executes only the lines of a .pth file that begin with `import`; the others are folders
    if origin.path.endswith(".pth") and not origin.text.startswith(("import ", "import\t")):
        return True
    statements = [node for node in _parse_statements(origin.text) if not _is_harmless_import(node)]
    if (
        len(statements) != 1
        or not isinstance(statements[0], ast.Expr)
        or not isinstance(statements[0].value, ast.Call)
    ):
        return False
    call = statements[0].value
    path_functions = (
        "sys.path.insert",
        "sys.path.append",
        "path.insert",
        "path.append",
        "site.addsitedir",
        "addsitedir",
    )
    return (
        ast.unparse(call.func) in path_functions
        and not call.keywords
        and bool(call.args)
        and all(isinstance(node, ast.Constant) for node in call.args)
        and str(getattr(call.args[-1], "value", "")).rstrip("/") == (origin.entry or "").rstrip("/")
    )


def _parse_statements(line: str) -> list[ast.stmt]:
    """Parse the statements of a Python line; return an empty list if it is not complete Python."""
    try:
        return ast.parse(line.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _is_harmless_import(statement: ast.stmt) -> bool:
    """Return whether the statement only imports modules that have no side effects."""
    if isinstance(statement, ast.Import):
        return all(alias.name in ("os", "sys", "site") for alias in statement.names)
    return isinstance(statement, ast.ImportFrom) and statement.module in ("os", "sys", "site")


def _changes_variable(statement: ast.stmt, name: str) -> bool:
    """Return whether the statement only sets or deletes this variable in os.environ."""
    if isinstance(statement, ast.Assign):
        return all(_is_variable_item(target, name) for target in statement.targets) and _has_no_side_effect(
            statement.value
        )
    if isinstance(statement, ast.Delete):
        return all(_is_variable_item(target, name) for target in statement.targets)
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    call = statement.value
    function = ast.unparse(call.func)
    if not re.fullmatch(r"(os\.)?(environ\.(setdefault|pop|update|__setitem__)|putenv|unsetenv)", function):
        return False
    keyword_names = [keyword.arg for keyword in call.keywords]
    first_argument = call.args[0] if call.args else None
    if function.endswith("update"):
        return (
            not call.args
            and keyword_names == [name]
            and all(_has_no_side_effect(keyword.value) for keyword in call.keywords)
        )
    return (
        not keyword_names
        and isinstance(first_argument, ast.Constant)
        and first_argument.value == name
        and all(map(_has_no_side_effect, call.args))
    )


def _is_variable_item(target: ast.expr, name: str) -> bool:
    """Return whether the expression is `os.environ[name]`."""
    return (
        isinstance(target, ast.Subscript)
        and ast.unparse(target.value) in ("os.environ", "environ")
        and isinstance(target.slice, ast.Constant)
        and target.slice.value == name
    )


def _has_no_side_effect(value: ast.expr) -> bool:
    """Return whether evaluating the expression has no side effect."""
    return not any(
        isinstance(node, (ast.Call, ast.NamedExpr, ast.Await, ast.Yield)) for node in ast.walk(value)
    )


def _list_site_folders(context: RuleContext) -> tuple[str, ...]:
    """Return the site-packages and dist-packages folders on this Python's path."""
    python = context.python
    if python is None:
        return ()
    return tuple(path for path in python.sys_path if path.endswith(("site-packages", "dist-packages")))


def _is_environment_file(context: RuleContext, path: str) -> bool:
    """Return whether a file belongs to the examined environment.

    The system's Python is not an environment. In an image, every file belongs to the environment.
    """
    python = context.python
    if context.target.image is not None:
        return True
    if python is None or not (python.virtual or python.conda_prefix):
        return False
    return posixpath.normpath(path).startswith(f"{python.prefix.rstrip('/')}/")
