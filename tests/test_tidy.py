"""The conventions of the code base hold, and what one file says about another is true.

An exemption is listed by name, and one that is no longer needed is a failure.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tfdoctor
from compat.every_row import for_each
from tfdoctor.cli.explain import load_documentation
from tfdoctor.cli.main import make_command_group
from tfdoctor.core.findings import Cause
from tfdoctor.diagnosis.explain import (
    CAUSE_BY_LOG_CODE,
    SECTION_HEADINGS,
    list_entries,
    make_rule_entry,
)
from tfdoctor.logs.signatures import BENIGN_CODES
from tfdoctor.rules import ALL_RULES
from tfdoctor.rules.retired import RETIRED_RULES, find_current_codes

if TYPE_CHECKING:
    from types import ModuleType

    from tfdoctor.rules.base import Rule

ROOT = Path(__file__).resolve().parents[1]
RULES = ROOT / "doctor" / "tfdoctor" / "rules"
NO_RULES = frozenset({"__init__.py", "base.py", "retired.py"})
"""Modules of rules/ that are not rules; neither are those whose name begins with `_`."""

MAX_TOP_LEVEL_NAMES = 36
"""The most modules and packages at the top level of the package."""
MAX_MODULE_LINES = 900
LONG_MODULES = frozenset(
    {
        "tests/hosts/make.py",
        "tests/lab/situations.py",
    }
)
"""Modules that may be longer than MAX_MODULE_LINES."""

OF_SEVERAL_RULES = {
    "engine": "findings about containers do not explain what this Python meets",
    "libraries": "how the rules of the loader behave with few facts",
    "nothing_here": "the screen of a machine without a GPU and without TensorFlow",
    "outcomes": "what each rule says about every machine",
    "python": "how the rules of Python packages behave with few facts",
    "which_python": "what the rules report together about an unintended Python",
}
"""Test modules in tests/rules about several rules, and their subject."""

by_code = for_each(ALL_RULES, lambda rule: rule.code)


def list_tracked_files() -> list[Path]:
    """Return the files of the checkout that are or will be under version control."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        [shutil.which("git") or "", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [path for path in (ROOT / name for name in listed.split("\0") if name) if path.is_file()]


def modules() -> list[Path]:
    return [path for path in list_tracked_files() if path.suffix == ".py"]


