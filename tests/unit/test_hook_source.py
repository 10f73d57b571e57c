"""The source of a hook: found to the letter, and refused by name when it could not stand alone."""

# The odd layout below is what is tested, and hooks have the parameters that they are called with.
# fmt: off
# ruff: noqa: A002, A006, ARG001, ARG005, E731

from __future__ import annotations

import functools
import importlib.util
import itertools
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_client.stores.hook import hook_source
from support.hook_run import source_refusal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

LIMIT = 5


def _pair(first: Any, second: Any) -> tuple[Any, Any]:
    return first, second


def _module(tmp_path: Path, text: str) -> ModuleType:
    path = tmp_path / "hooks_of_a_user.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("hooks_of_a_user", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_two_lambdas_of_one_line_are_told_apart() -> None:
    """By the positions of their code, though they differ in nothing else."""
    first, second = _pair(lambda files, id: None, lambda files, id : None)
    assert hook_source(first, "validate") == "lambda files, id: None"
    assert hook_source(second, "validate") == "lambda files, id : None"


def test_a_lambda_in_a_call_over_several_lines_is_found_whole() -> None:
    """Its text goes to the end of its body, with the comments in it, and no further."""
    hook, _ = _pair(
        lambda path, text, context: json.dumps(  # a comment, with a ) in it
            {**json.loads(text), "cwd": context.cwd},
        ),
        lambda: 0,
    )
    source = hook_source(hook, "relocate")
    assert source.startswith("lambda path, text, context: json.dumps(  # a comment")
    assert source.endswith('"cwd": context.cwd},\n        )')


def test_a_lambda_in_parentheses_is_taken_without_them() -> None:
    """Parentheses around it, or around its body, do not confuse it."""
    hook = ((lambda files, id: (
        None
    )))
    assert hook_source(hook, "validate").startswith("lambda files, id: (\n        None\n")


def test_a_lambda_in_a_lambda_is_told_from_it() -> None:
    """The inner one is a hook of its own, and the outer one too."""
    outer = lambda files, id: (lambda cwd, helpers: "x")
    inner: Any = outer(None, None)
    assert hook_source(inner, "bucket") == 'lambda cwd, helpers: "x"'
    assert hook_source(outer, "validate").startswith("lambda files, id: (lambda cwd")


def test_lambdas_in_displays_and_defaults_are_found() -> None:
    """In a dict, in a comprehension, as a default argument, in a decorator, in a class."""
    table = {"a": lambda files, id: "ä", "b": lambda files, id: "ö"}
    assert hook_source(table["b"], "validate") == 'lambda files, id: "ö"'

    def default(hook: Any = lambda files, id: "default") -> Any:
        return hook

    assert hook_source(default(), "validate") == 'lambda files, id: "default"'

    def keep(hook: Any) -> Any:
        return lambda _: hook

    @keep(lambda files, id: "decorator")
    def decorated() -> None:
        """Stand for the lambda in the decorator."""

    assert hook_source(decorated, "validate") == 'lambda files, id: "decorator"'

    class Settings:
        hook = _pair(lambda files, id: "class", 0)[0]

    assert hook_source(Settings.__dict__["hook"], "validate") == 'lambda files, id: "class"'


_LAYOUTS = (
    "lambda a, b: {0}", "lambda a,b:{0}", "(lambda a, b: ({0}))", "lambda *c: (\n  {0}\n)",
    "lambda a, b: (lambda: {0})()",
    "lambda a, b=1: [x for x in [{0}]][0]", "lambda a, b: {{'ä': {0}}}['ä']", "(\n lambda a, b: # :\n {0}\n)",
)
_NESTS = (
    "[*{0}, {1}]", "[*{0},\n{1}]", "(lambda x, y: [*x, y])({0}, {1})", "[h for h in [({1}), *{0}]]",
    "[*{{'ö': {1}}}.values(), *{0}]", "sorted([*{0}, {1}], key=lambda f: 0)",
)
_FILE_COUNT = itertools.count()


