"""What a hook is called with and what it may name; one definition for both halves.

A hook is pure: what it returns depends on its arguments alone. So it sees no file, no clock, no process, no module but
the few below, and of Python's builtins only those that serve to compute. This is a rule for authors, checked when a
profile is made; it is not a wall against an author who wants to get around it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_HOOK_BYTES = 256 << 10
"""Source text of one hook."""

MAX_ERROR_CHARACTERS = 1000
"""Text that a hook returns or raises, as far as it is reported."""

PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "validate": ("files", "id"),
    "bucket": ("cwd", "helpers"),
    "relocate": ("path", "text", "context"),
}
"""Names of the hooks and of their positional arguments, for messages; a hook may call its own differently."""

MODULES = ("hashlib", "json", "math", "posixpath", "re")
"""Modules that a hook has as names, without an import."""

BUILTINS = frozenset(  # one name a line would be eighty lines
    (  # noqa: SIM905 -- see above
        "abs all any ascii bin bool bytearray bytes callable chr classmethod complex delattr dict divmod enumerate "
        "filter float format frozenset getattr hasattr hex int isinstance issubclass iter len list map max memoryview "
        "min next object oct ord pow property range repr reversed round set setattr slice sorted staticmethod str sum "
        "super tuple type zip Ellipsis NotImplemented ArithmeticError AssertionError AttributeError BaseException "
        "BaseExceptionGroup BufferError EOFError Exception ExceptionGroup FloatingPointError IndexError KeyError "
        "LookupError MemoryError NameError NotImplementedError OSError OverflowError RecursionError ReferenceError "
        "RuntimeError StopIteration SyntaxError TypeError UnboundLocalError UnicodeDecodeError UnicodeEncodeError "
        "UnicodeError UnicodeTranslateError ValueError ZeroDivisionError"
    ).split()
)
"""Builtins that a hook has.

Left out are those that reach beyond the arguments (`open`, `input`, `print`, `__import__`, `breakpoint`, `help`), that
make or read code and scopes (`eval`, `exec`, `compile`, `globals`, `locals`, `vars`, `dir`), that end the interpreter
(`exit`, `quit`, `SystemExit`, `KeyboardInterrupt`), that serve coroutines (`aiter`, `anext`), and whose result differs
from run to run (`hash`, `id`).
"""
