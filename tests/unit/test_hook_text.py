"""The source text of a hook: one function that stands alone, or a refusal that names what it would need."""

from __future__ import annotations

import pytest

from host_client.stores.hook import hook_source
from sandbox_api.hook import BUILTINS, MAX_HOOK_BYTES, MODULES, PARAMETERS
from support.hook_run import source_refusal


def test_text_is_accepted_as_a_lambda_or_a_function() -> None:
    """With or without indentation and comments around it."""
    assert hook_source("lambda files, id: None", "validate") == "lambda files, id: None"
    assert hook_source("\n    (lambda files,\n      id: None)\n", "validate") == "lambda files,\n      id: None"
    text = """
    # about it
    def check(files, id, /, *, strict=True):
        return '''
    as it is'''
    """
    source = hook_source(text, "validate")
    assert source == "def check(files, id, /, *, strict=True):\n    return '''\n    as it is'''"
    assert hook_source("def f(a, b):\r\n    return None\r\n", "validate") == "def f(a, b):\n    return None"


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_allowed_name_is_accepted(name: str) -> None:
    """Of the builtins that compute and of the modules."""
    body = ", ".join([*sorted(BUILTINS), *MODULES])
    source = f"lambda {', '.join('abc'[: len(PARAMETERS[name])])}: ({body})"
    assert hook_source(source, name) == source


@pytest.mark.parametrize(
    "name",
    [
        "open",
        "input",
        "print",
        "breakpoint",
        "exec",
        "eval",
        "compile",
        "__import__",
        "globals",
        "vars",
        "locals",
        "exit",
        "quit",
        "help",
        "dir",
        "hash",
        "id",
        "SystemExit",
        "os",
        "__builtins__",
        "__name__",
        "__file__",
    ],
)
def test_a_builtin_that_reaches_beyond_the_arguments_is_refused(name: str) -> None:
    """By name, before it runs; so is every name that would not be there."""
    assert f": {name}" in source_refusal(f"lambda a, b: {name}").message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lambda files, id: LIMIT", "LIMIT"),
        ("lambda files, id: [x for x in files if x > LIMIT]", "LIMIT"),
        ("lambda files, id: (lambda: LIMIT)()", "LIMIT"),
        ("def f(a, b):\n class C:\n  x = LIMIT", "LIMIT"),
        ("def f(a, b):\n def g():\n  return LIMIT\n return g()", "LIMIT"),
        ("def f(a, b):\n global state\n state = 1", "state"),
        ("def f(a, b):\n import os\n return os", "import os"),
        ("def f(a, b):\n def g():\n  from os import path", "from os import path"),
        ("def f(a, b):\n yield 1", "generator (f)"),
        ("lambda a, b: (yield)", "generator"),
        ("async def f(a, b):\n return 1", "coroutine (f)"),
        ("@keep\ndef f(a, b):\n return 1", "decorated with keep"),
        ("lambda a, b=[]: None", "default []"),
        ("lambda a, b=LIMIT: None", "default LIMIT"),
        ("lambda a, b, *, c=f(1): None", "default f(1)"),
        ("lambda: None", "parameters ()"),
        ("lambda a: None", "parameters (a)"),
        ("lambda a, b, c: None", "parameters (a, b, c)"),
        ("lambda a, b, *, c: None", "parameters (a, b, *, c)"),
        ("lambda **k: None", "parameters (**k)"),
        ("1 + 1", "another kind"),
        ("f = lambda a, b: None", "Assign"),
        ("", "several statements"),
        ("lambda a, b: None\nlambda a, b: None", "several statements"),
        ("class C:\n pass", "ClassDef"),
        ("lambda a, b:", "not Python source"),
        ("def f(a, b):\n  return (", "not Python source"),
        ("lambda a, b: '\0'", "not Python source"),
        ("lambda a, b: " + "(" * 5000 + ")" * 5000, "not Python source"),
        ("lambda a, b: " + "-" * 100_000 + "1", "nested too deeply"),
        ("lambda a, b: '\ud800'", "surrogate"),
        ("def f(a, b):\n return 1\n break", "does not compile"),
        ("def f(a, a):\n return 1", "does not compile"),
        ("lambda a, b: '" + "x" * MAX_HOOK_BYTES + "'", "bytes of source"),
    ],
)
def test_text_that_cannot_run_on_its_own_is_refused(text: str, words: str) -> None:
    """The message names the offending thing."""
    error = source_refusal(text)
    assert words in error.message
    assert len(error.message) < 500


@pytest.mark.parametrize("text", ["lambda a, b, *c: None", "lambda *a: None", "lambda a, b, c=-1, *, d=(1, 'x'): None"])
def test_parameters_that_take_the_arguments_are_accepted(text: str) -> None:
    """What counts is that it can be called with them; constant defaults do no harm."""
    assert hook_source(text, "validate") == text
