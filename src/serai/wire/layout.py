"""Layouts: a class whose annotations are wire kinds, in wire order, is a codec.

    class Place(Layout):
        partition: Int16                                    #: partition of the topic
        index: Int64                                        #: first index wanted
        left: Annotated[Int64, Only("real", since=3)] = -1  #: only some peers send it

    encode(Place(partition=0, index=7), form)  ->  pieces of bytes
    decode(Place, data, form)                  ->  Place(partition=0, index=7, left=-1), where it ended

A **form** is a dialect's name and version.  What a field looks like, and whether it is there at all, may depend on it;
nothing else may.  For each class and form one encode and one decode function are written and compiled when they are first
wanted; layouts inside it are written inline, and neighbouring fields of fixed width share one struct call.

Invariants
- bytes that do not make a value raise Malformed (Truncated when more bytes would help), and nothing else
- a count or a length is compared with the bytes that are there before anything is made of it
- what was encoded decodes to an equal value, and ends where it ended
- surplus bytes behind a value are the caller's: later versions of a peer add fields

Left to others: which layouts there are (each door's schema), docs, strategies and dumps (describe).
"""

from __future__ import annotations

import struct
import typing
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields
from typing import Annotated, Any, ClassVar, NamedTuple, TypeAlias, TypeVar, dataclass_transform

from serai.errors import Misuse, PeerError
from serai.wire.buffer import Span

if typing.TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
    """What stands in an annotation; `name` is its word in the documents.

    A kind writes the lines that take one value out of bytes, or put its pieces: a call for each value costs several
    times what lines do (benchmarks/frames.py).
    """

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
    def decode(self, code: Decoding, target: str, form: Form) -> None:
        """Writes the lines that set `target` from `data` at `at`, and move `at` on."""

    @abstractmethod
    def encode(self, code: Encoding, value: str, form: Form) -> None:
        """Writes the lines that `put` the pieces of `value`."""


@dataclass(frozen=True)
class Fixed(Kind):
    """One character of the struct module; `wrap` makes the value of what struct gives."""

    name: str
    code: str
    wrap: Callable[[Any], Any] | None = None

    def bytes_min(self, _form: Form) -> int:
        return struct.calcsize(f"!{self.code}")

    def decode(self, code: Decoding, target: str, _form: Form) -> None:
        code.fixed(target, self)

    def encode(self, code: Encoding, value: str, _form: Form) -> None:
        code.fixed(value, self)


@dataclass(frozen=True)
class Sized(Kind):
    """A length, then so many bytes; a length below zero is read as zero.  `text` is UTF-8."""

    name: str
    code: str
    text: bool

    def bytes_min(self, _form: Form) -> int:
        return struct.calcsize(f"!{self.code}")

    def decode(self, code: Decoding, target: str, _form: Form) -> None:
        size = code.fresh()
        code.fixed(size, Fixed(self.name, self.code))
        code.line(f"if {size} <= 0: {target} = {'' if self.text else b''!r}")
        with code.block("else:"):
            code.line(f"end = at + {size}")
            code.line(f"if end > len(data): raise {code.name(cut)}({self.name!r}, {size}, data, at)")
            code.line(f"{target} = " + ("str(data[at:end], 'utf-8')" if self.text else "bytes(data[at:end])"))
            code.line("at = end")

    def encode(self, code: Encoding, value: str, _form: Form) -> None:
        body = code.fresh()
        code.aside(f"{body} = {value}" + (".encode()" if self.text else ""))
        code.fixed(f"len({body})", Fixed(self.name, self.code))
        code.line(f"put({body})")


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

    def decode(self, code: Decoding, target: str, form: Form) -> None:
        assert self.element is not None
        element, count = self.element.at(form), code.fresh()
        smallest, width = element.bytes_min(form), struct.calcsize(f"!{self.code}")
        code.fixed(count, Fixed(self.name, self.code))
        with code.block(f"if {count} > {self.count_max} or {count} * {smallest} > len(data) - at:"):
            checked = f"{self.name!r}, {count}, {self.count_max}, {smallest}, data, at - {width}, {width}"
            code.line(f"raise {code.name(overfull)}({checked})")
        if isinstance(element, Fixed) and element.wrap is None:
            code.line(f"{count} = max({count}, 0)")
            code.line(f"{target} = list({code.name(struct.unpack_from)}(f'!{{{count}}}{element.code}', data, at))")
            code.line(f"at += {count} * {smallest}")
            return
        one = code.fresh()
        code.line(f"{target} = []")
        with code.block(f"for _ in range({count}):"):
            element.decode(code, one, form)
            code.line(f"{target}.append({one})")

    def encode(self, code: Encoding, value: str, form: Form) -> None:
        assert self.element is not None
        one = code.fresh()
        with code.block(f"if len({value}) > {self.count_max}:"):
            code.line(f"raise {code.name(uncountable)}({self.name!r}, {self.count_max}, len({value}))")
        code.fixed(f"len({value})", Fixed(self.name, self.code))
        with code.block(f"for {one} in {value}:"):
            self.element.at(form).encode(code, one, form)


