"""Install the real CLIs from npm, exactly as their lock files say, once for all runs.

Each CLI has a folder in the client's catalogue with `package.json` and `package-lock.json`: versions and SHA-512 of
every package. Install scripts do not run. A CLI is installed beside its place and renamed into it, so what is there is
whole, whatever interrupted an earlier run; another lock file is another place.
"""

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from host_client.agents import catalogue

LOCKS = Path(catalogue.__file__).parent / "npm"
CACHE = Path(__file__).parents[3] / "build" / "clis"
INSTALL_SECONDS = 400


class UnavailableError(Exception):
    """The CLI cannot be had on this machine; the text says why."""


def installed(cli: str, finish: Callable[[Path], None] = lambda _: None) -> Path:
    """Return the folder in which a CLI's `node_modules` are, installing it when it is not there.

    Args:
        cli: Name of its folder there.
        finish: Called with the folder of a fresh installation, before that is put in place.

    Raises:
        UnavailableError: there is no npm, or it could not fetch the packages.
    """
    lock = LOCKS / cli / "package-lock.json"
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()[:12]
    place = CACHE / f"{cli}-{digest}"
    if not place.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{cli}-", dir=CACHE) as folder:
            made = Path(folder) / "made"
            made.mkdir()
            for name in ("package.json", "package-lock.json"):
                shutil.copy(LOCKS / cli / name, made)
            _npm_ci(made)
            finish(made)
            _settle(made, place)
    return place


def _npm_ci(folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise UnavailableError("npm is not installed")
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise UnavailableError(f"npm did not finish within {INSTALL_SECONDS} s") from late
    if done.returncode:
        raise UnavailableError(f"npm ended with {done.returncode}: {done.stderr.strip()[-500:]}")


def _settle(made: Path, place: Path) -> None:
    """Rename what was installed into its place; another run may have been faster, which is as good."""
    try:
        made.rename(place)
    except OSError:
        if not place.is_dir():
            raise
