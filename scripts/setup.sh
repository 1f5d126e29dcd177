# Sourced by ./run and ./test: finds or installs what a bare Debian 12 with Rust and Python lacks.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}
# One target folder for all checkouts, outside of them: a cold build takes a quarter of an hour.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$cache/loka-target}
# Cargo goes by time alone, and takes what another checkout built there for this one's where this one's files are older. They are not,
# from now on: its own crates are compiled again, nobody else's.
own_target() {
    local last
    last=$(cat "$CARGO_TARGET_DIR/.checkout")
    [ "$last" != "$root" ] || return 0
    # A folder that nobody may write to has nothing built in it either.
    mkdir -p "$CARGO_TARGET_DIR" && echo "$root" >"$CARGO_TARGET_DIR/.checkout" || return 0
    [ -z "$last" ] || find "$root" \( -name .git -o -name target \) -prune -o -name '*.rs' -exec touch -c {} + || true
}
own_target 2>/dev/null || true

# How cargo is called: on a terminal it says how many crates are built, of how many.
quiet=--quiet
[ -t 2 ] && quiet=

say() { printf '%s\n' "$*" >&2; }
die() { say "$*"; exit 2; }

# need_linux WHAT: what only Linux makes, said before anything is done. The program itself is cargo's, on any system.
need_linux() {
    [ "$(uname -s)" = Linux ] || die "$1 is made on Linux alone (GNU tar, sed and stat, Debian's packages): this is $(uname -s). \`cargo build --release --package loka\` makes the program"
    # Nothing here asks for x86_64, and nothing else was there to try it on.
    [ "$(uname -m)" = x86_64 ] || say "this is $(uname -m): $1 was made and tried on x86_64 alone"
}

# need_packages PACKAGE...: installs the missing ones when root, else says in one line what to install.
need_packages() {
    command -v dpkg-query >/dev/null || return 0
    local missing=() package
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    if [ "$(id -u)" -eq 0 ]; then
        say "installing ${missing[*]}"
        apt-get update -qq >&2 || die "apt-get update failed; install by hand: ${missing[*]}"
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2 ||
            die "could not install: ${missing[*]}"
    else
        die "please install: sudo apt-get install ${missing[*]}"
    fi
}

