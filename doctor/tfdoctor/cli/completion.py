"""The `tfdoctor completion` command: print a shell script, or the completions that it requests.

The script calls the same command with the typed words: `tfdoctor completion bash -- check --pyt`. Each line of the
output is a completion, in zsh and fish with a description. The single line ":files" means that a file name is expected.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Annotated, Any

from tfdoctor.cli.options import argument, command
from tfdoctor.core.errors import ExitCode
from tfdoctor.core.text import clean_line
from tfdoctor.render.terminal import OUT

if TYPE_CHECKING:
    from collections.abc import Sequence

FILES_MARKER = ":files"
"""The output if a file name is expected. No command, option or value begins with a colon."""
FILE_METAVAR_WORDS = ("FILE", "PATH", "DIR", "FOLDER", "RECORDING", "COMMAND")
"""An option or argument takes a file name if its metavariable contains one of these words."""
Completions = list[tuple[str, str]]


class Shell(str, enum.Enum):
    """A shell that completion supports."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


SCRIPT_BY_SHELL = {
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


@command("tfdoctor completion bash", "tfdoctor completion zsh")
def completion(
    shell: Annotated[Shell, argument("bash, zsh or fish.", metavar="SHELL")],
    words: Annotated[
        list[str] | None, argument("Complete the last of these; the script asks so.", metavar="[-- WORD…]")
    ] = None,
) -> int:
    """Print the shell script, or the completions of the last of `words`, and return the exit status.

    Prints a script that makes it so.

    Bash: eval "$(tfdoctor completion bash)", in ~/.bashrc

    Zsh: tfdoctor completion zsh > "${fpath[1]}/_tfdoctor"

    Fish: tfdoctor completion fish > ~/.config/fish/completions/tfdoctor.fish
    """
    if words is None:
        OUT.write_document(SCRIPT_BY_SHELL[shell])
        return ExitCode.OK
    words = [*words[:-1], words[-1].removeprefix('"').removeprefix("'")]  # the shell passes on an open quote
    words, prefix = _join_words(words) if shell is Shell.bash else (words, "")
    for value, text in list_completions(words):
        OUT.write_document(
            f"{_format_completion(shell, value.removeprefix(prefix), clean_line(text, limit=100))}\n"
        )
    return ExitCode.OK


def _format_completion(shell: Shell, value: str, description: str) -> str:
    """Return a completion in the format of the shell's script. zsh needs a colon before the description."""
    if shell is Shell.bash or value == FILES_MARKER or not description:
        return value
    if shell is Shell.fish:
        return f"{value}\t{description}"
    return f"{value.replace(':', chr(92) + ':')}:{description}"


def _join_words(words: Sequence[str]) -> tuple[list[str], str]:
    """Join options with their values, and return the words and the prefix to remove from the completions.

    Bash splits `--tf=2.1` into three words and expects a completion of only the last one.
    """
    *earlier_words, last_word = words
    if last_word == "=" and earlier_words:
        return [*earlier_words[:-1], f"{earlier_words[-1]}="], f"{earlier_words[-1]}="
    if len(earlier_words) > 1 and earlier_words[-1] == "=":
        return [*earlier_words[:-2], f"{earlier_words[-2]}={last_word}"], f"{earlier_words[-2]}="
    return [*earlier_words, last_word], ""


# ---------------------------------------------------------------- candidates


def list_completions(words: Sequence[str]) -> Completions:
    """Return (word, description) for each completion of the last word.

    The result is [(FILES_MARKER, "")] if a file name is expected.
    """
    from tfdoctor.cli.commands import list_commands
    from tfdoctor.cli.main import make_command_group

    *earlier_words, last_word = words
    group = make_command_group()
    if earlier_words[:1] == ["help"]:
        return _filter_words(last_word, list_commands().items())
    command_name = next((word for word in earlier_words if not word.startswith("-")), None)
    if command_name is None:
        if not last_word.startswith("-"):
            return _filter_words(last_word, list_commands().items())
        return _filter_words(
            last_word, _list_options(group.make_context("tfdoctor", [], resilient_parsing=True))
        )
    if command_name not in list_commands():
        return []
    command, command_words = (
        group.commands[command_name],
        earlier_words[earlier_words.index(command_name) + 1 :],
    )
    subcommands = getattr(command, "commands", {})
    if subcommands and not command_words and not last_word.startswith("-"):
        return _filter_words(
            last_word, ((name, item.get_short_help_str(100)) for name, item in subcommands.items())
        )
    if subcommands and command_words:
        if command_words[0] not in subcommands:
            return []
        command, *command_words = subcommands[command_words[0]], *command_words[1:]
    return _complete_in_command(command, command_words, last_word)


def _complete_in_command(command: Any, earlier_words: Sequence[str], last_word: str) -> Completions:
    """Return the completions of `last_word` after a Click command and its arguments `earlier_words`."""
    context = command.make_context(command.name, [], resilient_parsing=True)
    options = {word: param for param in command.params for word in (*param.opts, *param.secondary_opts)}
    positionals = [
        param for param in command.params if param.param_type_name == "argument" and not param.hidden
    ]
    pending_option, argument_count, options_ended = None, 0, False
    for word in earlier_words:
        if pending_option is not None:
            pending_option = None
        elif word == "--":
            options_ended = True
        elif options_ended or not word.startswith("-") or word == "-":
            argument_count += 1
            options_ended |= not context.allow_interspersed_args
        else:
            param = options.get(word)
            pending_option = param if param is not None and not _is_flag(param) else None
    if pending_option is not None:
        return _list_values(context, pending_option, last_word)
    option_name, equals_sign, value = last_word.partition("=")
    if equals_sign and not options_ended and option_name in options:
        return [
            (text if text == FILES_MARKER else f"{option_name}={text}", description)
            for text, description in _list_values(context, options[option_name], value)
        ]
    if last_word.startswith("-") and not options_ended:
        return _filter_words(last_word, _list_options(context))
    for positional in positionals:  # `nargs` is -1 for the last one if it takes any number of values
        if positional.nargs == -1 or argument_count == 0:
            return _list_values(context, positional, last_word)
        argument_count -= 1
    return []


def _is_flag(param: Any) -> bool:
    """Return whether a Click parameter takes no value."""
    return bool(getattr(param, "is_flag", False) or getattr(param, "count", False))


def _list_options(context: Any) -> list[tuple[str, str]]:
    """Return the long names of a command's options, each with its help text."""
    options = []
    for param in context.command.get_params(context):
        if param.param_type_name == "option" and not param.hidden:
            names = [*param.opts, *param.secondary_opts]
            options += [(name, param.help or "") for name in names if name.startswith("--")]
    return options


def _list_values(context: Any, param: Any, typed: str) -> Completions:
    """Return the completions of a parameter's value."""
    if any(name in (param.metavar or "") for name in FILE_METAVAR_WORDS):
        return [(FILES_MARKER, "")]
    items = param.shell_complete(context, typed)
    return [(item.value, item.help or "") for item in items if item.type == "plain"]


def _filter_words(typed: str, candidates: Any) -> Completions:
    """Return the candidates that begin with `typed`."""
    return [(word, text) for word, text in candidates if word.startswith(typed)]
