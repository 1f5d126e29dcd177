"""What pip asks of a source distribution: takes the sources, gives a wheel with the package, the program and libloka.

It asks for what it needs before it begins, and says what lacks in one sentence; it installs nothing. The page is in the
distribution already, so that neither Node nor the WebAssembly target is asked for. The wheel is for this machine alone, by its
own linker and C library; one for any Linux is made by scripts/build_wheel.sh of a checkout."""

import base64
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

from setuptools import build_meta

HERE = pathlib.Path(__file__).resolve().parent
RUST = (1, 95)
NEEDS = (
    "Building LoKA from source needs Rust {}.{} or later (https://rustup.rs) and a C compiler, and takes a quarter of an hour "
    "or more, where a wheel needs neither: {}."
)


def lacking():
    """What is not there; None where all is."""
    if sys.platform not in ("linux", "darwin"):
        return f"this is {sys.platform}, where it was never built"
    if shutil.which("cargo") is None:
        return "no cargo was found"
    # In the sources' folder, where rustup reads which Rust they ask for.
    said = subprocess.run(["rustc", "--version"], cwd=HERE, capture_output=True, text=True)
    found = re.match(r"rustc (\d+)\.(\d+)", said.stdout)
    if found is None:
        return f"rustc does not run ({(said.stderr.strip().splitlines() or ['it said nothing'])[-1]})"
    if tuple(map(int, found.groups())) < RUST:
        return f"this is Rust {found[1]}.{found[2]}"
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        return "no C compiler was found"
    return None


def _check():
    lack = lacking()
    if lack is not None:
        # No traceback: the sentence is all that there is to say.
        print(NEEDS.format(*RUST, lack), file=sys.stderr)
        sys.exit(1)


def get_requires_for_build_wheel(config_settings=None):
    _check()
    return []


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _check()
    # For tests of this file alone: what cargo calls `dev` takes a tenth of the time.
    profile = os.environ.get("LOKA_PROFILE", "release")
    environment = {**os.environ, "LOKA_PAGE": str(HERE / "page")}
    for package in (["loka", "--bin", "loka"], ["loka_capi"]):
        subprocess.run(["cargo", "build", "--profile", profile, "--package", *package], cwd=HERE, env=environment, check=True)
    built = _target() / ("debug" if profile == "dev" else profile)
    with tempfile.TemporaryDirectory() as folder:
        package = pathlib.Path(folder) / "python"
        shutil.copytree(HERE / "python", package)
        shutil.copy(built / ("libloka.dylib" if sys.platform == "darwin" else "libloka.so"), package / "loka" / "libloka.so")
        before = os.getcwd()
        os.chdir(package)
        try:
            pure = build_meta.build_wheel(folder)
        finally:
            os.chdir(before)
        return with_program(pathlib.Path(folder) / pure, built / "loka", pathlib.Path(wheel_directory))


def _target():
    named = os.environ.get("CARGO_TARGET_DIR")
    return HERE / named if named else HERE / "target"


def with_program(pure, program, out):
    """The wheel of setuptools with the program in it, for this platform alone. Its name."""
    platform = re.sub(r"[.-]", "_", sysconfig.get_platform())
    name = pure.name.replace("-any.whl", f"-{platform}.whl")
    tag = f"py3-none-{platform}"
    head = "-".join(pure.name.split("-")[:2])
    record = []
    with zipfile.ZipFile(pure) as old, zipfile.ZipFile(out / name, "w", zipfile.ZIP_DEFLATED) as new:

        def put(path, data, mode=0o644):
            entry = zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0))
            entry.external_attr, entry.compress_type = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
            new.writestr(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{path},sha256={digest},{len(data)}")

        for entry in old.infolist():
            data = old.read(entry)
            if entry.filename.endswith(".dist-info/RECORD"):
                continue
            if entry.filename.endswith(".dist-info/WHEEL"):
                text = re.sub(r"(?m)^Root-Is-Purelib: .*$", "Root-Is-Purelib: false", data.decode())
                data = re.sub(r"(?m)^Tag: .*$", f"Tag: {tag}", text).encode()
            put(entry.filename, data)
        put(f"{head}.data/scripts/loka", program.read_bytes(), 0o755)
        path = f"{head}.dist-info/RECORD"
        new.writestr(path, "\n".join([*record, f"{path},,", ""]))
    return name


def build_sdist(sdist_directory, config_settings=None):
    raise SystemExit("a source distribution is made by scripts/build_sdist.sh of a checkout")
