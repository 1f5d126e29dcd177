"""What mkdocs.yml calls while it builds: files that pages link to outside of docs/ (schemas, headers, examples, the changelog)
come along under source/, so that a link works on the site as it does in the checkout."""

import pathlib
import posixpath
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"(\]\(<?)([^)\s>#]+)")
# What a browser shows instead of saving it.
SHOWN = {".json", ".png", ".webp", ".svg", ".txt", ".csv", ".md"}


def outside(page, target):
    """The file of the repository that a link of a page leads to, where that is not below docs/. A page's address on the site is
    its path below docs/, or below source/ for those that came along."""
    if re.match(r"[a-z][a-z+.-]*:", target) or target.startswith("/"):
        return None
    folder = posixpath.dirname(page[len("source/") :] if page.startswith("source/") else f"docs/{page}")
    path = posixpath.normpath(posixpath.join(folder, target))
    inside = path.startswith("docs/") and not page.startswith("source/")
    return None if inside or path.startswith("..") or not (ROOT / path).is_file() else path


def address(path):
    if path.startswith("docs/"):
        return path[len("docs/") :]
    return f"source/{path}" if pathlib.PurePosixPath(path).suffix in SHOWN else f"source/{path}.txt"


def on_files(files, config):
    waiting = [file.src_uri for file in files.documentation_pages()]
    texts = {uri: files.get_file_from_path(uri).content_string for uri in waiting}
    while waiting:
        page = waiting.pop()
        for match in LINK.finditer(texts[page]):
            path = outside(page, match[2])
            if path is None or files.get_file_from_path(address(path)) is not None:
                continue
            file = File.generated(config, address(path), abs_src_path=str(ROOT / path))
            files.append(file)
            if path.endswith(".md"):
                texts[address(path)] = file.content_string
                waiting.append(address(path))
    return files


def on_page_markdown(markdown, page, config, files):
    here = page.file.src_uri

    def there(match):
        path = outside(here, match[2])
        if path is None:
            return match[0]
        return match[1] + posixpath.relpath(address(path), posixpath.dirname(here) or ".")

    return LINK.sub(there, markdown)