class Rows(Kind):
    """An array that may also be given as bytes that were made for it, count included."""

    name = "ARRAY"

    def __init__(self, array: Kind) -> None:
        self.array = array

    def bind(self, plain: Any) -> Kind:
        return Rows(self.array.bind(typing.get_args(plain)[0]))

    def bytes_min(self, form: Form) -> int:
        return self.array.bytes_min(form)

    def decode(self, code: Decoding, target: str, form: Form) -> None:
        self.array.decode(code, target, form)

    def encode(self, code: Encoding, value: str, form: Form) -> None:
        code.line(f"if isinstance({value}, bytes): put({value})")
        with code.block("else:"):
            self.array.encode(code, value, form)


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

    def decode(self, code: Decoding, target: str, form: Form) -> None:
        assert self.element is not None
        there = code.fresh()
        code.fixed(there, Fixed(self.name, "?"))
        code.line(f"{target} = None")
        with code.block(f"if {there}:"):
            self.element.at(form).decode(code, target, form)

    def encode(self, code: Encoding, value: str, form: Form) -> None:
        assert self.element is not None
        code.fixed(f"{value} is not None", Fixed(self.name, "?"))
        with code.block(f"if {value} is not None:"):
            self.element.at(form).encode(code, value, form)


class Nested(Kind):
    """Another layout, field after field."""

    def __init__(self, layout: type[Layout]) -> None:
        self.layout = layout
        self.name = layout.__name__

    def bytes_min(self, form: Form) -> int:
        return sum(one.kind.at(form).bytes_min(form) for one in parts(self.layout, form) if one.unless is None)

    def decode(self, code: Decoding, target: str, form: Form) -> None:
        found = {part.name: code.fresh() for part in parts(self.layout, form)}
        for part in parts(self.layout, form):
            place, kind = found[part.name], part.kind.at(form)
            if part.unless is None:
                kind.decode(code, place, form)
                continue
            missing, default = code.name(part.unless.value), code.name(part.default)
            code.line(f"if {found[part.unless.field]} == {missing}: {place} = {default}")
            with code.block("else:"):
                kind.decode(code, place, form)
        given = ", ".join(f"{name}={place}" for name, place in found.items())
        code.line(f"{target} = {code.name(self.layout)}({given})")

    def encode(self, code: Encoding, value: str, form: Form) -> None:
        for part in parts(self.layout, form):
            kind = part.kind.at(form)
            if part.unless is None:
                kind.encode(code, f"{value}.{part.name}", form)
                continue
            with code.block(f"if {value}.{part.unless.field} != {code.name(part.unless.value)}:"):
                kind.encode(code, f"{value}.{part.name}", form)


class By(Kind):
    """A kind that depends on the dialect."""

    def __init__(self, **kinds: Kind) -> None:
        self.kinds = kinds
        self.name = ", ".join(f"{dialect}: {kind.name}" for dialect, kind in kinds.items())

    def at(self, form: Form) -> Kind:
        return self.kinds[form.dialect]

    def bytes_min(self, form: Form) -> int:
        return self.at(form).bytes_min(form)

    def decode(self, code: Decoding, target: str, form: Form) -> None:
        self.at(form).decode(code, target, form)

    def encode(self, code: Encoding, value: str, form: Form) -> None:
        self.at(form).encode(code, value, form)


# ---- what the lines call when a value cannot be right