# plain_paths TRIPLE: what cargo compiles for it from now on names the sources of crates as CRATE/src/..., and not by where this machine
# keeps them: the same file on any machine, and a shorter one.
plain_paths() {
    local folder flags=${RUSTFLAGS:-}
    # What is not here yet has no folder yet.
    cargo fetch --quiet --locked --manifest-path "$root/Cargo.toml" --target "$1" >&2
    flags=${flags// /$'\x1f'}
    for folder in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/; do
        flags+=${flags:+$'\x1f'}--remap-path-prefix=${folder%/}=
    done
    export CARGO_ENCODED_RUSTFLAGS=$flags
}

need_rust() {
    command -v cargo >/dev/null || die "please install Rust 1.95: https://rustup.rs"
    command -v cc >/dev/null || need_packages build-essential
}

need_wasm() {
    [ -d "$(cd "$root" && rustc --print sysroot)/lib/rustlib/wasm32-unknown-unknown" ] && return 0
    command -v rustup >/dev/null || die "please install the target wasm32-unknown-unknown of Rust"
    (cd "$root" && rustup target add wasm32-unknown-unknown >&2) || die "could not add the wasm32 target"
}

# need_wasm_bindgen: scripts/bindgen, whose library is of the version that Cargo.lock has, built once into the user's cache.
# Sets $wasm_bindgen.
need_wasm_bindgen() {
    local version
    version=$(grep -A 1 '^name = "wasm-bindgen"$' "$root/Cargo.lock" | sed -n 's/^version = "\(.*\)"$/\1/p')
    grep -q "^wasm-bindgen-cli-support = \"=$version\"$" "$root/scripts/bindgen/Cargo.toml" ||
        die "scripts/bindgen/Cargo.toml names another version of wasm-bindgen than Cargo.lock, $version"
    wasm_bindgen=$cache/loka-wasm-bindgen-$version/loka_bindgen
    [ -x "$wasm_bindgen" ] && return 0
    say "building what makes a page of wasm-bindgen $version (once, some minutes)"
    # Its own target folder: the project's is for the project.
    local target=$cache/loka-wasm-bindgen-$version/target
    CARGO_TARGET_DIR=$target cargo build --quiet --locked --manifest-path "$root/scripts/bindgen/Cargo.toml" >&2 ||
        die "could not build scripts/bindgen"
    cp "$target/debug/loka_bindgen" "$wasm_bindgen"
    rm -rf "$target"
}

# need_npm NAME PACKAGE...: pinned packages from npm, in the user's cache, installed again only when the list changes.
# Sets $npm_folder.
need_npm() {
    npm_folder=$cache/$1
    local wanted=${*:2}
    [ "$(cat "$npm_folder/.wanted" 2>/dev/null)" = "$wanted" ] && return 0
    command -v npm >/dev/null || need_packages nodejs npm
    rm -rf "$npm_folder"
    mkdir -p "$npm_folder"
    npm install --prefix "$npm_folder" --no-save --no-package-lock --no-audit --no-fund --loglevel=error "${@:2}" >&2 ||
        die "could not install from npm: $wanted"
    echo "$wanted" >"$npm_folder/.wanted"
}

# need_wasm_opt: Debian 12 has version 108, which exports the wrong table of a module that has two, as ours. Sets $wasm_opt.
need_wasm_opt() {
    need_npm loka-binaryen binaryen@132.0.0
    wasm_opt=$npm_folder/node_modules/.bin/wasm-opt
}

# need_playwright: what drives a browser; none comes with it. Sets $playwright.
need_playwright() {
    local version
    version=$(sed -n 's/.*"playwright-core": "\(.*\)".*/\1/p' "$root/tests/web/package.json")
    need_npm loka-playwright "playwright-core@$version"
    playwright=$npm_folder
}

# need_page: the page and the program of this source, what drives the page in Chromium, and the sample with its rows in a
# folder that is gone when the script ends. Sets $scratch and what need_playwright does.
need_page() {
    need_packages chromium
    need_playwright
    "$root/scripts/build_web.sh"
    cargo build --manifest-path "$root/Cargo.toml" --quiet --package loka >&2
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    cp "$root/sample-traces/wukong-clicks.trace.safetensors" "$scratch/sample.trace.safetensors"
    "$CARGO_TARGET_DIR/debug/loka" probe "$scratch/sample.trace.safetensors" --out "$scratch/sample.results.parquet" >/dev/null
}

# need_fuzz: cargo-fuzz and a nightly compiler, which fuzzing needs. Fails, and says why, where they are not to be had:
# then there is no fuzzing. Sets $fuzz.
need_fuzz() {
    if ! command -v rustup >/dev/null || ! rustup toolchain list | grep -q '^nightly'; then
        say "skipped: no nightly toolchain of Rust (rustup toolchain install nightly)"
        return 1
    fi
    fuzz=$cache/loka-fuzz/bin/cargo-fuzz
    # It calls the compiler, and need not be quick itself.
    [ -x "$fuzz" ] || cargo install cargo-fuzz --debug --version 0.13.2 --quiet --root "$cache/loka-fuzz" >&2 ||
        { say "skipped: cargo-fuzz could not be installed"; return 1; }
}

# need_environment NAME REQUIREMENTS [OTHER]: a virtual environment with pinned packages, kept across checkouts and
# made again only when the list changes. What the environment OTHER has is found from it too. Sets $python.
need_environment() {
    local environment=$cache/$1 wanted=$2
    python=$environment/bin/python
    cmp -s "$wanted" "$environment/requirements.txt" && return 0
    command -v python3 >/dev/null || need_packages python3
    python3 -m venv "$environment" 2>/dev/null || {
        need_packages python3-venv
        python3 -m venv "$environment" || die "could not make a Python environment in $environment"
    }
    [ $# -lt 3 ] || packages_of "$cache/$3" >"$(packages_of "$environment")/$3.pth"
    # Modules are compiled as they are imported: of these gigabytes few are.
    "$environment/bin/pip" install -q --no-compile --disable-pip-version-check -r "$wanted" >&2 ||
        die "could not install the packages of $wanted"
    cp "$wanted" "$environment/requirements.txt"
}

# packages_of ENVIRONMENT: the folder of its packages.
packages_of() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

# need_python: what the tests and checks of the Rust side need. Sets $python.
need_python() { need_environment loka-python "$root/tests/requirements.txt"; }

# need_docs: what makes a site of docs/. Sets $python.
need_docs() { need_environment loka-docs "$root/scripts/docs-requirements.txt"; }

# need_torch: PyTorch (some 3 GB to fetch the first time, minutes), by itself so that nothing else waits
# for it. Sets $python.
need_torch() {
    [ -e "$cache/loka-torch/requirements.txt" ] || say "installing PyTorch for the tests of python/ (once)"
    need_environment loka-torch "$root/python/requirements-test.txt"
}

# need_ray: Ray, for the tests of loka.ray, by itself: nothing else of LoKA's needs it. Sets $python.
need_ray() {
    [ -e "$cache/loka-ray/requirements.txt" ] || say "installing Ray for the tests of loka.ray (once, 80 MB)"
    need_environment loka-ray "$root/python/requirements-ray.txt"
}

# need_frameworks: those that plans are exported to, and what AMD Quark compiles its kernels with. Their PyTorch is
# need_torch's: a second one would be another 4.7 GB. Sets $python and $frameworks, the environment's folder.
need_frameworks() {
    need_torch
    need_packages build-essential python3-dev
    frameworks=$cache/loka-frameworks
    [ -e "$frameworks/requirements.txt" ] || say "installing the frameworks that plans are exported to (once, 1.5 GB)"
    need_environment loka-frameworks "$root/tests/conformance/requirements.txt" loka-torch
}
