"""What tests with real CLIs share: the model, the program, two places for it to live in."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.clis.carry import Sandbox
from e2e.clis.install import UnavailableError
from e2e.clis.program import Copilot, Kimi, Program
from support.stub_model import StubModel


@pytest.fixture
def model(tmp_path: Path) -> Iterator[StubModel]:
    """Serve the stub model for one test."""
    with StubModel(tmp_path / "requests.jsonl") as serving:
        yield serving


@pytest.fixture(params=[Copilot, Kimi], ids=lambda program: program.name)
def program(request: pytest.FixtureRequest, model: StubModel) -> Program:
    """Provide each CLI, or say why it cannot be had here."""
    try:
        made: Program = request.param(model.url)
    except UnavailableError as reason:
        pytest.skip(f"{request.param.name} cannot be installed here: {reason}")
    return made


@pytest.fixture
def sandboxes(tmp_path: Path, program: Program) -> tuple[Sandbox, Sandbox]:
    """Make two places that share nothing but the machine; the second is longer and has a space in its name."""
    made = []
    for place in ("a", "another place/further down"):
        sandbox = Sandbox(tmp_path / place / "home", tmp_path / place / "code/demo-app")
        sandbox.home.mkdir(parents=True)
        sandbox.workspace.mkdir(parents=True)
        subprocess.run(["git", "init", "--quiet", str(sandbox.workspace)], check=True, env={"PATH": "/usr/bin:/bin"})
        program.configure(sandbox.home)
        made.append(sandbox)
    return made[0], made[1]
