"""Bundle files between this Outpost and one in JavaScript: JSON.stringify writes there, JSON.parse reads."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from support.saved import FILES, ID, PROFILE, SOURCE, contents, opened, save, saved_path, tree_digest

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="node is not on this machine")

TREE = {**FILES, "files/\U0001f600/\u2028.txt": b"\x00\xff" * 1000, "files/'quoted\" $&.txt": b"\r\n"}

WRITE = """
const fs = require("fs"), path = require("path");
const [root, target, format, id, source] = process.argv.slice(1);
const walk = (folder) => fs.readdirSync(folder, { withFileTypes: true }).flatMap((entry) =>
  entry.isDirectory() ? walk(path.join(folder, entry.name)) : [path.join(folder, entry.name)]);
const files = walk(root).map((name) => ({
  path: path.relative(root, name), data: fs.readFileSync(name).toString("base64") }));
fs.writeFileSync(target, JSON.stringify({ version: 1, format, id, source, files }));
"""

READ = """
const fs = require("fs"), path = require("path");
const [bundle, target] = process.argv.slice(1);
const { version, format, id, source, files } = JSON.parse(fs.readFileSync(bundle, "utf8"));
if (version !== 1 || !Array.isArray(files)) throw new Error("not a bundle");
for (const file of files) {
  const data = Buffer.from(file.data, "base64");
  if (data.toString("base64") !== file.data) throw new Error("not canonical: " + file.path);
  const name = path.join(target, file.path);
  fs.mkdirSync(path.dirname(name), { recursive: true });
  fs.writeFileSync(name, data, { flag: "wx" });
}
console.log(JSON.stringify([format, id, source]));
"""


def _node(script: str, *arguments: str | Path) -> str:
    done = subprocess.run(
        [str(NODE), "-e", script, *map(str, arguments)], stdout=subprocess.PIPE, check=True, timeout=60, text=True
    )
    return done.stdout


def test_a_bundle_of_javascript_is_read(tmp_path: Path) -> None:
    """What JSON.stringify wrote, without digests and in the order of a walk, is read with every name and byte."""
    for path, data in TREE.items():
        place = tmp_path / "tree" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    _node(WRITE, tmp_path / "tree", saved_path(tmp_path), PROFILE.format, ID, str(SOURCE))
    with opened(tmp_path) as saved:
        assert contents(saved) == TREE
        assert saved.digest == tree_digest(TREE)
        assert saved.source == SOURCE


def test_a_bundle_of_ours_is_read_by_javascript(tmp_path: Path) -> None:
    """What we save, JSON.parse reads, and the files come out with every name and byte."""
    save(tmp_path, TREE)
    told = _node(READ, saved_path(tmp_path), tmp_path / "out")
    assert told == f'["{PROFILE.format}","{ID}","{SOURCE}"]\n'
    read = {
        str(path.relative_to(tmp_path / "out")): path.read_bytes()
        for path in Path(tmp_path / "out").rglob("*")
        if path.is_file()
    }
    assert read == TREE
