"""`tfdoctor completion`: the script that makes a shell complete our commands, and what that script asks.

The script calls the same command again with the words that are typed: `tfdoctor completion bash -- check --pyt`. Each
line of the answer is a word, in zsh and fish with what it is; the one line FILES: a file's name is wanted.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated, Any

from tfdoctor.cli.options import argument, command
from tfdoctor.errors import ExitCode
from tfdoctor.render.terminal import OUT
from tfdoctor.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Sequence

FILES = ":files"
"""No command, option or value begins with a colon."""
A_FILE = ("FILE", "PATH", "DIR", "FOLDER", "BUNDLE", "COMMAND")
"""What is in the metavariables of values that are files."""
Words = list[tuple[str, str]]


class Shell(str, enum.Enum):
    """Shells whose scripts are known."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


SCRIPTS = {
    Shell.bash: r"""_tfdoctor() {
    local IFS=$'\n'
    COMPREPLY=($(tfdoctor completion bash -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
    if [[ ${COMPREPLY[0]-} == :files ]]; then
        COMPREPLY=()
        compopt -o default
    fi
}
complete -o nosort -F _tfdoctor tfdoctor 2>/dev/null || complete -F _tfdoctor tfdoctor
""",
    Shell.zsh: r"""#compdef tfdoctor
_tfdoctor() {
    local -a found
    found=("${(@f)$(tfdoctor completion zsh -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ $found[1] == :files ]]; then
        _files
    elif [[ -n $found[1] ]]; then
        _describe -V tfdoctor found
    fi
}
if [[ $funcstack[1] == _tfdoctor ]]; then _tfdoctor "$@"; else compdef _tfdoctor tfdoctor; fi
""",
    Shell.fish: r"""function __tfdoctor
    set -l typed (commandline -opc) (commandline -ct)
    set -l found (tfdoctor completion fish -- $typed[2..-1] 2>/dev/null)
    if test "$found[1]" = :files
        __fish_complete_path (commandline -ct)
    else
        printf '%s\n' $found
    end
end
complete -c tfdoctor -f -k -a '(__tfdoctor)'
""",
}


@command
def completion(
    shell: Annotated[Shell, argument("bash, zsh or fish.", metavar="SHELL")],
    words: Annotated[
        list[str] | None, argument("Complete the last of these; the script asks so.", metavar="[-- WORD…]")
    ] = None,
) -> int:
    """Print the script, or what completes the last of `words`. Returns the exit status.

    Prints a script that makes it so.

    Bash: eval "$(tfdoctor completion bash)", in ~/.bashrc

    Zsh: tfdoctor completion zsh > "${fpath[1]}/_tfdoctor"

    Fish: tfdoctor completion fish > ~/.config/fish/completions/tfdoctor.fish
    """
    if words is None:
        OUT.document(SCRIPTS[shell])
        return ExitCode.OK
    words = [*words[:-1], words[-1].removeprefix('"').removeprefix("'")]  # a quote that is still open
    words, left_out = _join_words(words) if shell is Shell.bash else (words, "")
    for value, text in candidates(words):
        OUT.document(f"{_format_value(shell, value.removeprefix(left_out), clean_line(text, limit=100))}\n")
    return ExitCode.OK


def _format_value(shell: Shell, value: str, text: str) -> str:
    if shell is Shell.bash or value == FILES or not text:
        return value
    if shell is Shell.fish:
        return f"{value}\t{text}"
    return f"{value.replace(':', chr(92) + ':')}:{text}"


def _join_words(words: Sequence[str]) -> tuple[list[str], str]:
    """Bash takes `--tf=2.1` for three words, and wants to hear of the last alone: (the words, what it has already)."""
    *before, last = words
    if last == "=" and before:
        return [*before[:-1], f"{before[-1]}="], f"{before[-1]}="
    if len(before) > 1 and before[-1] == "=":
        return [*before[:-2], f"{before[-2]}={last}"], f"{before[-2]}="
    return [*before, last], ""


# ---------------------------------------------------------------- what completes a command line


def candidates(words: Sequence[str]) -> Words:
    """Return (word, what it is) of all that the last of `words` can become.

    [(FILES, "")] where that is a file's name.
    """
    from tfdoctor.cli.main import COMMANDS, command_line

    *before, last = words
    group = command_line()
    if before[:1] == ["help"]:
        return _filter_words(last, COMMANDS.items())
    name = next((word for word in before if not word.startswith("-")), None)
    if name is None:
        if not last.startswith("-"):
            return _filter_words(last, COMMANDS.items())
        return _filter_words(last, _options(group.make_context("tfdoctor", [], resilient_parsing=True)))
    if name not in COMMANDS:
        return []
    return _complete_in_command(group.commands[name], before[before.index(name) + 1 :], last)


def _complete_in_command(command: Any, before: Sequence[str], last: str) -> Words:
    """After a command's name. `command` is Click's."""
    context = command.make_context(command.name, [], resilient_parsing=True)
    named = {word: param for param in command.params for word in (*param.opts, *param.secondary_opts)}
    places = [param for param in command.params if param.param_type_name == "argument" and not param.hidden]
    waiting, taken, ended = None, 0, False
    for word in before:
        if waiting is not None:
            waiting = None
        elif word == "--":
            ended = True
        elif ended or not word.startswith("-") or word == "-":
            taken += 1
            ended |= not context.allow_interspersed_args
        else:
            param = named.get(word)
            waiting = param if param is not None and not _is_flag(param) else None
    if waiting is not None:
        return _values(context, waiting, last)
    option, equals, value = last.partition("=")
    if equals and not ended and option in named:
        return [
            (text if text == FILES else f"{option}={text}", told)
            for text, told in _values(context, named[option], value)
        ]
    if last.startswith("-") and not ended:
        return _filter_words(last, _options(context))
    for place in places:
        if place.nargs == -1 or taken == 0:
            return _values(context, place, last)
        taken -= 1
    return []


def _is_flag(param: Any) -> bool:
    return bool(getattr(param, "is_flag", False) or getattr(param, "count", False))


def _options(context: Any) -> list[tuple[str, str]]:
    """Return the long names, each with its help."""
    found = []
    for param in context.command.get_params(context):
        if param.param_type_name == "option" and not param.hidden:
            names = [*param.opts, *param.secondary_opts]
            found += [(name, param.help or "") for name in names if name.startswith("--")]
    return found


def _values(context: Any, param: Any, typed: str) -> Words:
    """Return what a value can be."""
    if any(word in (param.metavar or "") for word in A_FILE):
        return [(FILES, "")]
    found = param.shell_complete(context, typed)
    return [(item.value, item.help or "") for item in found if item.type == "plain"]


def _filter_words(typed: str, known: Any) -> Words:
    return [(word, text) for word, text in known if word.startswith(typed)]
