"""Reads types, template arguments and literals of a mangled name.

A type is spelled as soon as it is read, as the text before and after what it declares.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, NamedTuple

from perfkit.errors import PerfkitError
from perfkit.trace.symbols.tables import BUILTIN_TYPES, LITERAL_SUFFIXES, STANDARD_NAMES

_DEEPEST: Final = 50
"""Nested parts; each takes up to ten frames of Python."""
_MOST_WORK: Final = 1_000_000
"""Most characters spelled for a name, intermediate parts included: a text may double with each use of what was spelled
before. A kernel's name of 2,000 characters, spelled in 10,000, takes about 200,000."""
_PART: Final = 100
"""What a part costs besides its characters."""
_NUMBER: Final = re.compile(r"\d{1,6}")
_SEQUENCE: Final = re.compile(r"[0-9A-Z]{0,4}_")


class NotReadableError(PerfkitError):
    """A name is not mangled by the ABI, uses a part of it that is not read, or exceeds a bound."""


class Cursor:
    """A position in a name."""

    def __init__(self, name: str) -> None:
        self._name, self._position = name, 0
        self._depth = 0
        self.work = 0
        """Characters spelled so far, those of intermediate parts too."""

    @property
    def rest(self) -> str:
        """What was not read yet."""
        return self._name[self._position :]

    def _peek(self, length: int = 1) -> str:
        return self._name[self._position : self._position + length]

    def _take(self, length: int) -> str:
        taken = self._peek(length)
        if len(taken) < length:
            raise self._error()
        self._position += length
        return taken

    def _next(self, expected: str) -> bool:
        if not self._name.startswith(expected, self._position):
            return False
        self._position += len(expected)
        return True

    def _need(self, expected: str) -> None:
        if not self._next(expected):
            raise self._error()

    def _number(self) -> int:
        match = _NUMBER.match(self._name, self._position)
        if match is None:
            raise self._error()
        self._position = match.end()
        return int(match[0])

    def _place(self) -> int:
        """Read a place in a list: `_`, `0_`, `1_`, …, `10_`."""
        found = 0 if self._peek() == "_" else self._number() + 1
        self._need("_")
        return found

    def _sequence(self) -> int:
        """Read a place among the substitutions: `_`, `0_`, …, `Z_`, `10_`, in base 36."""
        match = _SEQUENCE.match(self._name, self._position)
        if match is None:
            raise self._error()
        self._position = match.end()
        digits = match[0][:-1]
        return int(digits, 36) + 1 if digits else 0

    def _counted(self, text: str) -> str:
        self.work += len(text) + _PART
        if self.work > _MOST_WORK:
            raise self._error()
        return text

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._error()

    def _leave(self) -> None:
        self._depth -= 1

    def _error(self) -> NotReadableError:
        return NotReadableError(f"not readable from character {self._position} on")


_QUALIFIERS: Final = {"r": " restrict", "V": " volatile", "K": " const"}
_NO_PACK: Final = -1
_REFERENCES: Final = {"R": "&", "O": "&&"}


class Type(NamedTuple):
    """A spelled type."""

    left: str
    right: str = ""
    """What follows a declared name: the parameters of a function, the bounds of an array."""
    reference: str = ""
    """`&` or `&&` if it is a reference: references to references collapse."""
    is_compound: bool = False
    """Whether it is a function or an array: a pointer to it needs parentheses."""

    @property
    def text(self) -> str:
        """The type where it declares nothing."""
        return self.left + self.right


Pack = tuple[Type, ...]
"""The arguments of a variadic template's parameter."""


