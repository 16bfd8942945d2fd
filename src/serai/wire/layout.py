"""Layouts: a class whose annotations are wire kinds, in wire order, is a codec.

    class Place(Layout):
        partition: Int16                                    #: partition of the topic
        index: Int64                                        #: first index wanted
        left: Annotated[Int64, Only("real", since=3)] = -1  #: only some peers send it

    encode(Place(partition=0, index=7), form)  ->  pieces of bytes
    decode(Place, data, form)                  ->  Place(partition=0, index=7, left=-1), where it ended

A **form** is a dialect's name and version.  What a field looks like, and whether it is there at all, may depend on it;
nothing else may.  For each class and form one encode and one decode function are compiled when they are first wanted, and
neighbouring fields of fixed width share one struct call.

Invariants
- bytes that do not make a value raise Malformed (Truncated when more bytes would help), and nothing else
- a count or a length is compared with the bytes that are there before anything is made of it
- what was encoded decodes to an equal value, and ends where it ended
- surplus bytes behind a value are the caller's: later versions of a peer add fields

Left to others: which layouts there are (each door's schema), docs, strategies and dumps (describe).
"""

from __future__ import annotations

import functools
import struct
import typing
from abc import ABC, abstractmethod
from dataclasses import MISSING, dataclass, field, fields
from typing import Annotated, Any, ClassVar, NamedTuple, TypeAlias, TypeVar, dataclass_transform

from serai.errors import Misuse, PeerError
from serai.wire.buffer import Span

if typing.TYPE_CHECKING:
    from collections.abc import Callable

    Reader: TypeAlias = "Callable[[memoryview, int], tuple[Any, int]]"
    Put: TypeAlias = "Callable[[bytes | Span], None]"
    Writer: TypeAlias = "Callable[[Any, Put], None]"

T = TypeVar("T")
L = TypeVar("L", bound="Layout")


class Malformed(PeerError):
    """Bytes that do not make the value they should."""


class Truncated(Malformed):
    """The bytes end before the value does."""


class Form(NamedTuple):
    """Which dialect of a protocol, and which version of it."""

    dialect: str
    version: int


# ---- kinds: how one value stands in bytes -------------------------------------------------------------------


class Kind(ABC):
    """What stands in an annotation; `name` is its word in the documents."""

    name: str

    def bind(self, _plain: Any) -> Kind:
        """The kind for the annotated type, once that is known."""
        return self

    def at(self, _form: Form) -> Kind:
        """The kind in one form."""
        return self

    @abstractmethod
    def bytes_min(self, form: Form) -> int:
        """The fewest bytes a value takes."""

    @abstractmethod
    def reader(self, form: Form) -> Reader:
        """What takes a value out of bytes."""

    @abstractmethod
    def writer(self, form: Form) -> Writer:
        """What puts a value's pieces."""


@dataclass(frozen=True)
class Fixed(Kind):
    """One character of the struct module; `wrap` makes the value of what struct gives."""

    name: str
    code: str
    wrap: Callable[[Any], Any] | None = None

    def bytes_min(self, _form: Form) -> int:
        return struct.calcsize(f"!{self.code}")

    def reader(self, _form: Form) -> Reader:
        packed, wrap = struct.Struct(f"!{self.code}"), self.wrap

        def read(data: memoryview, at: int) -> tuple[Any, int]:
            (value,) = packed.unpack_from(data, at)
            return (wrap(value) if wrap else value), at + packed.size

        return read

    def writer(self, _form: Form) -> Writer:
        pack = struct.Struct(f"!{self.code}").pack
        return lambda value, put: put(pack(value))


@dataclass(frozen=True)
class Sized(Kind):
    """A length, then so many bytes; a length below zero is read as zero.  `text` is UTF-8."""

    name: str
    code: str
    text: bool

    def bytes_min(self, _form: Form) -> int:
        return struct.calcsize(f"!{self.code}")

    def reader(self, _form: Form) -> Reader:
        length, text, name = struct.Struct(f"!{self.code}"), self.text, self.name

        def read(data: memoryview, at: int) -> tuple[Any, int]:
            (size,) = length.unpack_from(data, at)
            at += length.size
            if size <= 0:
                return ("" if text else b""), at
            end = at + size
            if end > len(data):
                raise Truncated(f"byte {at}: {name} says {size} bytes, {len(data) - at} are there")
            return (str(data[at:end], "utf-8") if text else bytes(data[at:end])), end

        return read

    def writer(self, _form: Form) -> Writer:
        length, text = struct.Struct(f"!{self.code}"), self.text

        def write(value: Any, put: Put) -> None:
            body = value.encode("utf-8") if text else value
            put(length.pack(len(body)) + body)

        return write


