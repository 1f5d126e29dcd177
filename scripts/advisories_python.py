"""Checks that no Python package that LoKA is built, tested or shown with has a known vulnerability, by PyPA's advisory database.

    python scripts/advisories_python.py [DATABASE]

DATABASE: a checkout of https://github.com/pypa/advisory-database; else LOKA_PYPI_ADVISORY_DB, else it is cloned. Where none can
be had it says so and checks nothing. `pip-audit -r FILE` does the same by asking the index, package by package; this asks nobody.
It reads every pinned list below. Exit 1 with the packages that are vulnerable. What is known and borne stands in BORNE.

The package itself needs `safetensors[numpy]` alone, without an upper bound: an installation takes the newest.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import Dict, Iterator, List, Optional, Set, Tuple

import yaml
from packaging.version import InvalidVersion, Version

ROOT = pathlib.Path(__file__).resolve().parent.parent
URL = "https://github.com/pypa/advisory-database"
LISTS = (
    "tests/requirements.txt",
    "python/requirements-test.txt",
    "scripts/wheel-requirements.txt",
    "tests/conformance/requirements.txt",
)
# Advisory: why it does not touch us.
BORNE: Dict[str, str] = {}


def database(given: Optional[str]) -> Optional[pathlib.Path]:
    """A checkout, or None."""
    for place in filter(None, [given, os.environ.get("LOKA_PYPI_ADVISORY_DB")]):
        if (pathlib.Path(place) / "vulns").is_dir():
            return pathlib.Path(place)
    folder = pathlib.Path(tempfile.mkdtemp()) / "db"
    command = ["timeout", "90", "git", "clone", "--quiet", "--depth", "1", URL, str(folder)]
    done = subprocess.run(command, capture_output=True, env={**os.environ, "GIT_TERMINAL_PROMPT": "0"})
    return folder if done.returncode == 0 else None


def normal(name: str) -> str:
    """PEP 503: what differs in case and dots is one package."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned() -> Set[Tuple[str, str]]:
    """Names and versions of every list."""
    found = set()
    for file in LISTS:
        for line in (ROOT / file).read_text(encoding="utf-8").splitlines():
            pin = re.match(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;#]+)", line)
            if pin:
                found.add((normal(pin.group(1)), pin.group(2)))
    return found


def is_in(version: Version, events: List[Dict[str, str]]) -> bool:
    """Whether a version lies in an OSV range: introduced here, fixed there, maybe several times."""
    limits = []
    for event in events:
        ((kind, text),) = event.items()
        try:
            limits.append((Version(text), kind))
        except InvalidVersion:
            continue
    inside = False
    # They come in any order.
    for limit, kind in sorted(limits):
        if kind == "introduced" and version >= limit:
            inside = True
        elif (kind == "fixed" and version >= limit) or (kind == "last_affected" and version > limit):
            inside = False
    return inside


def touches(advisory: dict, name: str, text: str) -> bool:
    for affected in advisory.get("affected", []):
        if normal(affected["package"]["name"]) != name:
            continue
        if text in affected.get("versions", []):
            return True
        ranges = (one for one in affected.get("ranges", []) if one["type"] == "ECOSYSTEM")
        if any(is_in(Version(text), one["events"]) for one in ranges):
            return True
    return False


def advisories(folder: pathlib.Path) -> Iterator[dict]:
    """Of one package, those that were not withdrawn."""
    for path in sorted(folder.glob("*.yaml")):
        # With times as text: nothing here reads them.
        advisory = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
        if "withdrawn" not in advisory:
            yield advisory


def main(given: List[str]) -> int:
    place = database(given[0] if given else None)
    if place is None:
        print("skipped: no advisory database (git clone of pypa/advisory-database failed; LOKA_PYPI_ADVISORY_DB names a checkout)")
        return 0
    packages, wrong = pinned(), 0
    for name, text in sorted(packages):
        for advisory in advisories(place / "vulns" / name):
            known = {advisory["id"], *advisory.get("aliases", [])}
            if touches(advisory, name, text) and not known & set(BORNE):
                wrong += 1
                title = " ".join(advisory.get("details", "").split())
                print(f"{name} {text}: {advisory['id']}: {title[:160]}")
    print(f"{len(packages)} Python packages, {wrong} known to be vulnerable")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
