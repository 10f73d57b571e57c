"""The disk space of one run of the bench: files are created, never deleted before the end.

An ext4 without a journal, usual in virtual machines, passes over every inode deleted in the last
minutes whenever it looks for a free one. Removing 4,000 files between two rounds makes the next
4,000 cost ten times as much (measured: 250 us each instead of 20), for ours and peers alike, and
the ratios then compare the filesystem with itself.
"""

import array
import errno
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_GET_FLAGS = 0x80086601  # FS_IOC_GETFLAGS of <linux/fs.h>
_SET_FLAGS = 0x40086602  # FS_IOC_SETFLAGS
_TOP_DIRECTORY = 0x00020000  # FS_TOPDIR_FL: folders below are unrelated, so spread them over the disk


@contextmanager
def scratch(parent: Path) -> Iterator[Path]:
    """Make a folder below `parent`, and remove it with all it holds at the end."""
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=parent.resolve()) as directory:
        _spread(Path(directory))
        yield Path(directory)


def new_place(directory: Path) -> Path:
    """Make a folder of a random name below a scratch folder; ext4 chooses its part of the disk by the name."""
    return Path(tempfile.mkdtemp(dir=directory))


def retire(path: Path, graveyard: Path) -> None:
    """Take a file or a tree out of the way without deleting an inode: move it off and empty its files.

    Cheap while the bytes are not on the disk yet; afterwards freeing them costs a second for 4,000 files.
    """
    if not path.exists():
        return
    graveyard.mkdir(parents=True, exist_ok=True)
    grave = Path(tempfile.mkdtemp(dir=graveyard)) / path.name
    path.rename(grave)
    for path_text in _files(grave):
        os.truncate(path_text, 0)


def _files(root: Path) -> Iterator[str]:
    """Yield the path of the file, or of every file below the directory."""
    if root.is_file():
        yield str(root)
    for folder, _, names in os.walk(root):
        yield from (os.path.join(folder, name) for name in names)  # noqa: PTH118 - a path object per file is slow


def _spread(directory: Path) -> None:
    """Tell an ext filesystem to place what comes below away from recently deleted files."""
    flags = array.array("l", [0])
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(handle, _GET_FLAGS, flags, True)
        flags[0] |= _TOP_DIRECTORY
        fcntl.ioctl(handle, _SET_FLAGS, flags)
    except OSError as error:
        # Other filesystems do not know the flag, and do not need it.
        if error.errno not in {errno.ENOTTY, errno.EOPNOTSUPP, errno.EINVAL}:
            raise
    finally:
        os.close(handle)
