"""What tests with real CLIs share: the model, the program, two places for it to live in."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.clis.host import Host, Sandbox, new_sandbox
from e2e.clis.install import UnavailableError
from e2e.clis.program import Copilot, Kimi, Program
from e2e.clis.transcript_program import Claude, Codex
from support.stub_model import StubModel


@pytest.fixture
def model(tmp_path: Path) -> Iterator[StubModel]:
    """Serve the stub model for one test."""
    with StubModel(tmp_path / "requests.jsonl") as serving:
        yield serving


@pytest.fixture(params=[Copilot, Kimi, Claude, Codex], ids=lambda program: program.name)
def program(request: pytest.FixtureRequest, model: StubModel) -> Program:
    """Provide each CLI, or say why it cannot be had here."""
    try:
        made: Program = request.param(model.url)
    except UnavailableError as reason:
        pytest.skip(f"{request.param.name} cannot be installed here: {reason}")
    return made


@pytest.fixture
def host(tmp_path: Path, program: Program) -> Host:
    """Make a user of our command."""
    return Host(program, tmp_path / "host")


@pytest.fixture
def sandboxes(tmp_path: Path, program: Program) -> tuple[Sandbox, Sandbox]:
    """Make two places that share nothing but the machine; the second is longer and has a space in its name."""
    first, second = tmp_path / "a", tmp_path / "another place" / "further down"
    return (
        new_sandbox(program, first / "home", first / "code" / "demo-app"),
        new_sandbox(program, second / "home", second / "code" / "demo-app"),
    )