class TypeParser(Cursor, ABC):
    """Reads types."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._substitutions: list[Type | None] = []
        """What `S_`, `S0_`, … refer to; None for what was spelled for one element of a pack only."""
        self._arguments: list[Type | Pack] = []
        """What `T_`, `T0_`, … refer to."""
        self._element: int | None = None
        """While a pack is expanded: which of its elements is spelled."""
        self._elements = _NO_PACK
        """While a pack is expanded: how many there are."""
        self._in_lambda = False

    @abstractmethod
    def _name_of_type(self) -> str: ...

    @abstractmethod
    def _mangled_name(self) -> str: ...

    # ---- types ----------------------------------------------------------------------------------------------------

    def _type(self) -> Type:
        self._enter()
        found, is_new = self._any_type()
        self._leave()
        self._counted(found.text)
        if is_new:
            self._substitutions.append(found)
        return found

    def _any_type(self) -> tuple[Type, bool]:
        """Return a type, and whether later parts of the name can refer to it."""
        for length in (1, 2, 5):
            if builtin := BUILTIN_TYPES.get(self._peek(length)):
                self._position += length
                return Type(builtin), False
        code = self._peek()
        if code == "S" and self._peek(2) != "St":
            named = self._substitution()
            return (Type(named.text + self._template_arguments()), True) if self._peek() == "I" else (named, False)
        if read := self._compound.get(code):
            return read(self), True
        if code == "D":
            self._need("Dv")
            return self._vector(), True
        return Type(self._name_of_type()), True

    def _qualified(self) -> Type:
        qualifiers = self._read_qualifiers()
        inner = self._type()
        if inner.reference or inner.left.endswith(qualifiers):
            return inner  # a template's argument that is so already
        if not inner.is_compound:
            return inner._replace(left=inner.left + qualifiers)
        if inner.right.startswith("["):
            return inner._replace(left=f"{inner.left.rstrip()}{qualifiers} ")
        return inner._replace(right=inner.right + qualifiers)

    def _read_qualifiers(self) -> str:
        found = [text for code, text in _QUALIFIERS.items() if self._next(code)]
        return "".join(reversed(found))

    def _extended(self) -> Type:
        """Read a vendor's qualifier, such as an address space."""
        self._need("U")
        qualifier = self._take(self._number())
        inner = self._type()
        return inner._replace(left=f"{inner.left} {qualifier}")

    def _pointer(self) -> Type:
        self._need("P")
        return self._pointing(self._type(), "*")

    def _reference(self) -> Type:
        symbol = _REFERENCES[self._take(1)]
        inner = self._type()
        if not inner.reference:
            return self._pointing(inner, symbol)._replace(reference=symbol)
        if inner.reference == "&" or symbol == "&&":
            return inner
        return inner._replace(left=inner.left.removesuffix("&&") + "&", reference="&")

    def _pointing(self, inner: Type, symbol: str) -> Type:
        if not inner.is_compound:
            return Type(inner.left + symbol, inner.right)
        gap = " " if inner.right.startswith("[") else ""
        return Type(f"{inner.left}({symbol}", f"){gap}{inner.right}")

    def _function_type(self) -> Type:
        self._need("F")
        self._next("Y")
        result = self._type()
        parameters = self._parameters()
        reference = next((text for code, text in _REFERENCES.items() if self._next(code)), "")
        self._need("E")
        right = f"({parameters})" + (f" {reference}" if reference else "")
        return Type(result.left + ("" if result.right else " "), right + result.right, is_compound=True)

    def _array(self) -> Type:
        self._need("A")
        bound = "" if self._peek() == "_" else str(self._number())
        self._need("_")
        inner = self._type()
        gap = "" if inner.is_compound else " "
        return Type(inner.left + gap, f"[{bound}]{inner.right}", is_compound=True)

    def _member_pointer(self) -> Type:
        self._need("M")
        owner, member = self._type(), self._type()
        if member.is_compound:
            return Type(f"{member.left}({owner.text}::*", f"){member.right}")
        return Type(f"{member.left} {owner.text}::*", member.right)

    def _parameter_of_template(self) -> Type:
        found = self._template_parameter()
        if self._peek() != "I":
            return found
        self._substitutions.append(found)
        return Type(found.text + self._template_arguments())

    _compound: Final[dict[str, Callable[["TypeParser"], Type]]] = {
        **dict.fromkeys("rVK", _qualified),
        **dict.fromkeys("RO", _reference),
        "U": _extended,
        "P": _pointer,
        "F": _function_type,
        "A": _array,
        "M": _member_pointer,
        "T": _parameter_of_template,
    }

    def _vector(self) -> Type:
        length = self._number()
        self._need("_")
        return Type(f"{self._type().text} __vector({length})")

    def _parameters(self) -> str:
        """Return the parameters of a function, up to what ends it."""
        if self._next("v"):
            return ""
        found: list[str] = []
        while self._peek() not in ("", "E", ".") and self._peek(2) not in ("RE", "OE"):
            found += [one.text for one in self._types()]
        return self._counted(", ".join(found))

    # ---- templates ------------------------------------------------------------------------------------------------

    def _substitution(self) -> Type:
        if standard := STANDARD_NAMES.get(self._peek(2)):
            self._position += 2
            return Type(standard)
        self._need("S")
        place = self._sequence()
        found = self._substitutions[place] if place < len(self._substitutions) else None
        if found is None:
            raise self._error()
        return found

    def _template_parameter(self) -> Type:
        self._need("T")
        place = self._place()
        if self._in_lambda:
            return Type(f"auto:{place + 1}")
        if place >= len(self._arguments):
            raise self._error()
        found = self._arguments[place]
        if isinstance(found, Type):
            return found
        if self._element is None:
            raise self._error()
        self._elements = len(found)
        return found[self._element] if found else Type("")

    def _template_arguments(self, *, of_function: bool = False) -> str:
        """Return template arguments with their brackets.

        Args:
            of_function: whether parameters and result refer to them.
        """
        self._need("I")
        before, found = self._arguments, []
        while not self._next("E"):
            found.append(self._argument())
        self._arguments = found if of_function else before
        flat = [one.text for argument in found for one in ((argument,) if isinstance(argument, Type) else argument)]
        inside = ", ".join(flat)
        return self._counted(f"<{inside}{' ' if inside.endswith('>') else ''}>")

    def _argument(self) -> Type | Pack:
        if self._next("L"):
            return Type(self._literal())
        if self._next("X"):
            return Type(self._expression())
        if self._peek() == "J":
            return self._pack()
        found = self._types()
        return found[0] if len(found) == 1 else found

    def _pack(self) -> Pack:
        self._need("J")
        self._enter()
        found: list[Type] = []
        while not self._next("E"):
            one = self._argument()
            found += [one] if isinstance(one, Type) else one
        self._leave()
        return tuple(found)

    def _types(self) -> Pack:
        """Return a type, or of an expanded pack all."""
        if not self._next("Dp"):
            return (self._type(),)
        begin, known = self._position, len(self._substitutions)
        outer = self._element, self._elements
        found: list[Type] = []
        self._element, self._elements = 0, _NO_PACK
        while not found or len(found) < self._elements:
            self._position, self._element = begin, len(found)
            del self._substitutions[known:]
            found.append(self._type())
        count, (self._element, self._elements) = self._elements, outer
        if count == _NO_PACK:
            raise self._error()
        # What was spelled for one element stands for all of them afterwards, which is not known how to spell.
        self._substitutions[known:] = [None] * (len(self._substitutions) - known + 1)
        return tuple(found[:count])

    # ---- values ---------------------------------------------------------------------------------------------------

    def _literal(self) -> str:
        if self._next("_Z"):
            found = self._mangled_name()
            self._need("E")
            return found
        code = self._peek()
        cast = self._type().text
        sign = "-" if self._next("n") else ""
        digits = "" if self._peek() == "E" else self._take(self._name.index("E", self._position) - self._position)
        self._need("E")
        if digits and not digits.isalnum():
            raise self._error()
        if code == "b" and digits in ("0", "1"):
            return "true" if digits == "1" else "false"
        if code in LITERAL_SUFFIXES:
            return f"{sign}{digits}{LITERAL_SUFFIXES[code]}"
        return f"({cast})[{digits}]" if code in "fd" else f"({cast}){sign}{digits}"

    def _expression(self) -> str:
        """Read the address of a function or variable, or a template's parameter; no other expression."""
        if self._peek() == "T":
            found = self._template_parameter().text
            self._need("E")
            return found
        self._need("adL_Z")
        found = self._mangled_name()
        self._need("E")
        self._need("E")
        return f"&({found})"
