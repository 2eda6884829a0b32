"""Print the requirements of a dependency group (PEP 735), for a pip that does not know groups (before 25.1).

python scripts/dependency_group.py pyproject.toml dev
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def requirements(groups: dict[str, list[Any]], name: str) -> list[str]:
    """Return the requirements of a group and of the groups that it includes. Raise KeyError for an unknown group."""
    collected: list[str] = []
    for entry in groups[name]:
        collected += [entry] if isinstance(entry, str) else requirements(groups, entry["include-group"])
    return list(dict.fromkeys(collected))


def main() -> int:
    """Print the requirements, one per line, and return the exit status."""
    path, name = sys.argv[1:]
    groups = tomllib.loads(Path(path).read_text(encoding="utf-8"))["dependency-groups"]
    print("\n".join(requirements(groups, name)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
