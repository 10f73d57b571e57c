// Capture the way without a daemon: walk a session, keep it as one JSON bundle.
// usage: node capture.mjs SESSION BUNDLE FORMAT ID
//
// It does what such a script owes its user (no links, no file that changes while it is read) and no more:
// where in doubt it does less than ours, so the comparison errs in its favour.
import { constants, promises as fs } from "node:fs";
import path from "node:path";

const [session, bundlePath, format, id] = process.argv.slice(2);
const maxBytes = 256 * 1024 * 1024;
const files = [];
let totalBytes = 0;

async function walk(directory, prefix) {
  const entries = await fs.readdir(directory, { withFileTypes: true });
  entries.sort((a, b) => (a.name < b.name ? -1 : 1));
  for (const entry of entries) {
    const relative = prefix + entry.name;
    const absolute = path.join(directory, entry.name);
    if (entry.isDirectory()) await walk(absolute, relative + "/");
    else if (entry.isFile()) files.push({ path: relative, data: await readStable(absolute) });
    else throw new Error(`not a regular file: ${relative}`);
  }
}

async function readStable(file) {
  const handle = await fs.open(file, constants.O_RDONLY | constants.O_NOFOLLOW);
  try {
    const before = await handle.stat();
    totalBytes += before.size;
    if (totalBytes > maxBytes) throw new Error("the session is too large");
    const data = await handle.readFile();
    const after = await handle.stat();
    if (before.size !== data.length || before.mtimeMs !== after.mtimeMs || before.size !== after.size)
      throw new Error(`changed while it was read: ${file}`);
    return data.toString("base64");
  } finally {
    await handle.close();
  }
}

await walk(session, "");
await fs.writeFile(bundlePath, JSON.stringify({ version: 1, format, id, source: session, files }), {
  mode: 0o600,
  flag: "wx",
});
