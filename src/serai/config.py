"""Settings that come from the environment.  The only room that reads it.

SERAI_PAGE_SIZE   length of page files in a new queue, in bytes (a power of two)
QKQPsz            the same, under the name the Java library gave it
"""

import os

from serai import limits
from serai.errors import Misuse

PAGE_SIZE_NAMES = ("SERAI_PAGE_SIZE", "QKQPsz")


def page_bytes_default() -> int:
    """Page length of a new queue: the environment's, else 1 GiB."""
    for name in PAGE_SIZE_NAMES:
        text = os.environ.get(name, "")
        if text:  # an empty variable is as good as none
            return check_page_bytes(int(text) if text.isdecimal() else text, what=name)
    return limits.PAGE_BYTES_DEFAULT


def check_page_bytes(size: object, *, what: str) -> int:
    """The size, if it can be one."""
    if isinstance(size, int) and limits.PAGE_BYTES_MIN <= size <= limits.PAGE_BYTES_MAX and size & (size - 1) == 0:
        return size
    raise Misuse(
        f"{what} is {size!r}; a page size is a power of two from {limits.PAGE_BYTES_MIN} to {limits.PAGE_BYTES_MAX} bytes"
    )
