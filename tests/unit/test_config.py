"""The daemon's command line."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path

import pytest

from sandbox_agent import VERSION
from sandbox_agent.config import HealthcheckConfig, ServeConfig, read_arguments
from sandbox_api.errors import ConfigurationError
from sandbox_api.limits import Limits


def _serve(*arguments: str, home: str = "/home/me") -> ServeConfig:
    config = read_arguments(["serve", *arguments], {"HOME": home})
    assert isinstance(config, ServeConfig)
    return config


def test_defaults() -> None:
    """Without options the daemon serves the user's home and the current directory, on the default socket."""
    config = _serve()
    assert (config.listen, config.home, config.workspace) == ("", b"/home/me", os.fsencode(Path.cwd()))
    assert (config.roots, config.state, config.limits) == ((), b"/home/me/.outpost-agent", Limits())
    assert (config.log_format, config.debug, config.until_eof, config.drain_seconds) == ("text", False, False, 10.0)
    assert (config.max_processes, config.keep_seconds) == (256, 600.0)


def test_all_options() -> None:
    """Each option reaches its field; paths become absolute without resolving links."""
    config = _serve(
        *("--listen", "unix:/s", "--home", "/h/../g", "--workspace", "w", "--root", "/r1", "--root", "/r2/"),
        *("--state", "/st", "--max-bytes", "7", "--max-files", "8", "--log-format", "json", "--debug"),
        *("--until-eof", "--drain-seconds", "0.5", "--max-processes", "9", "--keep-seconds", "1.5"),
    )
    assert (config.listen, config.home, config.workspace) == ("unix:/s", b"/g", os.fsencode(Path.cwd() / "w"))
    assert (config.roots, config.state, config.limits) == ((b"/r1", b"/r2"), b"/st", Limits(7, 8))
    assert (config.log_format, config.debug, config.until_eof, config.drain_seconds) == ("json", True, True, 0.5)
    assert (config.max_processes, config.keep_seconds) == (9, 1.5)


def test_home_unknown() -> None:
    """Without HOME and without --home there is no home to guess."""
    with pytest.raises(ConfigurationError) as caught:
        read_arguments(["serve"], {})
    assert caught.value.reason == "invalid_argument"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["stdio"],
        ["serve", "--max-bytes", "0"],
        ["serve", "--max-files", "x"],
        ["serve", "--max-processes", "0"],
        ["serve", "--drain-seconds", "-1"],
        ["serve", "--drain-seconds", "nan"],
        ["serve", "--log-format", "xml"],
        ["healthcheck", "--timeout-seconds", "inf"],
    ],
)
def test_unusable_line_ends_with_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A line that cannot be meant is status 2 and a usage message."""
    with pytest.raises(SystemExit) as caught:
        read_arguments(arguments, {"HOME": "/h"})
    assert caught.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_healthcheck() -> None:
    """The health check knows where to ask and for how long."""
    assert read_arguments(["healthcheck"], {}) == HealthcheckConfig(listen="", timeout_seconds=5.0)
    config = read_arguments(["healthcheck", "--listen", "127.0.0.1:7", "--timeout-seconds", "1"], {})
    assert config == HealthcheckConfig(listen="127.0.0.1:7", timeout_seconds=1.0)


def test_version_is_that_of_the_distribution() -> None:
    """The constant that `version` prints is the version of what is installed."""
    assert read_arguments(["version"], {}) == "version"
    assert version("outpost-sandbox") == VERSION
