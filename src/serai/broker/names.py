"""What may be called what: topics, applications, groups.

    topic     any text of 1 to 255 bytes of UTF-8 without control characters and without `/`, not `.` or `..`
    app       the same rule
    group     `app` or `app.group`: what stands before the first dot is the application

A name is only a key of the catalogue; a directory is called after the topic's id, so no name reaches a file system.
"""

import re

from serai import limits
from serai.errors import Refused

STRANGE = re.compile("[\x00-\x1f\x7f-\x9f/\ud800-\udfff\ufffe\uffff]")


def is_name(name: str) -> bool:
    """Whether a topic, an application or a group can be called that."""
    if not 0 < len(name) <= limits.NAME_BYTES_MAX or name in {".", ".."} or STRANGE.search(name):
        return False
    return name.isascii() or len(name.encode()) <= limits.NAME_BYTES_MAX


def check_name(name: str, *, what: str) -> str:
    """The name, if something can be called that."""
    if is_name(name):
        return name
    shown = ascii(name if len(name) <= 40 else f"{name[:40]}...")
    raise Refused(
        f"{what} cannot be called {shown}: names have 1 to {limits.NAME_BYTES_MAX} bytes of UTF-8 without control characters"
        " and '/', and are not '.' or '..'; choose another name",
        code="bad-name",
    )


def app_of(group: str) -> str:
    """The application a group belongs to."""
    return group.partition(".")[0] if "." in group else group


def hash_of(key: str) -> int:
    """The hash that spreads keyed messages: 31 * h + UTF-16 unit in 32 bits, made positive, as its clients compute it."""
    units = key.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    if value == 0x80000000:
        return 0x7FFFFFFF
    return 0x100000000 - value if value > 0x80000000 else value
