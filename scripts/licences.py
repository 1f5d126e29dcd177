"""Checks that every dependency may be used under a licence that deny.toml allows.

Takes nothing; reads `cargo metadata` and deny.toml. Exit 1 with the offenders. `cargo deny check` does the
same and more; this needs no installation.
"""

import json
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent


def satisfied(expression: str, allowed: set[str]) -> bool:
    """True if an SPDX expression of OR, AND, WITH and parentheses can be met by allowed licences."""
    tokens = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))

    def term(at: int) -> tuple[bool, int]:
        if tokens[at] == "(":
            value, at = either(at + 1)
            return value, at + 1
        name, at = tokens[at], at + 1
        if at < len(tokens) and tokens[at] == "WITH":
            name, at = f"{name} WITH {tokens[at + 1]}", at + 2
        return name in allowed, at

    def both(at: int) -> tuple[bool, int]:
        value, at = term(at)
        while at < len(tokens) and tokens[at] == "AND":
            other, at = term(at + 1)
            value = value and other
        return value, at

    def either(at: int) -> tuple[bool, int]:
        value, at = both(at)
        while at < len(tokens) and tokens[at] == "OR":
            other, at = both(at + 1)
            value = value or other
        return value, at

    return either(0)[0]


def main() -> int:
    config = tomllib.loads((ROOT / "deny.toml").read_text())
    allowed = set(config["licenses"]["allow"])
    command = ["cargo", "metadata", "--format-version", "1", "--manifest-path", str(ROOT / "Cargo.toml")]
    packages = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["packages"]
    bad = [p for p in packages if not satisfied(p.get("license") or "none", allowed)]
    for package in bad:
        print(f"{package['name']} {package['version']}: {package.get('license')}", file=sys.stderr)
    print(f"{len(packages) - len(bad)} packages under allowed licences, {len(bad)} not")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
