"""Hooks of the build: addresses and README of the package, and the commit that it was built from."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

AUTHOR = "The tfdoctor developers"
BUILD_FILE = "build.json"
"""A file in the root of the sdist, and in the data of the wheel: {"commit": "…"}."""
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(#[^)\s]*)?\)")
PICTURE = re.compile(r'<picture>.*?(<img .*?src=")([^"]+)(".*?>)\s*</picture>', re.DOTALL)
REPOSITORY_PART = re.compile(r"<!-- only in the repository -->\n.*?<!-- end -->\n", re.DOTALL)
PACKAGE_PART = re.compile(r"<!-- only in the package\n(.*?)-->\n", re.DOTALL)


def load_links(root: Path) -> Any:
    """Load tfdoctor's module of addresses without tfdoctor."""
    spec = importlib.util.spec_from_file_location("links", root / "doctor" / "tfdoctor" / "core" / "links.py")
    if spec is None or spec.loader is None:
        raise ImportError("doctor/tfdoctor/core/links.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def convert_readme(text: str, links: Any, version: str) -> str:
    """Return the README as it is on a package index, where neither files nor `<picture>` of the repository exist."""

    def convert_link(match: re.Match[str]) -> str:
        path, anchor = match[1], match[2] or ""
        if not path:
            return match[0]
        if path.startswith("docs/") and path.endswith(".md"):
            page = path.removeprefix("docs/").removesuffix(".md")
            return f"]({links.format_docs_url(version, f'{page}/')}{anchor})"
        return f"]({links.format_repository_url(f'blob/v{version}/{path}')}{anchor})"

    def convert_picture(match: re.Match[str]) -> str:
        return match[1] + links.format_docs_url(version, match[2].removeprefix("docs/")) + match[3]

    text = PACKAGE_PART.sub(r"\1", REPOSITORY_PART.sub("", text))
    return PICTURE.sub(convert_picture, LINK.sub(convert_link, text))


def read_commit(root: Path) -> str:
    """Return the commit of a checkout, with "+" if files were changed, or that of an sdist. Empty if neither is known."""
    built = root / BUILD_FILE
    if built.is_file():
        return str(json.loads(built.read_text(encoding="utf-8"))["commit"])

    def run_git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(root), *words], capture_output=True, text=True, check=False
            )
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    top = run_git("rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != root.resolve():  # a folder inside another repository
        return ""
    commit = run_git("rev-parse", "--short=12", "HEAD") or ""
    return commit + ("+" if commit and run_git("status", "--porcelain", "--untracked-files=no") else "")


class CustomMetadataHook(MetadataHookInterface):
    """Set what pyproject.toml calls dynamic, besides the version."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the README and the addresses to the metadata."""
        root = Path(self.root)
        links = load_links(root)
        version = metadata["version"]
        text = convert_readme((root / "README.md").read_text(encoding="utf-8"), links, version)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["authors"] = [{"name": AUTHOR, "email": links.format_address()}]
        metadata["urls"] = {
            "Homepage": links.format_repository_url(),
            "Documentation": links.format_docs_url(version),
            "Changelog": links.format_repository_url(f"blob/v{version}/CHANGELOG.md"),
            "Issues": links.format_repository_url("issues"),
            "Source": links.format_repository_url(),
        }


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Put the commit into the package."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the file with the commit, and add it to the sdist or to the wheel. An editable wheel has none."""
        if version == "editable":
            return
        commit = read_commit(Path(self.root))
        file = Path(self.directory) / BUILD_FILE
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"commit": commit}) + "\n", encoding="utf-8")
        target = BUILD_FILE if self.target_name == "sdist" else f"tfdoctor/_data/{BUILD_FILE}"
        build_data["force_include"][str(file)] = target

    def finalize(self, *_: Any) -> None:
        """Remove the file again."""
        (Path(self.directory) / BUILD_FILE).unlink(missing_ok=True)
