"""Writes what the program is made of, as CycloneDX 1.6 JSON: every crate that is linked into `loka`, with version, licence, source
and the SHA-256 that Cargo.lock has of it.

    python scripts/sbom.py >loka.cdx.json
"""

import json
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent


def told(*arguments: str) -> str:
    done = subprocess.run(["cargo", *arguments, "--manifest-path", str(ROOT / "Cargo.toml")], capture_output=True, text=True, check=True)
    return done.stdout


def main() -> int:
    about = json.loads(told("metadata", "--format-version", "1", "--locked"))
    known = {(one["name"], one["version"]): one for one in about["packages"]}
    tree = told("tree", "--package", "loka", "--edges", "normal", "--prefix", "none", "--locked").splitlines()
    linked = {(found.group(1), found.group(2)) for found in (re.match(r"(\S+) v(\S+)", line) for line in tree) if found}
    locked = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    sums = {(one["name"], one["version"]): one.get("checksum") for one in locked}

    def component(name: str, version: str) -> dict:
        crate = known[name, version]
        made = {"type": "library", "name": name, "version": version, "bom-ref": f"pkg:cargo/{name}@{version}"}
        if crate["license"]:
            made["licenses"] = [{"expression": crate["license"].replace("/", " OR ")}]
        if sums.get((name, version)):
            made["purl"] = f"pkg:cargo/{name}@{version}"
            made["hashes"] = [{"alg": "SHA-256", "content": sums[name, version]}]
        if crate["repository"]:
            made["externalReferences"] = [{"type": "vcs", "url": crate["repository"]}]
        return made

    program = next(one for one in about["packages"] if one["name"] == "loka")
    document = {
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {"component": {"type": "application", "name": "loka", "version": program["version"], "bom-ref": "loka"}},
        "components": [component(*one) for one in sorted(linked) if one[0] != "loka"],
    }  # fmt: skip
    print(json.dumps(document, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