@functools.cache
def parse_module(path: Path) -> ast.Module:
    """Parse a module, once for all tests."""
    return ast.parse(path.read_text(encoding="utf-8"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---------------------------------------------------------------- rules


@by_code
def test_code_name_and_file_agree(rule: Rule) -> None:
    assert re.fullmatch(r"TFD[1-9]\d\d", rule.code)
    module = sys.modules[rule.check.__module__]
    assert module.__name__ == f"tfdoctor.rules.{rule.name.replace('-', '_')}"
    assert module.RULE is rule


@by_code
def test_a_rule_is_documented(rule: Rule) -> None:
    doc = sys.modules[rule.check.__module__].__doc__ or ""
    headings = re.findall(r"^(\S[^\n]*)\n(-+)$", doc, re.MULTILINE)
    assert [heading for heading, _ in headings] == list(SECTION_HEADINGS)
    assert all(len(heading) == len(line) for heading, line in headings)
    entry = make_rule_entry(rule)
    assert entry.summary.endswith(".")
    assert not rule.title.endswith(".")
    assert all(len(section.text) > 20 for section in entry.sections)


@by_code
def test_a_rule_names_causes_of_the_vocabulary(rule: Rule) -> None:
    assert rule.causes
    assert len(set(rule.causes)) == len(rule.causes)
    assert all(isinstance(cause, Cause) for cause in rule.causes)


def test_codes_and_names_are_unique_and_codes_in_order() -> None:
    codes = [rule.code for rule in ALL_RULES]
    assert codes == sorted(set(codes))
    names = [rule.name for rule in ALL_RULES]
    assert len(set(names)) == len(names)


def test_every_file_of_rules_is_in_all_rules() -> None:
    files = {p.stem for p in RULES.glob("*.py") if p.name not in NO_RULES and not p.stem.startswith("_")}
    assert files == {rule.name.replace("-", "_") for rule in ALL_RULES}


def test_retired_codes_are_never_used_again_and_lead_on() -> None:
    used = {entry.code: entry.name for entry in list_entries(load_documentation()).rules}
    codes = [row.code for row in RETIRED_RULES]
    assert codes == sorted(set(codes))
    for row in RETIRED_RULES:
        assert row.code not in used
        assert row.name not in used.values()
        assert row.code not in {*CAUSE_BY_LOG_CODE, *load_documentation().pages}
        assert set(find_current_codes(row.code)) <= set(used)
        assert row.reason.endswith(".")


MAY_NAME_CODES = ("doctor/tfdoctor/rules/", "doctor/tfdoctor/images/checks/", "doctor/tfdoctor/core/causes/")
"""Where a rule's code may appear as a string."""


def find_codes(path: Path) -> list[str]:
    """Return the strings of a module that are codes, or the beginning of one."""
    if not re.search(r"[\"']TFD\d+[\"']", path.read_text(encoding="utf-8")):  # parsing takes seconds
        return []
    return [
        node.value
        for node in ast.walk(parse_module(path))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"TFD\d+", node.value)
    ]


def test_codes_appear_only_in_their_rules() -> None:
    """Other modules use the rule (`RULE_OF`, `module.RULE`) or the cause (`Cause.row`)."""
    package = [path for path in modules() if relative(path).startswith("doctor/tfdoctor/")]
    outside = [path for path in package if not relative(path).startswith(MAY_NAME_CODES)]
    assert len(package) - len(outside) > len(ALL_RULES)
    assert {relative(path): found for path in outside if (found := find_codes(path))} == {}


def test_only_examine_imports_the_probes() -> None:
    """Other packages call `examine`, which handles Ctrl-C and applies the rules in one way."""
    parts = ("tfdoctor.probes", "tfdoctor.diagnosis.collect", "tfdoctor.diagnosis.report")
    own = (
        "doctor/tfdoctor/diagnosis/",
        "doctor/tfdoctor/probes/",
        "doctor/tfdoctor/extensions/cluster/network.py",
    )
    known: dict[str, list[str]] = {}
    for path in modules():
        name = relative(path)
        if not name.startswith("doctor/tfdoctor/") or not re.search("probes|diagnosis", path.read_text()):
            continue
        tree = parse_module(path)
        named = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        named += [
            f"{n.module}.{a.name}" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names
        ]
        named += [a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names]
        named = [one for one in named if not one.startswith("tfdoctor.probes.parsers")]
        if any(one == part or one.startswith(f"{part}.") for one in named for part in parts):
            known.setdefault(name, []).extend(named)
    assert [name for name in known if not name.startswith(own)] == []
    assert any(name.startswith(own[0]) for name in known)  # the test recognizes such imports


@by_code
def test_something_fires_the_rule_and_something_does_not(rule: Rule) -> None:
    outcomes = (
        (ROOT / "tests" / "rules" / "expected" / f"{rule.code}.txt").read_text(encoding="utf-8").splitlines()
    )
    assert "found" in outcomes
    assert any(line.startswith(("clean", "not_applicable")) for line in outcomes)
    assert not any(line.startswith("crashed") for line in outcomes)


@pytest.mark.parametrize("folder", ["rules", "rules/shared"])
def test_a_test_module_is_named_after_its_rule(folder: str) -> None:
    modules = {path.stem for path in (ROOT / "doctor" / "tfdoctor" / folder).glob("*.py")}
    tested = {path.stem.removeprefix("test_") for path in (ROOT / "tests" / folder).glob("test_*.py")}
    assert not modules & OF_SEVERAL_RULES.keys(), "OF_SEVERAL_RULES has the name of a rule"
    several = OF_SEVERAL_RULES.keys() if folder == "rules" else set()
    assert tested - modules == several, "name it tests/rules/test_<rule>.py, or add it to OF_SEVERAL_RULES"


# ---------------------------------------------------------------- pages


def test_generated_pages_are_fresh() -> None:
    docs = script("generate_docs")
    contents = docs.make_contents(load_documentation())
    stale = [path.name for path, text in contents.items() if docs._read_text(path) != text]
    stale += [path.name for path in docs.CODES.glob("*.md") if path not in contents]
    assert not stale, f"run python scripts/generate_docs.py: {stale}"


FREQUENT_MESSAGES = (
    "Cannot dlopen some GPU libraries",
    "Skipping registering GPU devices",
    "Could not find cuda drivers on your machine, GPU will not be used",
    "Unable to register cuDNN factory",
    "Unable to register cuBLAS factory",
    "Could not find TensorRT",
    "successful NUMA node read from SysFS had negative value (-1)",
    "failed call to cuInit: CUDA_ERROR_NO_DEVICE",
    "failed call to cuInit: UNKNOWN ERROR (303)",
    "Could not load dynamic library",
    "cannot open shared object file: No such file or directory",
    "DLL load failed",
    "CUDA driver version is insufficient for CUDA runtime version",
    "CUDNN_STATUS_INTERNAL_ERROR",
    "DNN library is not found",
    "CUBLAS_STATUS_NOT_INITIALIZED",
    "Loaded runtime CuDNN library",
    "OOM when allocating tensor",
    'could not select device driver "" with capabilities: [[gpu]]',
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver",
    "Driver/library version mismatch",
    "Descriptors cannot not be created directly",
    "A module that was compiled using NumPy 1.x cannot be run in",
    "No module named 'tensorflow'",
    "No matching distribution found for tensorflow",
    "Can't find libdevice directory",
    "Couldn't find a suitable version of ptxas",
    "no kernel image is available for execution on the device",
    "Illegal instruction (core dumped)",
    "Your CPU supports instructions that this TensorFlow binary was not compiled to use",
)


def test_message_pages_answer_what_people_search_for() -> None:
    pages = dict(script("generate_docs").list_message_pages(load_documentation()))
    skipping = pages["registration-skipped.md"]
    assert skipping.startswith("# Cannot dlopen some GPU libraries. Skipping registering GPU devices...\n")
    assert "```sh\ntfdoctor check\n```" in skipping
    assert "This message is harmless" in pages["factory.md"]
    assert "What to do" not in pages["factory.md"]
    assert all(f"({name})" in pages["index.md"] for name in pages if name != "index.md")
    text = "\n".join(pages.values()).lower()
    assert [message for message in FREQUENT_MESSAGES if message.lower() not in text] == []
    for name, page in pages.items():
        targets = re.findall(r"\]\(\.\./(codes/TFD\d{3}\.md)\)", page)
        assert all((ROOT / "docs" / target).exists() for target in targets), name


def test_the_schemas_list_a_new_cause() -> None:
    docs = script("generate_docs")
    with_words, causes = docs.replace_words, docs.VOCABULARY
    words = [cause.value for cause in Cause]
    having = 0
    for path in sorted((ROOT / "docs" / "schemas").glob("*.json")):
        schema = path.read_text(encoding="utf-8")
        assert with_words(schema, causes, words) == schema, (
            f"{path.name} is stale: run python scripts/generate_docs.py"
        )
        more = with_words(schema, causes, [*words, "a-new-cause"])
        assert all(len(line) <= 120 for line in set(more.splitlines()) - set(schema.splitlines()))
        if more != schema:
            having += 1
            wanted = json.loads(schema)
            wanted["$defs"]["cause"]["enum"].append("a-new-cause")
            assert json.loads(more) == wanted
    assert having > 5


def test_the_schema_lists_a_new_harmless_message() -> None:
    docs = script("generate_docs")
    schema = (ROOT / "docs" / "schemas" / "diagnose.schema.json").read_text(encoding="utf-8")
    assert docs.replace_words(schema, docs.HARMLESS, BENIGN_CODES) == schema
    wanted = json.loads(schema)
    wanted["$defs"]["report"]["properties"]["benign"]["items"]["enum"].append("a-new-word")
    assert json.loads(docs.replace_words(schema, docs.HARMLESS, [*BENIGN_CODES, "a-new-word"])) == wanted


def test_the_changelog_has_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[?(\d+\.\d+\.\d+)\]?", text, re.MULTILINE)
    assert tfdoctor.__version__ in versions


PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")),
)


