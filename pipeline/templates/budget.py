"""Budget: how much one rendering may do, counted in steps and characters instead of seconds."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jinja2 import TemplateRuntimeError

STEPS = 5_000_000
CHARACTERS = 1 << 29
LARGEST = 64_000_000
"""Characters of the longest text, rendered or on the way; a list's element counts as some."""
_ELEMENT = 8
CALL = 20
"""Steps of a call or a filter, which take longer than a turn of an empty loop."""
_PART = 4
_LARGEST_NUMBER_BITS = 10_000
_TEXT_FILTERS = {
    *("capitalize", "center", "e", "escape", "forceescape", "indent", "lower", "replace", "safe"),
    *("string", "striptags", "title", "tojson", "trim", "truncate", "upper", "urlencode"),
    "wordcount",
}
_REFUSED = {"translate", "to_bytes"}
_DIGITS = re.compile(r"\d+")


class ExhaustedError(TemplateRuntimeError):
    """A rendering did more than it may: raised instead of going on."""


class Budget:
    """What is left of a rendering's steps and characters."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Start anew."""
        self.steps = STEPS
        self.characters = CHARACTERS

    def step(self, count: int = 1) -> None:
        """Count a step: a turn of a loop, a call, a filter, a value looked at."""
        self.steps -= count
        if self.steps < 0:
            raise ExhaustedError

    def take(self, characters: int) -> None:
        """Count characters that are about to be made, or looked through."""
        self.characters -= characters
        if characters > LARGEST or self.characters < 0:
            raise ExhaustedError

    def take_value(self, value: Any) -> None:
        """Count a value by its own length."""
        if isinstance(value, (str, bytes)):
            self.take(len(value))
        elif isinstance(value, (list, tuple, dict)):
            self.take(len(value) * _ELEMENT)

    def take_text_of(self, value: Any, indent: int = 0) -> None:
        """Count what a value would take as text; parts that are in it twice count twice."""
        if isinstance(value, str):
            self.take(len(value))
            return
        waiting = [(value, 1)]
        total = 0
        while waiting:
            part, depth = waiting.pop()
            self.step(_PART)
            total += 4 + indent * depth
            if isinstance(part, (str, bytes)):
                total += len(part)
            elif isinstance(part, int):
                total += part.bit_length() // 3
            elif isinstance(part, Mapping):
                waiting += [(inner, depth + 1) for item in part.items() for inner in item]
            elif isinstance(part, (list, tuple)):
                waiting += [(inner, depth + 1) for inner in part]
            if total > LARGEST:
                raise ExhaustedError
        self.take(total)

    def take_operation(self, operator: str, left: Any, right: Any) -> None:
        """Count what `left operator right` is going to make."""
        if isinstance(left, str) and operator == "%":
            self.take(self._formatted(left, "%", [right]))
        elif isinstance(left, int) and isinstance(right, int):
            bits, more = left.bit_length(), right.bit_length()
            size = {"*": bits + more, "**": bits * max(0, right)}.get(operator, 0)
            if size > _LARGEST_NUMBER_BITS:
                raise ExhaustedError
        elif operator == "*":
            for several, times in ((left, right), (right, left)):
                if isinstance(several, (str, bytes, list, tuple)) and isinstance(times, int):
                    self.take(len(several) * max(0, times) * _weight(several))
        elif operator == "+":
            self.take_value(left)
            self.take_value(right)

    def take_call(self, name: str, subject: Any, arguments: Sequence[Any]) -> None:
        """Count what a method or filter of this name is going to make of its subject."""
        self.step(CALL)
        self.take_value(subject)
        text = subject if isinstance(subject, str) else ""
        widest = max(_widths(arguments), default=0)
        if name in _TEXT_FILTERS and not text:
            self.take_text_of(subject, widest if name == "tojson" else 0)
        if name in {"center", "ljust", "rjust", "zfill"}:
            self.take(widest)
        elif name in {"indent", "expandtabs"}:
            self.take((text.count("\n") + text.count("\t") + 1) * max(widest, 8))
        elif name == "replace" and len(arguments) > 1:
            self.take(text.count(str(arguments[0])) * len(str(arguments[1])))
        elif name in {"split", "rsplit", "splitlines", "list"}:
            between = arguments[0] if arguments and isinstance(arguments[0], str) else ""
            self.take((text.count(between) if between else len(text) // 2) * _ELEMENT)
        elif name in {"format", "format_map"}:
            self.take(self._formatted(text, "{%", arguments))
        elif name in _REFUSED or (name == "sum" and any(map(_is_several, arguments))):
            raise ExhaustedError

    def joined(self, parts: tuple[Any, ...]) -> str | None:
        """Count parts and return them as one text, None if they aren't texts."""
        try:
            size = sum(map(len, parts))
            if size > LARGEST or size > self.characters or len(parts) > self.steps:
                raise ExhaustedError
            text = "".join(parts)
        except TypeError:
            return None
        self.steps -= len(parts)
        self.characters -= size
        return text

    def take_joined(self, parts: Iterable[Any], between: str = "") -> list[Any]:
        """Count parts that are going to be one text, and return them."""
        kept = list(parts)
        self.step(len(kept))
        total = len(between) * len(kept)
        for part in kept:
            if isinstance(part, str):
                total += len(part)
            else:
                self.take_text_of(part)
        self.take(total)
        return kept

    def _formatted(self, text: str, marks: str, arguments: Sequence[Any]) -> int:
        """Return the most that a format can make: each place as wide as any number in sight."""
        widths = [int(digits[:20]) for digits in _DIGITS.findall(text)]
        for argument in arguments:
            self.take_text_of(argument)
            inner = argument.values() if isinstance(argument, Mapping) else argument
            widths += _widths(inner if _is_several(argument) else [argument])
        places = sum(text.count(mark) for mark in marks)
        return len(text) + places * max([*widths, 32])


def _widths(values: Iterable[Any]) -> list[int]:
    """Return the numbers among values, and the lengths of the texts."""
    found = [value for value in values if isinstance(value, (int, str))]
    return [len(value) if isinstance(value, str) else value for value in found]


def _is_several(value: Any) -> bool:
    return isinstance(value, (list, tuple, Mapping))


def _weight(several: Any) -> int:
    return 1 if isinstance(several, (str, bytes)) else _ELEMENT
