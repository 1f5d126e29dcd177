"""Looks whether every link between this project's files leads somewhere: relative links and their #headings in Markdown, and
`docs/….md` wherever a comment or a message names one. Prints each that does not, with file and line; ends with 1 then.

    python scripts/check_links.py
"""

import functools
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"!?\[[^\]]*\]\(<?([^)\s>]+)>?\)")
NAMED = re.compile(r"(?<![\w/.])docs/[\w/-]+\.md")
FENCE = re.compile(r"^\s*(```|~~~)")


def tracked():
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [pathlib.PurePosixPath(name) for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def prose(text):
    """Lines with their numbers, without code: what looks like a link there is none."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            inside = not inside
        elif not inside and not line.startswith("    "):
            yield number, line


def slug(heading):
    """As GitHub and the site make an anchor of a heading."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")


@functools.cache
def anchors(path):
    found, counts = set(), {}
    for _, line in prose((ROOT / path).read_text(encoding="utf-8")):
        match = re.match(r"#{1,6} +(.*)", line)
        if match:
            name = slug(match[1])
            counts[name] = counts.get(name, -1) + 1
            found.add(name if counts[name] == 0 else f"{name}-{counts[name]}")
        found.update(re.findall(r'<a (?:id|name)="([^"]+)"', line))
    return found


def broken_links(path, text):
    # Lines that a link goes over are put together: it is read from the whole, with code blanked.
    kept = dict(prose(text))
    whole = "\n".join(kept.get(number, "") for number in range(1, len(text.splitlines()) + 1))
    for match in LINK.finditer(whole):
        target, _, anchor = match[1].partition("#")
        if re.match(r"[a-z][a-z+.-]*:", target):
            continue
        there = (ROOT / path.parent / target).resolve() if target else ROOT / path
        line = whole.count("\n", 0, match.start(1)) + 1
        if not there.exists():
            yield line, f"no such file: {match[1]}"
        elif anchor and there.suffix == ".md" and anchor not in anchors(there.relative_to(ROOT)):
            yield line, f"no such heading: {match[1]}"


def main():
    problems, files = [], tracked()
    for path in files:
        if path.suffix in {".png", ".parquet", ".safetensors", ".webp", ".bin", ".json", ".csv"}:
            continue
        try:
            text = (ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        # What other programs printed is kept as it was.
        if path.suffix == ".txt" and path.is_relative_to("docs/evidence"):
            continue
        if path.suffix == ".md":
            problems += [f"{path}:{line}: {what}" for line, what in broken_links(path, text)]
        if path.name == "check_links.py":
            continue
        for number, line in enumerate(text.splitlines(), 1):
            problems += [f"{path}:{number}: no such file: {name}" for name in NAMED.findall(line) if not (ROOT / name).is_file()]
    print(*problems, sep="\n", end="\n" if problems else "")
    print(f"{len(files)} files: {len(problems)} links lead nowhere", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