def list_anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MkDocs spell them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@for_each(PAGES)
def test_links_have_a_target(name: str) -> None:
    page = ROOT / name
    text = page.read_text(encoding="utf-8")
    hooks = (ROOT / "scripts" / "site_hooks.py").read_text(encoding="utf-8")
    made = re.findall(r'^PAGE = "(.+)"$', hooks, re.MULTILINE)[
        0
    ]  # beside the front page, while the site is built
    named = re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text)
    named += [(target, "") for target in re.findall(r'(?:src|srcset)="([^"]+)"', text)]
    for target, anchor in named:
        if "://" in target or (name == "docs/index.md" and target == made):
            continue
        there = (page.parent / target).resolve() if target else page
        assert there.exists(), target
        if name.startswith("docs/"):  # the site contains only docs/
            assert ROOT / "docs" in there.parents, target
        if anchor and not anchor.startswith("only-"):
            assert anchor in list_anchors(there), f"{target}#{anchor}"


def test_every_page_is_in_the_site() -> None:
    listed = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    pages = [name.removeprefix("docs/") for name in PAGES if name.startswith("docs/")]
    assert sorted({*listed} - {"messages/index.md"}) == [
        name for name in pages if not name.startswith("codes/")
    ]


SITUATIONS = [name for name in PAGES if name.startswith("docs/situations/")]


