"""The recorded sessions of `tests/data`: files in memory, with what the recording says about them."""

import json
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

DATA = Path(__file__).parents[1] / "data"


@dataclass(frozen=True)
class Recording:
    """One session directory as a CLI left it.

    Attributes:
        id: The conversation.
        workspace: Where the CLI ran.
        place: The session directory when it was recorded.
        host_path: The same directory below `tests/data`.
        files: Contents by session-relative path, everything that is there.
        remembered: The user texts of the conversation, as the stub model repeats them.
    """

    id: str
    workspace: str
    place: str
    host_path: Path
    files: dict[str, bytes]
    remembered: str


def recordings(cli: str) -> list[str]:
    """Name every recording of a CLI, as `version/scenario`."""
    return sorted(str(path.parent.relative_to(DATA / cli)) for path in DATA.glob(f"{cli}/*/*/expected.json"))


def recording(cli: str, name: str) -> Recording:
    """Read one recording."""
    folder = DATA / cli / name
    expected = json.loads((folder / "expected.json").read_text())
    (host_path,) = (path for path in folder.glob(f"home/**/{expected['session_id']}") if path.is_dir())
    home = PurePosixPath(expected["recorded_home"])
    return Recording(
        id=expected["session_id"],
        workspace=expected["recorded_workspace"],
        place=str(home / host_path.relative_to(folder / "home")),
        host_path=host_path,
        files={
            str(path.relative_to(host_path)): path.read_bytes()
            for path in sorted(host_path.rglob("*"))
            if path.is_file()
        },
        remembered=expected.get("remembered", ""),
    )
