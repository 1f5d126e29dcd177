"""Checks that no crate that is built has a known vulnerability, by RustSec's advisory database.

    python scripts/advisories.py [DATABASE]

DATABASE: a checkout of https://github.com/rustsec/advisory-db; else LOKA_ADVISORY_DB, else Cargo's own (`cargo audit` and
`cargo deny` keep it there), else it is cloned. Where none can be had it says so and checks nothing. `cargo deny check
advisories` does the same; this needs no installation. Exit 1 with the crates that are vulnerable or unsound; those that
nobody maintains are told. What is known and borne stands in deny.toml (`advisories.ignore`), each with its reason.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
from typing import Iterator, List, Optional, Set, Tuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
URL = "https://github.com/rustsec/advisory-db"
MANIFESTS = ("Cargo.toml", "fuzz/Cargo.toml")

Version = Tuple[int, int, int, bool, str]


def version(text: str) -> Version:
    """Comparable; a pre-release comes before its release."""
    found = re.match(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:-([^+]*))?", text.strip())
    if not found:
        raise ValueError(f"not a version: {text}")
    major, minor, patch, pre = found.groups()
    return int(major), int(minor or 0), int(patch or 0), pre is None, pre or ""


def meets(found: Version, wanted: str) -> bool:
    """Whether a version meets every comparison of a requirement such as '>=1.2.3, <2'."""
    return all(compares(found, one.strip()) for one in wanted.split(",") if one.strip())


def compares(found: Version, wanted: str) -> bool:
    if wanted == "*":
        return True
    sign, text = re.match(r"(>=|<=|>|<|=|\^|~)?\s*(.*)", wanted).groups()  # type: ignore[union-attr]
    limit = version(text)
    if sign == ">=":
        return found >= limit
    if sign == "<=":
        return found <= limit
    if sign == ">":
        return found > limit
    if sign == "<":
        return found < limit
    if sign == "=":
        return found == limit
    parts = len(re.findall(r"\d+", text.split("-")[0]))
    same = (1 if parts == 1 else 2) if sign == "~" else next((at + 1 for at in range(3) if limit[at]), min(parts, 3))
    return found >= limit and found[:same] == limit[:same]


def database(given: Optional[str]) -> Optional[pathlib.Path]:
    """A checkout, or None."""
    home = pathlib.Path(os.environ.get("CARGO_HOME", pathlib.Path.home() / ".cargo"))
    for place in filter(None, [given, os.environ.get("LOKA_ADVISORY_DB"), home / "advisory-db"]):
        if (pathlib.Path(place) / "crates").is_dir():
            return pathlib.Path(place)
    folder = pathlib.Path(tempfile.mkdtemp()) / "db"
    command = ["timeout", "60", "git", "clone", "--quiet", "--depth", "1", URL, str(folder)]
    done = subprocess.run(command, capture_output=True, env={**os.environ, "GIT_TERMINAL_PROMPT": "0"})
    return folder if done.returncode == 0 else None


def built(manifest: pathlib.Path) -> Set[Tuple[str, str]]:
    """Names and versions of the crates that some platform builds: a lock file has those of features that nobody asks for, too."""
    command = ["cargo", "tree", "--workspace", "--target", "all", "--edges", "normal,build,dev", "--prefix", "none", "--locked"]
    told = subprocess.run([*command, "--manifest-path", str(manifest)], capture_output=True, text=True, check=True).stdout
    crates = (re.match(r"(\S+) v(\S+)", line) for line in told.splitlines())
    # A folder in brackets is of a crate of this project.
    return {(found.group(1), found.group(2)) for found in crates if found and "(/" not in found.string}


def advisories(folder: pathlib.Path) -> Iterator[dict]:
    """Of one crate, those that were not withdrawn."""
    for path in sorted(folder.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        head = re.match(r"```toml\n(.*?)\n```", text, re.DOTALL)
        if head:
            found = tomllib.loads(head.group(1))
            title = re.search(r"^# (.*)$", text, re.MULTILINE)
            found["title"] = title.group(1) if title else ""
            if "withdrawn" not in found["advisory"]:
                yield found


def main(given: List[str]) -> int:
    place = database(given[0] if given else None)
    if place is None:
        print("skipped: no advisory database (git clone of rustsec/advisory-db failed; LOKA_ADVISORY_DB names a checkout)")
        return 0
    ignored = tomllib.loads((ROOT / "deny.toml").read_text()).get("advisories", {}).get("ignore", [])
    borne = {one if isinstance(one, str) else one["id"] for one in ignored}
    packages = set().union(*(built(ROOT / manifest) for manifest in MANIFESTS))
    wrong, told = 0, 0
    for name, text in sorted(packages):
        for advisory in advisories(place / "crates" / name):
            about, versions = advisory["advisory"], advisory.get("versions", {})
            fine = [*versions.get("patched", []), *versions.get("unaffected", [])]
            if about["id"] in borne or any(meets(version(text), wanted) for wanted in fine):
                continue
            kind = about.get("informational", "vulnerability")
            wrong += kind in ("vulnerability", "unsound")
            told += 1
            print(f"{name} {text}: {kind}, {about['id']}: {advisory['title']}")
    print(f"{len(packages)} crates, {told} advisories, {wrong} of them vulnerable or unsound")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
