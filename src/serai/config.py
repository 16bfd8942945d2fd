"""Settings: what they are, and where each one came from.  The only room that reads the environment.

    defaults  <  TOML file  <  environment SERAI_*  <  flags and --set KEY=VALUE

    SERAI_PAGE_SIZE   length of page files in a new embedded queue, in bytes (a power of two)
    QKQPsz            the same, under the name the Java library gave it
    SERAI_PORT, ...   the keys of `Settings` in capitals, for a server
    SERAI_CONFIG      the TOML file, when no flag names one
    SERAI_SERVER      HOST:PORT of the server that client verbs talk to

Invariants
- a key that does not exist is an error that names the nearest one; so is a value of the wrong kind
- every setting knows its origin, so that a surprise can be traced
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from serai import limits
from serai.errors import Misuse

PAGE_SIZE_NAMES = ("SERAI_PAGE_SIZE", "QKQPsz")
PREFIX = "SERAI_"
SERVER_DEFAULT = "127.0.0.1:15555"


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


def server_default() -> str:
    """HOST:PORT of the server that client verbs talk to."""
    return os.environ.get("SERAI_SERVER") or SERVER_DEFAULT


def address_of(text: str) -> tuple[str, int]:
    """Host and port of HOST:PORT; what is left out is the default's."""
    host, colon, port = text.rpartition(":")
    if not colon or (text.count(":") > 1 and not text.startswith("[")):
        host, port = text, SERVER_DEFAULT.rpartition(":")[2]
    if not port.isdecimal() or int(port) > 65535:
        raise Misuse(f"{text!r} names no server: {port!r} is no port; write HOST:PORT")
    return host.strip("[]") or "127.0.0.1", int(port)


# ---- the server's -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set for a server; `docs/guide/server.md` has this table."""

    data: str = "serai-data"  #: the data directory
    host: str = "127.0.0.1"  #: the address to listen on
    port: int = 15555  #: the port for everything; 0: any free one
    insecure: bool = False  #: listen beyond this machine although nobody has to say who he is
    hosts: str = ""  #: names, comma between, that browsers may call this server by, beside addresses and localhost
    ack: str = "commit"  #: `receive` or `commit`: when a produce is answered that does not say
    auto_create: bool = True  #: topics and subscriptions make themselves at first use; off beyond this machine
    region: str = ""  #: where this server is; clients are told whether it is near them
    page_bytes: int = limits.LOG_PAGE_BYTES_DEFAULT  #: length of the page files of new partitions, a power of two
    connections_max: int = limits.CONNECTIONS_MAX  #: guests at a time; the others wait
    log_config: str = ""  #: a TOML or JSON file for Python's `logging`
    log_level: str = "info"  #: `debug`, `info`, `warning` or `error`
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)


KEYS = {each.name: each.type for each in fields(Settings) if each.name != "origins"}
CHOICES = {"ack": ("receive", "commit"), "log_level": ("debug", "info", "warning", "error")}
RANGES = {
    "port": (0, 65535),
    "page_bytes": (limits.LOG_PAGE_BYTES_MIN, limits.PAGE_BYTES_MAX),
    "connections_max": (1, 1_000_000),
}
YES, NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def load(
    *,
    file: str | None = None,
    flags: Mapping[str, Any] | None = None,
    words: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """The settings of a server: file, environment, flags that were given, `KEY=VALUE` words; later ones win."""
    around = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}

    def take(found: Mapping[str, Any], origin: str) -> None:
        for key, value in found.items():
            values[key] = _checked(key, value, origin)
            origins[key] = origin

    path = file or around.get(f"{PREFIX}CONFIG", "")
    if path:
        take(_file(path), path)
    for key in KEYS:
        if text := around.get(PREFIX + key.upper(), ""):
            take({key: text}, PREFIX + key.upper())
    take({key: value for key, value in (flags or {}).items() if value is not None}, "the command line")
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            raise Misuse(f"--set {word} says no value; write --set {word}=VALUE")
        take({key.strip(): text.strip()}, "--set")
    if not is_loopback(values.get("host", Settings().host)):
        values.setdefault("auto_create", False)
    return Settings(**values, origins=origins)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address."""
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _file(path: str) -> dict[str, Any]:
    import tomllib

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        raise Misuse(f"there is no configuration file {path}") from None
    except tomllib.TOMLDecodeError as error:
        raise Misuse(f"{path} is no TOML: {error}") from None


def _checked(key: str, value: Any, origin: str) -> Any:
    if key not in KEYS:
        from difflib import get_close_matches

        near = get_close_matches(key, KEYS, n=1, cutoff=0.5)
        raise Misuse(
            f"there is no setting {key!r} ({origin})"
            + (f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(KEYS)}")
        )
    kind = KEYS[key]
    found = _boolean(value) if kind == "bool" else _whole(value) if kind == "int" else value
    if found is None or (kind == "str" and not isinstance(found, str)):
        raise Misuse(f"{key} is {value!r} ({origin}); it is {_WANTED[str(kind)]}")
    if key in CHOICES and found not in CHOICES[key]:
        raise Misuse(f"{key} is {value!r} ({origin}); it is one of {', '.join(CHOICES[key])}")
    if key in RANGES and not RANGES[key][0] <= found <= RANGES[key][1]:
        raise Misuse(f"{key} is {found} ({origin}); it is a number from {RANGES[key][0]} to {RANGES[key][1]}")
    return check_page_bytes(found, what=f"{key} ({origin})") if key == "page_bytes" else found


_WANTED = {"bool": "true or false", "int": "a whole number", "str": "text"}


def _boolean(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    text = str(value).lower()
    return True if text in YES else False if text in NO else None


def _whole(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    try:
        return int(value)
    except ValueError:
        return None
