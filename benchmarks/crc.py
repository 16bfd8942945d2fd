"""How fast the checksums are, at every level of this machine, beside zlib: `python -m benchmarks.crc [SIZE ...]`.

Three numbers for each size, each the best of several rounds:

    c        one call from C, as the other compiled modules make it; inputs do not depend on each other
    chain    the same, but every call continues the checksum of the one before
    python   one call of serai._core.crc or of zlib from Python, calling included

The C numbers come from checksums.c itself, compiled here with a small loop around it; without a C compiler they are
left out.
"""

import subprocess
import sys
import sysconfig
import tempfile
import timeit
import zlib
from collections.abc import Callable
from pathlib import Path

from serai._core import crc

SIZES = [20, 100, 116, 1024, 65_536, 1 << 20]
SOURCE = Path(__file__).parents[1] / "src" / "serai" / "_core"
LOOP = r"""
#include "crc.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef uint32_t checksum(uint32_t crc, const void *p, size_t n);

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static double best(checksum *function, const char *data, size_t n, int chained) {
    double least = 1e9;
    long times = 40000000 / (n + 100);
    volatile uint32_t kept;
    for (int round = 0; round < 5; round++) {
        uint32_t all = 0;
        double from = seconds();
        if (chained)
            for (long i = 0; i < times; i++) all = function(all, data + (i & 63), n);
        else
            for (long i = 0; i < times; i++) all ^= function(0, data + (i & 63), n);
        double took = (seconds() - from) / times * 1e9;
        kept = all;
        if (took < least) least = took;
    }
    (void)kept;
    return least;
}

int main(int count, char **sizes) {
    char *data = calloc(1, strtoul(sizes[count - 1], 0, 10) + 64); /* the last size is the largest */
    for (int level = 0; level < serai_crc_levels(); level++) {
        serai_crc_force(level);
        for (int i = 1; i < count; i++) {
            size_t n = strtoul(sizes[i], 0, 10);
            printf("%d %zu %f %f %f %f\n", level, n, best(serai_crc32c, data, n, 0), best(serai_crc32c, data, n, 1),
                   best(serai_crc32, data, n, 0), best(serai_crc32, data, n, 1));
        }
    }
    return 0;
}
"""


def measured_in_c(sizes: list[int]) -> dict[tuple[str, int, int], tuple[float, float]]:
    """(function, level, size) to nanoseconds, apart and in a chain."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()
    found = {}
    with tempfile.TemporaryDirectory() as place:
        loop, program = Path(place, "loop.c"), Path(place, "loop")
        loop.write_text(LOOP)
        parts = [str(loop), str(SOURCE / "checksums.c"), "-o", str(program)]
        subprocess.run([*compiler, "-O3", f"-I{SOURCE}", *parts], check=True)
        lines = subprocess.run([program, *map(str, sizes)], check=True, capture_output=True, text=True).stdout
    for line in lines.splitlines():
        level, size, *times = line.split()
        for name, at in (("crc32c", 0), ("crc32", 2)):
            found[name, int(level), int(size)] = float(times[at]), float(times[at + 1])
    return found


def measured_in_python(function: Callable[[bytes], int], size: int) -> float:
    data, times = bytes(size), max(20, 20_000_000 // (size + 200))
    clock = timeit.Timer("function(data)", globals={"function": function, "data": data})
    return min(clock.repeat(5, times)) / times * 1e9


def row(name: str, kind: str, size: int, times: list[float | None]) -> str:
    cells = ["" if ns is None else f"{ns:.1f} ns {size / ns:6.1f} GB/s" for ns in times]
    return f"{name:7} {kind:9} {size:8} " + " ".join(f"{cell:>26}" for cell in cells)


def main() -> None:
    sizes = sorted(map(int, sys.argv[1:])) or SIZES
    try:
        in_c = measured_in_c(sizes)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"no numbers from C: {error}", file=sys.stderr)
        in_c = {}
    print(f"levels: {', '.join(crc.LEVELS)}; in use: {crc.KIND}")
    print(f"{'':7} {'':9} {'bytes':>8} {'c':>26} {'chain':>26} {'python':>26}")
    for name, function in (("crc32c", crc.crc32c), ("crc32", crc.crc32)):
        for level, kind in enumerate(crc.LEVELS):
            crc.force(level)
            for size in sizes:
                apart, chain = in_c.get((name, level, size), (None, None))
                print(row(name, kind, size, [apart, chain, measured_in_python(function, size)]))
    for size in sizes:
        print(row("crc32", "zlib", size, [None, None, measured_in_python(zlib.crc32, size)]))


if __name__ == "__main__":
    main()