def _nested(layouts: list[str], nests: list[str]) -> str:
    """Write many lambdas, each with its own number, into one expression."""
    text = f"[{layouts[0].format(0)}]"
    for number, (layout, nest) in enumerate(zip(layouts[1:], nests, strict=False), 1):
        text = nest.format(text, layout.format(number))
    return text


@given(
    layouts=st.lists(st.sampled_from(_LAYOUTS), min_size=1, max_size=5),
    nests=st.lists(st.sampled_from(_NESTS), min_size=4, max_size=4),
)
@settings(max_examples=60)
def test_any_lambda_is_found_in_any_layout(
    tmp_path_factory: pytest.TempPathFactory, layouts: list[str], nests: list[str]
) -> None:
    """What is found computes what the lambda computes, and stands in the file as it is."""
    path = tmp_path_factory.getbasetemp() / f"layout_{next(_FILE_COUNT)}.py"
    text = f"hooks = {_nested(layouts, nests)}\n"
    path.write_text(text, encoding="utf-8")
    names: dict[str, Any] = {}
    exec(compile(text, str(path), "exec"), names)  # noqa: S102
    for hook in names["hooks"]:
        source = hook_source(hook, "validate")
        assert source in text
        assert eval(f"({source}\n)")(None, None) == hook(None, None)  # noqa: S307
    path.unlink()


def test_a_function_is_dedented_and_its_strings_are_not() -> None:
    """Lines inside of a string keep their indentation: they are data."""
    def hook(files: Any, id: str) -> str | None:
        """Say something.

        Indented.
        """
        table = {
      "less": 1, "indented": 2,
        }
        return f"""
            {id}
        """ if table else None

    source = hook_source(hook, "validate")
    assert source.startswith("def hook(files: Any, id: str) -> str | None:")
    assert '\n        Indented.\n        """\n' in source
    assert '\n    table = {\n  "less": 1,' in source
    names: dict[str, Any] = {"Any": Any}
    exec(source, names)  # noqa: S102
    assert names["hook"](None, "x") == hook(None, "x")
    assert names["hook"].__doc__ == hook.__doc__


def _recursive(path: Missing, text: str, context: Any) -> Missing:  # noqa: F821
    class Table(dict):
        size = 0

        def grow(self, by: Missing = 1) -> None:  # noqa: F821
            super().__init__()
            self.size += by

    found: Missing  # noqa: F821
    depth = 0

    def deeper() -> None:
        nonlocal depth
        depth += 1

    deeper()
    found = [line for line in text.split("\n") if (length := len(line))]
    try:
        Table().grow(length)
    except (ValueError, KeyError) as error:
        found = str(error)
    return _recursive(path, "", context) if depth > LIMIT_INSIDE else found  # noqa: F821


def test_a_function_may_have_inner_functions_classes_and_itself() -> None:
    """Names defined within it are not outer names; annotations are not evaluated."""
    assert source_refusal(_recursive, "relocate").message.endswith("not there when it runs: LIMIT_INSIDE")


class _Holder:
    def method(self, id: str) -> None:
        """Stand for any method."""

    def __call__(self, files: Any, id: str) -> None:
        """Stand for a callable instance."""


async def _coroutine(files: Any, id: str) -> None:
    """Stand for any coroutine."""


def _generator(files: Any, id: str) -> Any:
    yield files, id


def _kept(hook: Callable[..., Any]) -> Callable[..., Any]:
    return hook


@_kept
def _decorated(files: Any, id: str) -> None:
    """Stand for a function whose decorator leaves it as it is."""


@functools.lru_cache
def _wrapped(files: Any, id: str) -> None:
    """Stand for a function whose decorator replaces it."""