def test_every_situation_is_listed() -> None:
    for page in ("README.md", "docs/index.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert all(name.removeprefix("docs/") in text for name in SITUATIONS), page


@for_each(SITUATIONS)
def test_a_situation_begins_with_words_and_ends_with_a_command(name: str) -> None:
    """Without its outputs, the text fits on two screens."""
    text = (ROOT / name).read_text(encoding="utf-8")
    assert re.match(r"# [^\n]+\n\n```text\n", text)
    last = re.search(r"```sh\n(.*?)```\n\Z", text, re.DOTALL)
    assert last is not None
    assert "tfdoctor " in last[1]
    written = re.sub(r"^```console.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    assert len(written.splitlines()) <= 60


@for_each(PAGES)
def test_files_that_a_page_names_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    named = re.findall(r"`((?:doctor|compat|docs|tests|scripts|\.ci)/[\w./-]*[\w/])`", text)
    missing = [path for path in named if not (ROOT / path).exists()]
    assert not missing


TYPED = re.compile(
    r"(?:\$ |Next: |- run: |- (?=\S*/bin/)|srun \S+ )?"
    r"((?:\./)?scripts/\S+|(?:/tmp/tfdoctor/bin/)?tfdoctor)(?=\s|$)([^#|>]*)"
)
"""A tfdoctor command on a line of code: (program, arguments)."""


def find_commands(text: str) -> list[list[str]]:
    """Return the words of each `tfdoctor …` and `scripts/…` command in code blocks and code spans."""
    code = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line.strip() for block in code for line in block.splitlines()]
    spans = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    found = []
    for line in [*lines, *spans]:
        match = TYPED.match(line)
        if match and not re.match(r" \d", match[2]):  # "tfdoctor 0.1.0 …" is output
            found.append([match[1], *match[2].split()])
    return found


@for_each(PAGES)
def test_commands_that_a_page_names_exist(name: str) -> None:
    found = find_commands((ROOT / name).read_text(encoding="utf-8"))
    group: Any = make_command_group()
    for program, *args in found:
        if program.endswith("tfdoctor"):
            words = [arg for arg in args if not arg.startswith("-")]
            if not words:
                continue
            assert words[0] in group.commands, f"{program} {' '.join(args)}"
            command = group.commands[words[0]]
            if hasattr(command, "commands"):
                assert words[1] in command.commands, f"{program} {' '.join(args)}"
                command = command.commands[words[1]]
            known = {o for param in command.params for o in param.opts}
            # What follows the program of `run` belongs to it.
            end = args.index(words[1]) if words[0] == "run" and len(words) > 1 else None
            options = {arg.partition("=")[0] for arg in args[:end] if arg.startswith("-")} - {"--help"}
            assert options <= known, f"{program} {' '.join(args)}"
        if program.removeprefix("./").startswith("scripts/"):
            assert (ROOT / program).is_file(), program


def test_the_readme_shows_the_two_commands() -> None:
    found = [" ".join(words) for words in find_commands((ROOT / "README.md").read_text(encoding="utf-8"))]
    assert "./scripts/tfdoctor check" in found
    assert "./scripts/test" in found


# ---------------------------------------------------------------- files


def test_every_module_has_a_docstring() -> None:
    undocumented = []
    for path in modules():
        text = path.read_text(encoding="utf-8")
        # The payload starts with a comment: other interpreters read it, none of them its docstring.
        commented = path.parent.name == "payload" and text.startswith("# ")
        if text and not commented and not re.match(r'(?:#.*\n|\s)*r?"""', text):
            undocumented.append(relative(path))
    assert not undocumented


def test_the_top_level_is_small() -> None:
    names = {
        path.relative_to(ROOT).parts[2]
        for path in list_tracked_files()
        if path.match("doctor/tfdoctor/**/*.py") or path.match("doctor/tfdoctor/*.py")
    }
    assert len(names - {"__init__.py", "__main__.py"}) <= MAX_TOP_LEVEL_NAMES, (
        "move it into an existing package"
    )


def test_modules_are_short() -> None:
    lengths = {relative(path): len(path.read_text(encoding="utf-8").splitlines()) for path in modules()}
    long = {name for name, length in lengths.items() if length > MAX_MODULE_LINES}
    assert long <= LONG_MODULES, "split the module"
    assert long >= LONG_MODULES, "stale exemption"


def test_tables_are_read_through_compat() -> None:
    """A module that reads a table itself ignores the folder that the user chose."""
    inside = ROOT / "doctor" / "tfdoctor" / "compat"
    found = [
        f"{relative(path)}: {line.strip()}"
        for path in sorted((ROOT / "doctor").rglob("*.py"))
        if inside not in path.parents
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"from tfdoctor\.compat\.\w+ import .*\b(?:load|read)_(?!raw\b)", line)
        or ('data_dir("compat")' in line and path.name != "signatures.py")
    ]
    assert not found, found


