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
        text = os.environ.get(name)
        if text is None:
            continue
        try:
            return int(text)
        except ValueError:
            raise Misuse(f"{name} is {text!r}; a page size is a number of bytes, a power of two") from None
    return limits.PAGE_BYTES_DEFAULT
