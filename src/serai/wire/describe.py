"""What else can be made of a layout: its table in the documents, values for tests, a view for people.

    table(layout)                |  field | kind | where | meaning  |  one row for each field, nested ones below theirs
    strategy(layout, form)       values that hypothesis draws, every one of which can be encoded in that form
    show(value)                  the value as indented lines, long bytes cut

The meaning of a field is its `#:` comment, read from the source when it is wanted; that happens in tools and tests only.
"""

from __future__ import annotations

import inspect
import re
import struct
from typing import TYPE_CHECKING, Any

from serai.wire.layout import (
    By,
    Fixed,
    Flags,
    Form,
    Kind,
    Layout,
    Many,
    Nested,
    Part,
    Possible,
    Rows,
    Sized,
    all_parts,
    parts,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hypothesis.strategies import SearchStrategy

MEANING = re.compile(r"^    (?P<name>\w+): .*?#: (?P<meaning>.+)$", re.MULTILINE)
BYTES_SHOWN_MAX = 32


# ---- documents -----------------------------------------------------------------------------------------------------


def meanings(described: type) -> dict[str, str]:
    """The `#:` comment of each member, of inherited ones too."""
    found: dict[str, str] = {}
    for one in reversed(described.__mro__):
        if one.__module__ != "builtins" and (issubclass(one, Layout | Flags)):
            found.update((match["name"], match["meaning"]) for match in MEANING.finditer(inspect.getsource(one)))
    return found


def word(kind: Kind) -> str:
    """A kind in the words of the documents."""
    match kind:
        case Many(name=name, element=Kind() as element):
            return f"{name} of {element.name}" if not isinstance(element, Nested) else name
        case Rows(array=array):
            return word(array)
        case Possible(name=name):
            return name
        case By(kinds=kinds):
            groups: dict[str, list[str]] = {}
            for dialect, one in kinds.items():
                groups.setdefault(word(one), []).append(dialect)
            return "; ".join(f"{', '.join(dialects)}: {said}" for said, dialects in groups.items())
        case _:
            return kind.name


def where(part: Part) -> str:
    """In which dialects and versions a field is there."""
    spots = [f"{one.dialect} from version {one.since}" if one.since else one.dialect for one in part.only]
    if part.unless is not None:
        spots.append(f"unless {part.unless.field} is {part.unless.value}")
    return ", ".join(spots)


def inner(kind: Kind) -> type[Layout] | None:
    """The layout inside a kind, if there is one."""
    match kind:
        case Nested(layout=layout):
            return layout
        case Many(element=Kind() as element) | Possible(element=Kind() as element):
            return inner(element)
        case Rows(array=array):
            return inner(array)
        case _:
            return None


def rows(layout: type[Layout], depth: int = 0) -> Iterator[tuple[str, str, str, str]]:
    """Field, kind, where, meaning; fields of nested layouts behind their own, indented."""
    said = meanings(layout)
    for part in all_parts(layout):
        yield "· " * depth + f"`{part.name}`", word(part.kind), where(part), said.get(part.name, "")
        below = inner(part.kind)
        if below is not None:
            yield from rows(below, depth + 1)


def table(layout: type[Layout]) -> str:
    """A layout as a Markdown table; the third column only when a field is not always there."""
    found = list(rows(layout))
    columns = (0, 1, 2, 3) if any(row[2] for row in found) else (0, 1, 3)
    heads = ("field", "kind", "only in", "meaning")
    lines = [[heads[at] for at in columns], ["---"] * len(columns), *([row[at] for at in columns] for row in found)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def bit_table(flags: type[Flags]) -> str:
    """A number of flags as a Markdown table."""
    said = meanings(flags)
    lines = ["| bits | member | meaning |\n|---|---|---|\n"]
    for name, (shift, count) in flags.members.items():
        bits = str(shift) if count == 1 else f"{shift + count - 1} to {shift}"
        lines.append(f"| {bits} | `{name}` | {said[name]} |\n")
    return "".join(lines)


# ---- values for tests ----------------------------------------------------------------------------------------------


def strategy(
    layout: type[Layout], form: Form, others: Callable[[Kind], SearchStrategy[Any] | None] = lambda _kind: None
) -> SearchStrategy[Any]:
    """Values of a layout; `others` knows the kinds that only a door has."""
    from hypothesis import strategies as st

    drawn = {part.name: part_strategy(part, form, others) for part in parts(layout, form)}

    def made(values: dict[str, Any]) -> Layout:
        for part in parts(layout, form):
            if part.unless is not None and values[part.unless.field] == part.unless.value:
                values[part.name] = part.default
        return layout(**values)

    return st.fixed_dictionaries(drawn).map(made)


def part_strategy(part: Part, form: Form, others: Callable[[Kind], SearchStrategy[Any] | None]) -> SearchStrategy[Any]:
    """Values of a field; the one that makes others go missing is drawn often."""
    return kind_strategy(part.kind.at(form), form, others)


def kind_strategy(kind: Kind, form: Form, others: Callable[[Kind], SearchStrategy[Any] | None]) -> SearchStrategy[Any]:
    """Values of a kind."""
    from hypothesis import strategies as st

    known = others(kind)
    if known is not None:
        return known
    match kind.at(form):
        case Fixed() as fixed:
            return fixed_strategy(fixed)
        case Sized(code=code, text=text):
            size = min(40, (1 << 8 * struct.calcsize(f"!{code}") - 1) - 1)
            if not text:
                return st.binary(max_size=size)
            return st.text(st.characters(codec="utf-8"), max_size=size // 4)
        case Many(element=Kind() as element):
            return st.lists(kind_strategy(element, form, others), max_size=4)
        case Rows(array=array):
            return kind_strategy(array, form, others)
        case Possible(element=Kind() as element):
            return st.none() | kind_strategy(element, form, others)
        case Nested(layout=layout):
            return strategy(layout, form, others)
        case other:
            raise TypeError(f"{other!r} has values that only its door knows")


def fixed_strategy(kind: Fixed) -> SearchStrategy[Any]:
    """Values of one struct character."""
    from hypothesis import strategies as st

    bits = 8 * struct.calcsize(f"!{kind.code}")
    if kind.code == "?":
        return st.booleans()
    if kind.code == "d":
        return st.floats(allow_nan=False)
    if kind.code.endswith("s"):
        return st.binary(min_size=bits // 8, max_size=bits // 8)
    low, high = (0, (1 << bits) - 1) if kind.code.isupper() else (-(1 << bits - 1), (1 << bits - 1) - 1)
    numbers = st.integers(low, high)
    return numbers.map(kind.wrap) if kind.wrap is not None else numbers


# ---- a view for people -----------------------------------------------------------------------------------------------


def show(value: object, indent: int = 0) -> str:
    """A value as lines."""
    pad = "  " * indent
    match value:
        case Layout():
            lines = [f"{pad}{type(value).__name__}"]
            for part in all_parts(type(value)):
                one = getattr(value, part.name)
                if isinstance(one, Layout) or (isinstance(one, list) and one and isinstance(one[0], Layout)):
                    lines.append(f"{pad}  {part.name}:")
                    lines += [show(element, indent + 2) for element in (one if isinstance(one, list) else [one])]
                else:
                    lines.append(f"{pad}  {part.name}: {brief(one)}")
            return "\n".join(lines)
        case _:
            return f"{pad}{brief(value)}"


def brief(value: object) -> str:
    """A single value in a few words."""
    if isinstance(value, bytes) and len(value) > BYTES_SHOWN_MAX:
        return f"{value[:BYTES_SHOWN_MAX].hex()}... ({len(value)} bytes)"
    if isinstance(value, bytes):
        return value.hex() or "(empty)"
    if isinstance(value, Flags):
        named = (f"{name} {getattr(value, name)}" for name in value.members if getattr(value, name))
        return f"{int(value):#x} ({', '.join(named) or 'nothing set'})"
    return repr(value)
