"""Spells mangled names of C++ functions as they were declared.

CUPTI gives the names of kernels as declared; ROCm, and CUPTI for some libraries, as they are in the object file.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from perfkit.trace.symbols import MANGLED
from perfkit.trace.symbols.tables import OPERATORS, SPECIAL_NAMES
from perfkit.trace.symbols.type_parser import NotReadableError, Type, TypeParser

_ANONYMOUS = ("_GLOBAL__N", "_GLOBAL_.N", "_GLOBAL_$N")


class _Name(NamedTuple):
    text: str
    own: str = ""
    """The last component without template arguments, as constructors are called."""
    is_template: bool = False
    """Whether it ends with template arguments: its encoding then begins with the result's type."""
    has_result: bool = True
    """Whether it has a result: constructors, destructors and conversions have none."""
    qualifiers: str = ""
    """Of a member function."""

    def joined(self, after: "_Name") -> "_Name":
        return after._replace(text=f"{self.text}::{after.text}")


class NameParser(TypeParser):
    """Reads a mangled name, without its `_Z`."""

    def encoding(self, *, with_result: bool = True) -> str:
        """Return a function with its parameters, or a variable.

        Args:
            with_result: whether to spell the type of a function template's result.

        Raises:
            NotReadableError: It cannot be read.
        """
        if special := SPECIAL_NAMES.get(self._peek(2)):
            self._position += 2
            return special + self._type().text
        if self._next("GV"):
            return f"guard variable for {self._any_name().text}"
        self._enter()
        name = self._any_name(of_function=True)
        found = name.text if self._peek() in ("", "E", ".") else self._function(name, with_result=with_result)
        self._leave()
        return self._counted(found)

    def _function(self, name: _Name, *, with_result: bool) -> str:
        result = self._type() if name.is_template and name.has_result else None
        declared = f"{name.text}({self._parameters()}){name.qualifiers}"
        if result is None or not with_result:
            return declared
        return f"{result.left}{'' if result.right else ' '}{declared}{result.right}"

    def _mangled_name(self) -> str:
        before = self._arguments
        found = self.encoding()
        self._arguments = before
        return found

    def _name_of_type(self) -> str:
        return self._any_name().text

    def _any_name(self, *, of_function: bool = False) -> _Name:
        if self._next("N"):
            return self._nested(of_function=of_function)
        if self._next("Z"):
            return self._local(of_function=of_function)
        if self._peek() == "S" and self._peek(2) != "St":
            name = _Name(self._substitution().text)
        else:
            name = self._unscoped()
            if self._peek() == "I":
                self._substitutions.append(Type(name.text))
        return self._with_arguments(name, of_function=of_function) if self._peek() == "I" else name

    def _with_arguments(self, name: _Name, *, of_function: bool) -> _Name:
        arguments = self._template_arguments(of_function=of_function)
        gap = " " if name.text.endswith("<") else ""
        return name._replace(text=f"{name.text}{gap}{arguments}", is_template=True)

    def _unscoped(self) -> _Name:
        if self._next("St"):
            return _Name("std").joined(self._unqualified(""))
        return self._unqualified("")

    def _nested(self, *, of_function: bool) -> _Name:
        qualifiers = self._read_qualifiers() + (" &" if self._next("R") else " &&" if self._next("O") else "")
        name = _Name("")
        while not self._next("E"):
            is_known = self._peek() == "S" and not name.text
            name = self._longer(name, of_function=of_function)
            if not is_known:
                self._substitutions.append(Type(self._counted(name.text)))
        if not self._substitutions or not name.text:
            raise self._error()
        # A function has no place in the list, and what reads types adds their names.
        self._substitutions.pop()
        return name._replace(qualifiers=qualifiers)

    def _longer(self, name: _Name, *, of_function: bool) -> _Name:
        """Return a nested name with one more component, or with its template arguments."""
        if name.text and self._peek() == "I":
            return self._with_arguments(name, of_function=of_function)
        if name.text:
            self._next("M")  # the initializer of a member, of which a lambda is part
            return name.joined(self._unqualified(name.own))._replace(is_template=False)
        if self._next("St"):
            return _Name("std")
        if self._peek() == "S":
            own = "basic_string" if self._peek(2) == "Ss" else ""
            known = self._substitution().text
            return _Name(known, own or known.partition("<")[0].rpartition("::")[2])
        if self._peek() == "T":
            return _Name(self._template_parameter().text)
        return self._unqualified("")

    def _local(self, *, of_function: bool) -> _Name:
        function = self.encoding(with_result=False)
        self._need("E")
        if self._next("s"):
            self._discriminator()
            return _Name(f"{function}::string literal")
        entity = self._any_name(of_function=of_function)
        self._discriminator()
        return _Name(function).joined(entity)

    def _discriminator(self) -> None:
        if self._next("__"):
            self._number()
            self._need("_")
        elif self._peek() == "_" and self._peek(2)[1:].isdecimal():
            self._position += 2

    def _unqualified(self, owner: str) -> _Name:
        self._next("L")  # internal linkage
        code = self._peek()
        if code.isdecimal():
            name = self._source_name()
        elif code in ("C", "D") and owner:
            kind, number = self._take(1), self._take(1)
            if number not in "012345":
                raise self._error()
            name = _Name(f"~{owner}" if kind == "D" else owner, owner, has_result=False)
        elif code == "U":
            name = self._unnamed()
        else:
            name = self._operator()
        while self._next("B"):
            name = name._replace(text=f"{name.text}[abi:{self._source_name().text}]")
        return name

    def _source_name(self) -> _Name:
        text = self._take(self._number())
        if not text:
            raise self._error()
        return _Name("(anonymous namespace)" if text.startswith(_ANONYMOUS) else text, text)

    def _unnamed(self) -> _Name:
        if self._next("Ut"):
            return _Name(f"{{unnamed type#{self._place() + 1}}}")
        self._need("Ul")
        outer, self._in_lambda = self._in_lambda, True
        parameters = self._parameters()
        self._in_lambda = outer
        self._need("E")
        return _Name(f"{{lambda({parameters})#{self._place() + 1}}}")

    def _operator(self) -> _Name:
        if self._next("cv"):
            return _Name(f"operator {self._type().text}", has_result=False)
        if self._next("li"):
            return _Name(f'operator"" {self._source_name().text}')
        operator = OPERATORS.get(self._peek(2))
        if operator is None:
            raise self._error()
        self._position += 2
        return _Name(operator)


