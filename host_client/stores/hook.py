"""The exact source of a hook: of a lambda, of a plain function, or the text itself.

Hooks run in the sandbox from their source. What is sent is what the author wrote: the file is compiled once more and
must have the code of the function in it, so a file that changed since it was loaded is noticed.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import linecache
import types
import warnings
from typing import TYPE_CHECKING

from host_client.stores.hook_text import (
    Definition,
    check_definition,
    check_text,
    dedented,
    refuse_hook,
)
from sandbox_api.hook import MODULES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_TEXT_HINT = "pass the hook as source text"
_FUTURES = 0x1FF0000  # CO_FUTURE_*: what a `from __future__` has switched on where the function was defined
_CODE_FIELDS = ("co_name", "co_firstlineno", "co_linetable", "co_code", "co_names", "co_varnames")


def hook_source(hook: str | Callable[..., object], name: str) -> str:
    """Return the source text of a hook, checked so that it can run on its own.

    Args:
        hook: A lambda, a plain function, or the source text of one.
        name: `validate`, `bucket` or `relocate`: decides with what it is called.

    Raises:
        ConfigurationError: `invalid_hook`: a method, a closure, a coroutine, a generator, a builtin, a partial, a
            decorated function, one whose source cannot be had, a wrong number of parameters, or a name that is not
            there when it runs.
    """
    if isinstance(hook, str):
        return check_text(hook, name)
    function = _plain_function(hook, name)
    definition, source = _located(function, name)
    _check_same_names(function, check_definition(definition, source, name), name)
    return source


def _plain_function(hook: object, name: str) -> types.FunctionType:
    """Return the hook when it is a function that stands alone."""
    write = "write a lambda or a plain function"
    if isinstance(hook, types.MethodType):
        raise refuse_hook(name, f"is a bound method ({hook.__qualname__})", write)
    if isinstance(hook, functools.partial | functools.partialmethod):
        raise refuse_hook(name, "is a partial", f"{write} with the values in it")
    if isinstance(hook, type):
        raise refuse_hook(name, f"is a class ({hook.__qualname__})", write)
    if isinstance(hook, types.BuiltinFunctionType | types.MethodDescriptorType | types.WrapperDescriptorType):
        raise refuse_hook(name, f"is a builtin ({hook.__qualname__})", write)
    if not isinstance(hook, types.FunctionType):
        raise refuse_hook(name, f"is an instance of {type(hook).__qualname__}", write)
    code = hook.__code__
    scope, _, own = hook.__qualname__.rpartition("<locals>.")[2].rpartition(".")
    # A lambda may well be written in the body of a class, as an argument there.
    if scope and own != "<lambda>":
        raise refuse_hook(name, f"is an unbound method ({hook.__qualname__})", write)
    if hasattr(hook, "__wrapped__"):
        raise refuse_hook(name, f"is decorated ({hook.__qualname__})", write)
    if code.co_freevars:
        raise refuse_hook(
            name,
            f"is a closure over {', '.join(code.co_freevars)}",
            "it runs elsewhere: write the values into it, or build its source text",
        )
    return hook


def _located(function: types.FunctionType, name: str) -> tuple[Definition, str]:
    """Find the definition of a function in its file, and its text."""
    code = function.__code__
    linecache.checkcache(code.co_filename)
    source = "".join(linecache.getlines(code.co_filename, function.__globals__))
    if not source:
        raise refuse_hook(name, f"has no source that can be read ({code.co_filename})", _TEXT_HINT)
    try:
        tree, codes = _compiled(source, code.co_flags & _FUTURES)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _changed(code, name) from None
    if not any(_same(code, other) for other in codes):
        raise _changed(code, name)
    if code.co_name == "<lambda>":
        return _located_lambda(code, tree, source, name)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == code.co_name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first == code.co_firstlineno and isinstance(node, ast.AsyncFunctionDef):
                raise refuse_hook(name, f"is a coroutine ({node.name})", "write a plain function")
            if first == code.co_firstlineno and isinstance(node, ast.FunctionDef):
                return node, dedented(source, node)
    raise _changed(code, name)


@functools.lru_cache(maxsize=1)  # the hooks of a profile are mostly in one file
def _compiled(source: str, flags: int) -> tuple[ast.Module, list[types.CodeType]]:
    """Compile a file again; return its tree and the codes of all its functions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they were shown when the file was loaded
        tree = ast.parse(source)
        codes = [compile(source, "<file>", "exec", flags=flags, dont_inherit=True)]
    for code in codes:
        codes.extend(const for const in code.co_consts if isinstance(const, types.CodeType))
    return tree, codes


def _located_lambda(code: types.CodeType, tree: ast.AST, source: str, name: str) -> tuple[Definition, str]:
    """Find a lambda by the positions of its code: they lie in its body, and in no smaller lambda's."""
    positions = list(_positions(code))
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Lambda)
        and node.lineno == code.co_firstlineno
        and all(_begin(node.body) <= begin and end <= _end(node.body) for begin, end in positions)
    ]
    # Without positions (-X no_debug_ranges) the line alone has to tell.
    if len(found) > 1 and not positions:
        raise refuse_hook(
            name, f"is one of {len(found)} lambdas of line {code.co_firstlineno}", "give each its own line"
        )
    if not found:
        raise _changed(code, name)
    innermost = max(found, key=lambda node: (_begin(node.body), -_end(node.body)[0], -_end(node.body)[1]))
    return innermost, ast.get_source_segment(source, innermost) or ""


def _positions(code: types.CodeType) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    for line, end_line, column, end_column in code.co_positions():
        # Instructions of the frame itself have no column, or none of width.
        if line is None or end_line is None or column is None or end_column is None or column == end_column == 0:
            continue
        yield (line, column), (end_line, end_column)


def _begin(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _end(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or 0, node.end_col_offset or 0


def _changed(code: types.CodeType, name: str) -> Exception:
    return refuse_hook(
        name,
        f"is not what {code.co_filename}, line {code.co_firstlineno}, says: the file changed, or a tool rewrote it",
        f"load the file again, or {_TEXT_HINT}",
    )


def _same(code: types.CodeType, other: types.CodeType) -> bool:
    """Compare two codes. `==` will not do: in 3.11 it sees what the interpreter has learned by running one of them."""
    if any(getattr(code, field) != getattr(other, field) for field in _CODE_FIELDS):
        return False
    pairs = list(zip(code.co_consts, other.co_consts, strict=False))
    return len(code.co_consts) == len(other.co_consts) and all(
        _same(const, twin) if isinstance(const, types.CodeType) and isinstance(twin, types.CodeType) else const == twin
        for const, twin in pairs
    )


def _check_same_names(function: types.FunctionType, names: set[str], name: str) -> None:
    """Refuse a global name that means one thing in the author's module and another in the sandbox."""
    for used in sorted(names):
        there = importlib.import_module(used) if used in MODULES else getattr(builtins, used)
        if function.__globals__.get(used, there) is not there:
            what = f"module {used}" if used in MODULES else f"builtin {used}"
            raise refuse_hook(
                name, f"uses {used}, which its module defines and which is the {what} when it runs", "rename it"
            )