@dataclass(frozen=True)
class Many(Kind):
    """A count, then so many elements; a count below zero is read as zero."""

    name: str
    code: str
    count_max: int
    element: Kind | None = None

    def bind(self, plain: Any) -> Kind:
        (inner,) = typing.get_args(plain)
        return Many(self.name, self.code, self.count_max, kind_of(inner))

    def bytes_min(self, _form: Form) -> int:
        return struct.calcsize(f"!{self.code}")

    def counter(self, form: Form) -> Callable[[memoryview, int], int]:
        """What reads the count at a place, if there can be so many."""
        assert self.element is not None
        packed, smallest = struct.Struct(f"!{self.code}"), self.element.at(form).bytes_min(form)

        def counted(data: memoryview, at: int) -> int:
            count: int = packed.unpack_from(data, at)[0]
            left = len(data) - at - packed.size
            if count * smallest > left:
                raise Truncated(f"byte {at}: {self.name} of {count} elements, {left + packed.size} bytes are there")
            if count > self.count_max:
                raise Malformed(f"byte {at}: {self.name} of {count} elements, the limit is {self.count_max}")
            return max(count, 0)

        return counted

    def reader(self, form: Form) -> Reader:
        assert self.element is not None
        element, counted = self.element.at(form), self.counter(form)
        width, read_one = struct.calcsize(f"!{self.code}"), element.reader(form)

        def read(data: memoryview, at: int) -> tuple[list[Any], int]:
            count, found = counted(data, at), []
            at += width
            for _ in range(count):
                value, at = read_one(data, at)
                found.append(value)
            return found, at

        def read_fixed(data: memoryview, at: int) -> tuple[list[Any], int]:
            assert isinstance(element, Fixed)
            packed = struct.Struct(f"!{counted(data, at)}{element.code}")
            return list(packed.unpack_from(data, at + width)), at + width + packed.size

        return read_fixed if isinstance(element, Fixed) and element.wrap is None else read

    def writer(self, form: Form) -> Writer:
        assert self.element is not None
        write_one, pack = self.element.at(form).writer(form), struct.Struct(f"!{self.code}").pack

        def write(values: list[Any], put: Put) -> None:
            if len(values) > self.count_max:
                raise Misuse(f"{self.name} holds at most {self.count_max} elements, not {len(values)}")
            put(pack(len(values)))
            for value in values:
                write_one(value, put)

        return write


class Rows(Kind):
    """An array that may also be given as bytes that were made for it, count included."""

    name = "ARRAY"

    def __init__(self, array: Kind) -> None:
        self.array = array

    def bind(self, plain: Any) -> Kind:
        return Rows(self.array.bind(typing.get_args(plain)[0]))

    def bytes_min(self, form: Form) -> int:
        return self.array.bytes_min(form)

    def reader(self, form: Form) -> Reader:
        return self.array.reader(form)

    def writer(self, form: Form) -> Writer:
        write_list = self.array.writer(form)
        return lambda value, put: put(value) if isinstance(value, bytes) else write_list(value, put)


@dataclass(frozen=True)
class Possible(Kind):
    """A BOOLEAN, then the value if it is true."""

    name: str
    element: Kind | None = None

    def bind(self, plain: Any) -> Kind:
        inner = [one for one in typing.get_args(plain) if one is not type(None)]
        return Possible(self.name, kind_of(inner[0]))

    def bytes_min(self, _form: Form) -> int:
        return 1

    def reader(self, form: Form) -> Reader:
        assert self.element is not None
        read_one = self.element.at(form).reader(form)

        def read(data: memoryview, at: int) -> tuple[Any, int]:
            (there,) = struct.unpack_from("!?", data, at)
            return read_one(data, at + 1) if there else (None, at + 1)

        return read

    def writer(self, form: Form) -> Writer:
        assert self.element is not None
        write_one = self.element.at(form).writer(form)

        def write(value: Any, put: Put) -> None:
            put(b"\0" if value is None else b"\1")
            if value is not None:
                write_one(value, put)

        return write


class Nested(Kind):
    """Another layout, field after field."""

    def __init__(self, layout: type[Layout]) -> None:
        self.layout = layout
        self.name = layout.__name__

    def bytes_min(self, form: Form) -> int:
        return sum(one.kind.at(form).bytes_min(form) for one in parts(self.layout, form) if one.unless is None)

    def reader(self, form: Form) -> Reader:
        return codec(self.layout, form)[1]

    def writer(self, form: Form) -> Writer:
        return codec(self.layout, form)[0]


class By(Kind):
    """A kind that depends on the dialect."""

    def __init__(self, **kinds: Kind) -> None:
        self.kinds = kinds
        self.name = ", ".join(f"{dialect}: {kind.name}" for dialect, kind in kinds.items())

    def at(self, form: Form) -> Kind:
        return self.kinds[form.dialect]

    def bytes_min(self, form: Form) -> int:
        return self.at(form).bytes_min(form)

    def reader(self, form: Form) -> Reader:
        return self.at(form).reader(form)

    def writer(self, form: Form) -> Writer:
        return self.at(form).writer(form)


