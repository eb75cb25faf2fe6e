"""Error messages, kept in parts so that another API can rename arguments; values are short."""

import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

_repr = reprlib.Repr()
_repr.maxtuple = _repr.maxlist = 12  # more than the axes of any layer
_repr.maxlevel = 2  # pairs of pads, but not the numbers of an image


def short(value: object) -> str:
    """Show a value on one short line."""
    try:
        return " ".join(_repr.repr(value).split())
    except Exception:  # an int of thousands of digits, or a __repr__ that raises
        return f"a value of type {type(value).__name__} that cannot be shown"


def shown(value: object) -> str:
    """Show a value and its type on one short line."""
    return short(value) if value is None else f"{short(value)} ({type(value).__name__})"


def either(names: Iterable[str]) -> str:
    """Join alternatives, as in "a, b or c"."""
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last


#: What names an argument in a message.
_NAMES = r"(?<=`)\w+(?=`)|(?<!['\"])\b(?:src|dst)\b(?!['\"])|\bgroups(?= ?=)"

#: A hint about formats, and the words for an API whose formats are given.
CHANNELS_LAST = "These shapes would fit data_format='NXC'"
MOVE_CHANNELS = "Channels last would fit: move them to just before the spatial axes"


class Refusal(str):
    """The message of an error, which keeps its parts: they name arguments as `_NAMES` has it."""

    parts: dict[str, str]

    def __new__(
        cls, op: str, argument: str, rule: str, got: str, remedy: str = "", formats: str = ""
    ) -> "Refusal":
        """Write the message. `formats` is a remedy, too: formats that would fit."""
        text = f"{op}: `{argument}` {rule}" if argument else f"{op}: {rule}"
        text += f"; got {got}" if got else ""
        message = super().__new__(cls, ". ".join(filter(None, (text, remedy, formats))))
        message.parts = {
            "op": op, "argument": argument, "rule": rule, "got": got, "remedy": remedy,
            "formats": formats,
        }  # fmt: skip
        return message

    def __reduce__(self) -> tuple[Any, ...]:
        return Refusal, tuple(self.parts.values())

    def with_parts(self, **parts: str) -> "Refusal":
        """Write the message with other parts."""
        return Refusal(**self.parts | parts)

    def rename(self, op: str, names: Mapping[str, str]) -> "Refusal":
        """Rename the operation and its arguments. With new names, the formats are given."""
        parts = {
            part: re.sub(_NAMES, lambda found: names.get(found[0], found[0]), text)
            for part, text in self.parts.items()
        }
        argument, formats = (self.parts[part] for part in ("argument", "formats"))
        if names:
            formats = MOVE_CHANNELS if formats == CHANNELS_LAST else ""
        argument = names.get(argument, argument)
        # Pads at both ends may have one name there.
        parts["rule"] = parts["rule"].removeprefix(f"and `{argument}` ")
        parts |= {"argument": argument, "formats": formats}
        return Refusal(**parts | {"op": op})


@contextmanager
def named(op: str, names: Mapping[str, str] = MappingProxyType({})) -> Iterator[None]:
    """Name the operation and its arguments as another API does, in errors raised inside."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if not error.args or not isinstance(message := error.args[0], Refusal):
            raise
        raise type(error)(message.rename(op, names)) from error.__cause__


def one_line(error: Exception) -> str:
    """Write an error without its traceback and the tail of its message."""
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"