def cut(name: str, size: int, data: memoryview, at: int) -> Truncated:
    return Truncated(f"byte {at}: {name} says {size} bytes, {len(data) - at} are there")


def overfull(name: str, count: int, count_max: int, smallest: int, data: memoryview, at: int, width: int) -> Malformed:
    if count * smallest > len(data) - at - width:
        return Truncated(f"byte {at}: {name} of {count} elements, {len(data) - at} bytes are there")
    return Malformed(f"byte {at}: {name} of {count} elements, the limit is {count_max}")


def uncountable(name: str, count_max: int, count: int) -> Misuse:
    return Misuse(f"{name} holds at most {count_max} elements, not {count}")


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
                setattr(cls, name, _member(left, (1 << count) - 1))
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


def _member(shift: int, mask: int) -> property:
    return property(lambda number: number >> shift & mask)


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


class Code(ABC):
    """Lines of a function that is being written, and the names they use.

    Neighbouring values of fixed width are gathered, and `settle` makes one struct call of them.
    """

    def __init__(self, head: str) -> None:
        self.lines = [head]
        self.names: dict[str, Any] = {}
        self._depth = 1
        self._places = 0
        self._run: list[tuple[str, Fixed]] = []

    def fixed(self, place: str, kind: Fixed) -> None:
        """A value of fixed width."""
        self._run.append((place, kind))

    def line(self, text: str) -> None:
        """A line behind everything so far."""
        self.settle()
        self.aside(text)

    def aside(self, text: str) -> None:
        """A line that may stand in front of the values that are being gathered."""
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines that belong to a head."""
        self.line(head)
        self._depth += 1
        yield
        self.settle()
        self._depth -= 1

    def name(self, thing: Any) -> str:
        """What a thing is called in the lines."""
        self.names[f"n{len(self.names)}"] = thing
        return f"n{len(self.names) - 1}"

    def fresh(self) -> str:
        """A variable that nobody has."""
        self._places += 1
        return f"v{self._places}"

    def settle(self) -> None:
        """Writes the values that were gathered as one struct call."""
        if self._run:
            run, self._run = self._run, []
            self.gathered(run, struct.Struct("!" + "".join(kind.code for _, kind in run)))

    @abstractmethod
    def gathered(self, run: list[tuple[str, Fixed]], packed: struct.Struct) -> None:
        """Writes that call."""

    def made(self) -> Any:
        """The function."""
        self.settle()
        names = dict(self.names)
        exec(compile("\n".join(self.lines), "<layout>", "exec"), names)
        return names["code"]


class Decoding(Code):
    """The function that takes a value out of bytes."""

    def gathered(self, run: list[tuple[str, Fixed]], packed: struct.Struct) -> None:
        self.aside(f"{', '.join(place for place, _ in run)}, = {self.name(packed.unpack_from)}(data, at)")
        self.aside(f"at += {packed.size}")
        for place, kind in run:
            if kind.wrap is not None:
                self.aside(f"{place} = {self.name(kind.wrap)}({place})")


class Encoding(Code):
    """The function that puts a value's pieces."""

    def gathered(self, run: list[tuple[str, Fixed]], packed: struct.Struct) -> None:
        self.aside(f"put({self.name(packed.pack)}({', '.join(place for place, _ in run)}))")


CODECS: dict[tuple[type[Layout], Form], tuple[Writer, Reader]] = {}


def codec(layout: type[Layout], form: Form) -> tuple[Writer, Reader]:
    """The functions of a layout in one form, compiled when they are first wanted."""
    made = CODECS.get((layout, form))
    if made is None:
        made = CODECS[layout, form] = compiled(layout, form)
    return made


def compiled(layout: type[Layout], form: Form) -> tuple[Writer, Reader]:
    writing, reading = Encoding("def code(value, put):"), Decoding("def code(data, at):")
    Nested(layout).encode(writing, "value", form)
    writing.line("return None")
    Nested(layout).decode(reading, "found", form)
    reading.line("return found, at")
    return writing.made(), reading.made()


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
    except (struct.error, AttributeError, TypeError, UnicodeEncodeError) as error:
        raise Misuse(f"{value!r} is no {type(value).__name__} of {form}: {error}") from None
    return pieces