class Only(NamedTuple):
    """The field is there in one dialect only, from one version on; several of these add up."""

    dialect: str
    since: int = 0


class Unless(NamedTuple):
    """The field is missing when an earlier one of the same layout has this value."""

    field: str
    value: object


INT8, UINT8, INT16, UINT16 = (
    Fixed("BYTE", "b"),
    Fixed("unsigned BYTE", "B"),
    Fixed("SHORT", "h"),
    Fixed("unsigned SHORT", "H"),
)
INT32, UINT32, INT64, FLOAT64 = Fixed("INT", "i"), Fixed("unsigned INT", "I"), Fixed("LONG", "q"), Fixed("DOUBLE", "d")
TEXT8, TEXT16 = Sized("STRING1", "b", text=True), Sized("STRING", "h", text=True)
TEXT32, BYTES32 = Sized("BYTES, text", "i", text=True), Sized("BYTES", "i", text=False)

Int8 = Annotated[int, INT8]
Uint8 = Annotated[int, UINT8]
Int16 = Annotated[int, INT16]
Uint16 = Annotated[int, UINT16]
Int32 = Annotated[int, INT32]
Uint32 = Annotated[int, UINT32]
Int64 = Annotated[int, INT64]
Float64 = Annotated[float, FLOAT64]
Bool = Annotated[bool, Fixed("BOOLEAN", "?")]
Text8 = Annotated[str, TEXT8]
Text16 = Annotated[str, TEXT16]
Bytes32 = Annotated[bytes, BYTES32]
ARRAY16 = Many("ARRAY", "h", (1 << 15) - 1)
Array16 = Annotated[list[T], ARRAY16]
Maybe = Annotated[T | None, Possible("BOOLEAN, then if true")]


# ---- flags -----------------------------------------------------------------------------------------------------


class Bits(NamedTuple):
    """How many bits a member takes."""

    width: int


class Flags(int):
    """A number whose bits are members, declared high bit first; `of` makes one from them."""

    members: ClassVar[dict[str, tuple[int, int]]]  # name -> (shift, bits)
    bits: ClassVar[int]

    def __init_subclass__(cls, *, bits: int) -> None:
        cls.bits = bits
        cls.members = {}
        left = bits
        for name, hint in typing.get_type_hints(cls, include_extras=True).items():
            count = next((one.width for one in getattr(hint, "__metadata__", ()) if isinstance(one, Bits)), 0)
            if count:
                left -= count
                cls.members[name] = (left, count)
                setattr(cls, name, property(functools.partial(_member, left, (1 << count) - 1)))
        assert left == 0, f"the members of {cls.__name__} take {bits - left} bits, not {bits}"

    @classmethod
    def of(cls, **values: int) -> typing.Self:
        """From members by name; the others are zero."""
        number = 0
        for name, value in values.items():
            shift, count = cls.members[name]
            if not 0 <= value < 1 << count:
                raise Misuse(f"{name} has {count} bits, {value} does not fit")
            number |= value << shift
        return cls(number)


def _member(shift: int, mask: int, number: Flags) -> int:
    return int(number) >> shift & mask


# ---- layouts ---------------------------------------------------------------------------------------------------


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class Layout:
    """A class of this kind is a dataclass whose annotations are wire kinds; its fields are given by name."""

    def __init_subclass__(cls) -> None:
        dataclass(cls, kw_only=True)


class Part(NamedTuple):
    """One field of a layout."""

    name: str
    kind: Kind
    only: tuple[Only, ...]
    unless: Unless | None
    default: Any

    def is_in(self, form: Form) -> bool:
        return not self.only or any(one.dialect == form.dialect and form.version >= one.since for one in self.only)


def kind_of(hint: Any) -> Kind:
    """The kind that an annotation names."""
    if isinstance(hint, type) and issubclass(hint, Layout):
        return Nested(hint)
    if isinstance(hint, type) and issubclass(hint, Flags):
        return Fixed(f"{hint.bits} bits", {8: "B", 16: "H", 32: "I"}[hint.bits], hint)
    for one in getattr(hint, "__metadata__", ()):
        if isinstance(one, Kind):
            return one.bind(hint.__origin__)
    raise TypeError(f"{hint} is no wire kind")