LONGEST: Final = 8_192
"""Longer mangled names stay as they are."""
_MOST_WORK: Final = 30_000_000
"""Characters spelled for all names of a trace, intermediate parts included: a few seconds. Further names stay."""
_CLONE: Final = re.compile(r"\.[A-Za-z_]\w*(?:\.\d+)*|\.\d+")
"""What a compiler appends to a copy of a function: `.kd` (AMD's kernel descriptor), `.constprop.0`."""


def readable_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct names of a trace, those that are mangled as they were declared.

    The part of the Itanium C++ ABI is read that occurs in names of kernels: no expressions, such as `decltype`. A name
    stays as it is if it cannot be read, or if another name is spelled so too, because rows of a table are told apart by
    their names.
    """
    found = list(names)
    mangled = [place for place, name in enumerate(found) if name.startswith(MANGLED)]
    taken, work = set(found) if mangled else set(), 0
    for place in mangled:
        spelled, cost = _spell(found[place])
        if spelled not in taken:
            found[place] = spelled
            taken.add(spelled)
        work += cost
        if work > _MOST_WORK:
            break
    return tuple(found)


def _spell(name: str) -> tuple[str, int]:
    """Return a readable name, and the characters that were spelled for it."""
    if not name.startswith(MANGLED) or len(name) > LONGEST:
        return name, 0
    parser = NameParser(name.removeprefix(MANGLED))
    try:
        found = parser.encoding()
    except (NotReadableError, ValueError, RecursionError):
        return name, parser.work + len(name)
    clones = _CLONE.findall(parser.rest)
    if "".join(clones) != parser.rest:
        found, clones = name, []
    return found + "".join(f" [clone {clone}]" for clone in clones), parser.work + len(name)