HOME = re.compile(
    r"(?:/home/|/Users/)(?!user\b|USER\b|me\b|x\b|<)\w|(?<![\w.}])/r[o]ot/\w|/w[o]rk/(?:main|shared)\b"
)
REGISTRY = re.compile(
    r"(?i)\b(?:py[p]i\.org|pythonh[o]sted\.org|(?:[\w-]+\.)+(?:jfrog\.io|pkg\.dev)|artifactory|devpi)\b"
)
MAY_NAME = frozenset({"tests/test_tidy.py"})
"""Files that may contain such names."""


def test_no_machine_and_no_registry_in_any_file() -> None:
    found = []
    for path in list_tracked_files():
        if relative(path) in MAY_NAME or relative(path).startswith("tests/hosts/"):
            continue
        text = path.read_bytes().decode("utf-8", "replace")
        for pattern in (HOME, REGISTRY):
            found += [f"{relative(path)}: {match[0]}" for match in pattern.finditer(text)]
    assert not found


def find_private_imports(root: Path) -> list[str]:
    """Return the imports of `_private` modules from outside their package."""
    found = []
    for path in sorted(root.rglob("*.py")):
        own = ".".join(path.relative_to(root.parent).with_suffix("").parts)
        for node in ast.walk(parse_module(path)):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            for name in names:
                parts = name.split(".")
                private = next((i for i, part in enumerate(parts) if re.match(r"_[^_]", part)), None)
                if parts[0] == root.name and private is not None:
                    package = ".".join(parts[:private])
                    if not f"{own}.".startswith(f"{package}."):
                        found.append(f"{own}: {name}")
    return found


def test_private_modules_are_imported_only_in_their_package() -> None:
    """Names that other packages need belong in a public module of a lower layer."""
    assert not find_private_imports(ROOT / "doctor" / "tfdoctor")


def test_private_imports_are_noticed(tmp_path: Path) -> None:
    rules = tmp_path / "tfdoctor" / "rules"
    rules.mkdir(parents=True)
    (rules / "one.py").write_text("from tfdoctor.rules import _driver\n", encoding="utf-8")
    (tmp_path / "tfdoctor" / "plan.py").write_text(
        "def f():\n    from tfdoctor.rules._driver import last\n    import tfdoctor.rules.one\n",
        encoding="utf-8",
    )
    assert find_private_imports(tmp_path / "tfdoctor") == ["tfdoctor.plan: tfdoctor.rules._driver.last"]