def all_parts(layout: type[Layout]) -> tuple[Part, ...]:
    """The fields of a layout, in wire order."""
    hints = typing.get_type_hints(layout, include_extras=True)
    found = []
    for one in fields(layout):  # type: ignore[arg-type]  # a subclass of Layout is made a dataclass when it is defined
        metadata = getattr(hints[one.name], "__metadata__", ())
        only = tuple(note for note in metadata if isinstance(note, Only))
        unless = next((note for note in metadata if isinstance(note, Unless)), None)
        default = None if one.default is MISSING else one.default
        found.append(Part(one.name, kind_of(hints[one.name]), only, unless, default))
    return tuple(found)


def parts(layout: type[Layout], form: Form) -> tuple[Part, ...]:
    """The fields that are there in one form."""
    return tuple(part for part in all_parts(layout) if part.is_in(form))


# ---- compiling ---------------------------------------------------------------------------------------------------


class Source:
    """Lines of the two functions of a layout, and the names they use."""

    def __init__(self) -> None:
        self.encode = ["def encode(value, put):"]
        self.decode = ["def decode(data, at):"]
        self.names: dict[str, Any] = {}
        self._run: list[tuple[str, Fixed]] = []

    def fixed(self, name: str, kind: Fixed) -> None:
        self._run.append((name, kind))

    def other(self, part: Part, kind: Kind, form: Form) -> None:
        self.flush()
        number = len(self.names)
        self.names[f"read_{number}"], self.names[f"write_{number}"] = kind.reader(form), kind.writer(form)
        read = f"f_{part.name}, at = read_{number}(data, at)"
        write = f"write_{number}(value.{part.name}, put)"
        if part.unless is None:
            self.decode.append(f"    {read}")
            self.encode.append(f"    {write}")
        else:
            self.names[f"missing_{number}"], self.names[f"default_{number}"] = part.unless.value, part.default
            self.decode.append(f"    if f_{part.unless.field} == missing_{number}: f_{part.name} = default_{number}")
            self.decode.append(f"    else: {read}")
            self.encode.append(f"    if value.{part.unless.field} != missing_{number}: {write}")

    def flush(self) -> None:
        """Writes the neighbouring fixed fields as one struct call."""
        if not self._run:
            return
        packed, number = struct.Struct("!" + "".join(kind.code for _, kind in self._run)), len(self.names)
        self.names[f"unpack_{number}"], self.names[f"pack_{number}"] = packed.unpack_from, packed.pack
        self.decode.append(f"    {', '.join(f'f_{name}' for name, _ in self._run)}, = unpack_{number}(data, at)")
        self.decode.append(f"    at += {packed.size}")
        for name, kind in self._run:
            if kind.wrap is not None:
                self.names[f"wrap_{name}"] = kind.wrap
                self.decode.append(f"    f_{name} = wrap_{name}(f_{name})")
        self.encode.append(f"    put(pack_{number}({', '.join(f'value.{name}' for name, _ in self._run)}))")
        self._run = []


CODECS: dict[tuple[type[Layout], Form], tuple[Writer, Reader]] = {}


def codec(layout: type[Layout], form: Form) -> tuple[Writer, Reader]:
    """The functions of a layout in one form, compiled when they are first wanted."""
    made = CODECS.get((layout, form))
    if made is None:
        made = CODECS[layout, form] = compiled(layout, form)
    return made


def compiled(layout: type[Layout], form: Form) -> tuple[Writer, Reader]:
    source = Source()
    present = parts(layout, form)
    for part in present:
        kind = part.kind.at(form)
        if isinstance(kind, Fixed) and part.unless is None:
            source.fixed(part.name, kind)
        else:
            source.other(part, kind, form)
    source.flush()
    source.decode.append(f"    return make({', '.join(f'{part.name}=f_{part.name}' for part in present)}), at")
    source.encode.append("    return None")
    names = {**source.names, "make": layout}
    exec(compile("\n".join([*source.encode, *source.decode]), f"<{layout.__name__} {form}>", "exec"), names)
    return names["encode"], names["decode"]


# ---- using -------------------------------------------------------------------------------------------------------


def decode(layout: type[L], data: bytes | memoryview, form: Form, at: int = 0) -> tuple[L, int]:
    """The value that starts at a byte, and where it ends."""
    try:
        return codec(layout, form)[1](memoryview(data), at)
    except struct.error as error:
        raise Truncated(f"{layout.__name__} ({form.dialect}, version {form.version}): {error}") from None
    except UnicodeDecodeError as error:
        raise Malformed(f"{layout.__name__} ({form.dialect}, version {form.version}): {error}") from None


def encode(value: Layout, form: Form) -> list[bytes | Span]:
    """The value's bytes in pieces; spans among them are as they were given."""
    pieces: list[bytes | Span] = []
    try:
        codec(type(value), form)[0](value, pieces.append)
    except (struct.error, AttributeError, TypeError) as error:
        raise Misuse(f"{value!r} is no {type(value).__name__} of {form}: {error}") from None
    return pieces
