#!/bin/sh
# Makes .venv ready for one make target: `sh tools/bootstrap.sh run|spark|test|check|bench|bench-broker|fuzz|build`.
#
# This is shell because Python may be what is missing.  Four steps, each skipped when it is done already:
#   1. find Python (3.11 or newer) with venv and headers, and a C compiler; as root on Debian or Ubuntu
#      install what is missing, elsewhere print the one line that does and stop with 1
#   2. make .venv, with a pip that knows dependency groups
#   3. pip install the target's group of pyproject.toml and, in place, serai itself
#   4. compile the core again if one of its sources changed
# Step 3's stamp is a hash of this folder's name and pyproject.toml, step 4's a hash of the core's sources.
# With both in place nothing is started but a shell and sha256sum, about 10 ms.
set -eu
unset PYTHONHOME PYTHONPATH
cd "$(dirname "$0")/.."

group=${1:?"say which group: run, spark, test, check, bench, bench-broker, fuzz or build"}
python=.venv/bin/python
stamps=.venv/.stamps

say() { printf '%s\n' "$*" >&2; }
stop() { say "serai: $*"; exit 1; }
digest() { sha256sum | cut -c 1-32; }
settings() { { pwd; cat pyproject.toml; } | digest; }
sources() { (cd src/serai/_core && cat ../../../pyproject.toml ./*.pyx ./*.pxd ./checksums.c ./*.h) | digest; }
is_built() { set -- src/serai/_core/pages.*.so && [ -e "$1" ] && is_stamped core "$(sources)"; }
is_stamped() { [ -f "$stamps/$1" ] && [ "$(cat "$stamps/$1")" = "$2" ]; }
stamp() { mkdir -p "$stamps"; printf '%s\n' "$2" >"$stamps/$1"; }

main() {
    if ! { [ -x $python ] && is_stamped "$group" "$(settings)"; }; then
        need_linux
        need_tools
        if ! $python -c 'import pip' 2>/dev/null; then make_venv; fi
        install
    fi
    is_built || compile
}

need_linux() {
    case "$(uname -s) $(uname -m)" in
        "Linux x86_64" | "Linux aarch64" | "Linux arm64") ;;
        *) stop "this is $(uname -s) on $(uname -m); serai runs on Linux on x86_64 and aarch64 only (it maps files" \
                "and orders memory the way these do)" ;;
    esac
}

# ---------------------------------------------------------------- 1. what the system must have

# The user's own choice first, then the newest; a complete one before one that lacks headers or venv.
pick_python() {
    fallback=
    for found in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
        "$found" -c 'import sys; sys.exit(sys.version_info < (3, 11) or sys.implementation.name != "cpython")' \
            2>/dev/null || continue
        if has_venv "$found" && has_headers "$found"; then base=$found; return; fi
        fallback=${fallback:-$found}
    done
    base=$fallback
}
has_venv() { "$1" -c 'import ensurepip, venv' 2>/dev/null; }
has_headers() {
    "$1" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'
}

# The compiler this Python was built with, or $CC; a trial shows that libc's headers are there too.
pick_compiler() {
    # the inner command's words are tried one by one, so "gcc -pthread" gives gcc
    for found in ${CC:-} $([ -z "$base" ] || "$base" -c 'import sysconfig; print(sysconfig.get_config_var("CC") or "")') \
        cc gcc clang; do
        if printf '#include <stdlib.h>\nint main(void) { return EXIT_SUCCESS; }\n' |
            "$found" -x c - -o /dev/null 2>/dev/null; then
            compiler=$found
            return
        fi
    done
    compiler=
}

need_tools() {
    look
    [ -n "$missing" ] || return 0
    say "serai: to build its compiled core it needs what this system does not have:$missing"
    if ! command -v apt-get >/dev/null; then
        stop "this line installs it:  $(line_elsewhere)"
    elif [ "$(id -u)" != 0 ]; then
        stop "this line installs it:  sudo apt-get update && sudo apt-get install -y $(debian_packages)"
    fi
    say "serai: as root on Debian, so apt-get installs it now (it shows the sizes and its progress)"
    apt-get update
    packages=$(debian_packages)
    say "serai: apt-get install $packages"
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $packages
    look
    [ -z "$missing" ] || stop "apt-get ran, but this is still missing:$missing.  Python 3.11 or newer comes with" \
        "Debian 12 and Ubuntu 24.04; on an older system install it yourself and say 'make PYTHON=/path/to/python'"
}

look() {
    pick_python
    pick_compiler
    missing=
    if [ -z "$base" ]; then
        missing=" Python 3.11 or newer with venv and headers,"
    else
        has_venv "$base" || missing="$missing the venv module of $base,"
        has_headers "$base" || missing="$missing the C headers of $base,"
    fi
    [ -n "$compiler" ] || missing="$missing a C compiler,"
    missing=${missing%,}
}

debian_packages() {
    if [ -n "$base" ]; then
        version=$("$base" -c 'import sys; print("python3.%d" % sys.version_info[1])')
    else
        version=python3
        for found in python3.11 python3.12 python3.13 python3.14; do    # a system has one or two of them
            if apt-cache show "$found-venv" >/dev/null 2>&1; then version=$found; break; fi
        done
    fi
    echo "$version $version-venv $version-dev gcc libc6-dev"
}

line_elsewhere() {
    if command -v dnf >/dev/null; then echo "sudo dnf install -y python3 python3-devel gcc"
    elif command -v zypper >/dev/null; then echo "sudo zypper install -y python311 python311-devel gcc"
    elif command -v pacman >/dev/null; then echo "sudo pacman -S --needed python gcc"
    elif command -v apk >/dev/null; then echo "apk add python3 python3-dev gcc musl-dev linux-headers"
    else echo "(your package manager) install python3 (3.11 or newer), its headers and venv module, and gcc"
    fi
}

# ---------------------------------------------------------------- 2 to 4. the environment and the core

make_venv() {
    say "serai: making .venv with $("$base" -c 'import platform; print("Python", platform.python_version())')"
    rm -rf .venv
    "$base" -m venv .venv
}

install() {
    # --group came with pip 25.1
    $python -c 'import pip, sys; sys.exit(tuple(map(int, pip.__version__.split(".")[:2])) < (25, 1))' ||
        $python -m pip install --disable-pip-version-check --upgrade 'pip>=25.1'
    say "serai: installing the '$group' group of pyproject.toml into .venv"
    case $group in test | check | spark)
        $python -c 'import pyspark' 2>/dev/null ||
            say "serai: with Spark: 456 MB, a Java for it: 35 MB, and its parts: 60 MB, with the tests 125; fetched once, 1.1 to 1.3 GB on disk" ;;
    esac
    $python -m pip install --disable-pip-version-check --group "$group"
    if ! is_stamped package "$(settings)"; then
        say "serai: installing serai itself in place and compiling its core (a minute of work, shared by the cores)"
        before=$(sources)
        name_compiler
        PYTHONWARNINGS=ignore $python -m pip install --disable-pip-version-check --no-build-isolation -e .
        stamp package "$(settings)"
        stamp core "$before"
    fi
    case $group in
        bench-broker) offer redis-server redis-server "the benchmark lacks its strongest peer" ;;
        test) offer mkfs.xfs xfsprogs "the tests that cut a real file system off are skipped" ;;
    esac
    stamp "$group" "$(settings)"
}

# What one benchmark or a few tests use where it is there, and do without elsewhere: offer PROGRAM PACKAGE "what is less".
# RabbitMQ, 160 MB, is never fetched, and used where somebody installed it.
offer() {
    ! command -v "$1" >/dev/null || return 0
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
        { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$2"; } ||
            say "serai: $2 could not be installed; $3"
    else
        say "serai: without $1 $3:  sudo apt-get install $2"
    fi
}

# setuptools calls the compiler that Python was built with; where that one is missing it must be told another.
name_compiler() {
    built_with=$($python -c 'import sysconfig; print((sysconfig.get_config_var("CC") or "cc").split()[0])')
    [ -n "${CC:-}" ] || command -v "$built_with" >/dev/null || export CC=cc
}

compile() {
    say "serai: compiling the core"
    name_compiler
    before=$(sources)
    log=$(mktemp)
    $python -W ignore -c 'import setuptools; setuptools.setup()' build_ext --inplace >"$log" 2>&1 ||
        { cat "$log"; rm "$log"; stop "the core did not compile; the compiler's words are above"; }
    grep -A 5 -i 'warning' "$log" || true
    rm "$log"
    stamp core "$before"
}

main