@functools.wraps(_generator)
def _wrapper(files: Any, id: str) -> None:
    """Stand for the inside of a decorator."""


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        (_Holder().method, "bound method (_Holder.method)"),
        (_Holder.method, "unbound method (_Holder.method)"),
        (_Holder(), "instance of _Holder"),
        (_Holder, "class (_Holder)"),
        (len, "builtin (len)"),
        (str.upper, "builtin (str.upper)"),
        ("text".startswith, "builtin (str.startswith)"),
        (functools.partial(_generator, 1), "partial"),
        (_coroutine, "coroutine (_coroutine)"),
        (_generator, "generator (_generator)"),
        (_decorated, "decorated with _kept"),
        (_wrapped, "instance of"),
        (_wrapper, "decorated"),
        (b"lambda a, b: None", "instance of bytes"),
        (7, "instance of int"),
        (eval("lambda files, id: None"), "no source that can be read (<string>)"),  # noqa: S307
        (lambda files, id: LIMIT, "LIMIT"),
        (lambda files: None, "parameters (files)"),
    ],
)
def test_a_callable_that_cannot_travel_is_refused(hook: Any, words: str) -> None:
    """The message names what it is; a hint says what to write."""
    error = source_refusal(hook)
    assert words in error.message
    assert error.hint


def test_the_free_variables_of_a_closure_are_named() -> None:
    """Also when they are called like a module that hooks have."""
    limit, json = 3, None
    assert "closure over json, limit" in source_refusal(lambda files, id: (limit, json)).message


def test_text_is_recommended_where_there_is_no_file() -> None:
    """What comes from a prompt or from exec has no source to be found."""
    assert "source text" in source_refusal(eval("lambda files, id: None")).hint  # noqa: S307


def test_a_name_that_means_something_else_in_its_module_is_refused(tmp_path: Path) -> None:
    """A hook must not compute one thing at home and another in the sandbox."""
    module = _module(tmp_path, "import pickle as json\ndef len(x):\n    return 0\nhook = lambda a, b: json\n"
                               "other = lambda a, b: len(a)\n")
    assert "uses json, which its module defines" in source_refusal(module.hook).message
    assert "uses len, which its module defines" in source_refusal(module.other).message


def test_a_file_that_changed_since_it_was_loaded_is_noticed(tmp_path: Path) -> None:
    """What would be sent is not what the author runs."""
    module = _module(tmp_path, "hook = lambda files, id: 'old'\n")
    assert hook_source(module.hook, "validate") == "lambda files, id: 'old'"
    path = tmp_path / "hooks_of_a_user.py"
    path.write_text("hook = lambda files, id: 'newer'\n", encoding="utf-8")
    assert "file changed" in source_refusal(module.hook).message
    path.write_text("hook = (", encoding="utf-8")
    assert "file changed" in source_refusal(module.hook).message
    path.unlink()
    assert "no source" in source_refusal(module.hook).message


def test_a_file_of_another_encoding_is_read_by_its_own_declaration(tmp_path: Path) -> None:
    """The text found is characters, whatever the file's bytes."""
    text = "# -*- coding: latin-1 -*-\nx = 'ä'; hook = lambda files, id: 'ä'\n"
    path = tmp_path / "latin.py"
    path.write_bytes(text.encode("latin-1"))
    spec = importlib.util.spec_from_file_location("latin", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert hook_source(module.hook, "validate") == "lambda files, id: 'ä'"


def test_a_function_that_has_run_often_is_still_recognized() -> None:
    """The interpreter rewrites hot code; the comparison does not see it."""
    hook = lambda files, id: len(files) + len(id) or None
    for _ in range(500):
        hook("ab", "cd")
    assert hook_source(hook, "validate").startswith("lambda files, id: len")


@pytest.mark.parametrize(
    ("line", "accepted"),
    [("a = lambda files, id: None", True), ("a, b = (lambda files, id: None), lambda files, id: 1", False)],
)
def test_without_positions_a_line_with_several_lambdas_is_refused(tmp_path: Path, line: str, *, accepted: bool) -> None:
    """An interpreter started with -X no_debug_ranges has lines alone; nothing is guessed."""
    script = tmp_path / "script.py"
    script.write_text(
        f"from host_client.stores.hook import hook_source\n{line}\nprint(hook_source(a, 'validate'))\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, "-X", "no_debug_ranges", str(script)], capture_output=True, text=True, check=False
    )
    assert (done.stdout == "lambda files, id: None\n") is accepted
    assert accepted or "give each its own line" in done.stderr
