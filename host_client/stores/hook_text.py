"""The rules for a hook's source text: one function that needs nothing but its arguments."""

from __future__ import annotations

import ast
import inspect
import symtable
import types

from sandbox_api.errors import ConfigurationError, printable
from sandbox_api.hook import BUILTINS, MAX_HOOK_BYTES, MODULES, PARAMETERS

Definition = ast.Lambda | ast.FunctionDef

_OLDEST_PYTHON = (3, 11)  # that a daemon may run on


def refuse_hook(name: str, problem: str, hint: str = "") -> ConfigurationError:
    """Return the refusal of a hook.

    Args:
        name: `validate`, `bucket` or `relocate`.
        problem: Goes on after "the validate hook"; names the offending thing.
        hint: What to write instead.
    """
    return ConfigurationError("invalid_hook", f"the {name} hook {problem}", hint=hint, facts={"hook": name})


def check_text(text: str, name: str) -> str:
    """Return the source of the one function that a text holds, without indentation.

    Raises:
        ConfigurationError: `invalid_hook`, naming what the hook must not have.
    """
    _check_size(text, name)
    definition, source = _only_definition(text, name)
    check_definition(definition, source, name)
    return source


def check_definition(definition: Definition, source: str, name: str) -> set[str]:
    """Refuse a function that could not run from its source alone.

    Returns:
        The names it takes from the modules and builtins that a hook has.

    Raises:
        ConfigurationError: `invalid_hook`.
    """
    _check_size(source, name)
    if isinstance(definition, ast.FunctionDef) and definition.decorator_list:
        raise refuse_hook(
            name,
            f"is decorated with {ast.unparse(definition.decorator_list[0])}",
            "write a plain function; a decorator's work does not travel with its source",
        )
    _check_parameters(definition.args, name)
    _check_kind(_code(source, name), name)
    _check_statements(definition, name)
    names = _global_names(source)
    _check_names(names, name)
    return names


def dedented(source: str, definition: ast.stmt) -> str:
    """Return the lines of a statement without its indentation; lines inside of strings stay as they are.

    Args:
        source: Text the statement's positions refer to.
        definition: The statement; what precedes its first line is not part of it.
    """
    # Positions count UTF-8 bytes; what is cut off is white space alone.
    kept = {
        number
        for node in ast.walk(definition)
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))
        for number in range(node.lineno + 1, (node.end_lineno or node.lineno) + 1)
    }
    lines = source.split("\n")
    first, last = definition.lineno, definition.end_lineno or definition.lineno
    found = []
    for number in range(first, last + 1):
        line = lines[number - 1]
        margin = min(definition.col_offset, len(line) - len(line.lstrip(" \t\f")))
        found.append(line if number in kept else line[margin:])
    return "\n".join(found)


def _check_size(text: str, name: str) -> None:
    try:
        size_bytes = len(text.encode())
    except UnicodeEncodeError:
        raise refuse_hook(
            name, "has a lone surrogate in its source", "write it as an escape, such as '\\udc80'"
        ) from None
    if size_bytes > MAX_HOOK_BYTES:
        raise refuse_hook(name, f"has {size_bytes} bytes of source", f"a hook has at most {MAX_HOOK_BYTES} bytes")


def _only_definition(text: str, name: str) -> tuple[Definition, str]:
    hint = "write exactly one lambda expression or one function definition"
    source = text.replace("\r\n", "\n").strip("\n")
    try:
        statement = _only_statement(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise refuse_hook(name, f"is not Python source: {_told(error)}", hint) from None
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Lambda):
        return statement.value, ast.get_source_segment(_indentable(source), statement.value) or ""
    if isinstance(statement, ast.AsyncFunctionDef):
        raise refuse_hook(name, f"is a coroutine ({statement.name})", "write a plain function")
    if isinstance(statement, ast.FunctionDef):
        return statement, dedented(_indentable(source), statement)
    what = "several statements" if statement is None else f"a statement of another kind ({type(statement).__name__})"
    raise refuse_hook(name, f"is {what}", hint)


def _indentable(source: str) -> str:
    """Put indented source, as from a string in the middle of code, below a line that allows the indentation."""
    return f"if 1:\n{source}" if source[:1] in (" ", "\t") else source


def _only_statement(source: str) -> ast.stmt | None:
    text = _indentable(source)
    body = ast.parse(text, feature_version=_OLDEST_PYTHON).body
    if text != source and len(body) == 1 and isinstance(body[0], ast.If):
        body = body[0].body
    return body[0] if len(body) == 1 else None


def _code(source: str, name: str) -> types.CodeType:
    """Compile a hook's source, without running it, and return the code of its function."""
    try:
        module = compile(_statement(source), f"<{name} hook>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise refuse_hook(name, f"does not compile: {_told(error)}") from None
    return next(const for const in module.co_consts if isinstance(const, types.CodeType))


def _statement(source: str) -> str:
    """Put a lambda into parentheses, within which it may go over several lines."""
    return source if source.startswith("def") else f"({source}\n)"


def _check_parameters(arguments: ast.arguments, name: str) -> None:
    wanted = PARAMETERS[name]
    positional = [*arguments.posonlyargs, *arguments.args]
    least, most = len(positional) - len(arguments.defaults), len(positional)
    lacking = [arg.arg for arg, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value is None]
    if lacking or least > len(wanted) or (most < len(wanted) and not arguments.vararg):
        raise refuse_hook(
            name,
            f"has the parameters ({ast.unparse(arguments)})",
            f"it is called with {len(wanted)} arguments: {', '.join(wanted)}",
        )
    for value in (*arguments.defaults, *arguments.kw_defaults):
        if value is not None and not _is_constant(value):
            raise refuse_hook(
                name,
                f"has the default {ast.unparse(value)}",
                "a default is a literal number, text, True, False or None",
            )


def _is_constant(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant)
    if isinstance(node, ast.Tuple):
        return all(_is_constant(item) for item in node.elts)
    return isinstance(node, ast.Constant)


def _check_kind(code: types.CodeType, name: str) -> None:
    if code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise refuse_hook(name, f"is a coroutine ({code.co_name})", "write a plain function")
    if code.co_flags & inspect.CO_GENERATOR:
        raise refuse_hook(name, f"is a generator ({code.co_name})", "return the value instead of yielding")


def _check_statements(definition: Definition, name: str) -> None:
    for node in ast.walk(definition):
        if isinstance(node, ast.Import | ast.ImportFrom):
            raise refuse_hook(
                name, f"has an import ({ast.unparse(node)})", f"it has {', '.join(MODULES)} as names and nothing else"
            )
        if isinstance(node, ast.Global):
            raise refuse_hook(name, f"keeps state in global names ({', '.join(node.names)})", "use local names")


def _check_names(names: set[str], name: str) -> None:
    unknown = sorted(names - BUILTINS - set(MODULES))
    if unknown:
        raise refuse_hook(
            name,
            f"uses names that are not there when it runs: {', '.join(unknown)}",
            f"it has its arguments, the modules {', '.join(MODULES)} and the builtins that compute;"
            " write constants into it, define inner functions within it",
        )


def _global_names(source: str) -> set[str]:
    """Return the names that a function and all that is nested in it look up outside of it.

    Annotations do not count, and the function's own name neither.
    """
    tables = [symtable.symtable(f"from __future__ import annotations\n{_statement(source)}", "<hook>", "exec")]
    own = {table.get_name() for table in tables[0].get_children()}
    names: set[str] = set()
    while tables:
        table = tables.pop()
        tables.extend(table.get_children())
        if table.get_type() != "module":
            names.update(symbol.get_name() for symbol in table.get_symbols() if symbol.is_global())
    # Whatever names `super` is taken to use `__class__` as well, which a class in the hook brings along.
    return names - own - {"__class__"}


def _told(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        where = f" (line {error.lineno})" if error.lineno else ""
        return printable(f"{error.msg}{where}")
    if isinstance(error, RecursionError | MemoryError):
        return "it is nested too deeply"
    return printable(str(error)[:200])
