// Restore the way without a daemon: parse a JSON bundle, stage it beside the session, swap by rename.
// usage: node restore.mjs BUNDLE CLI_HOME CWD
import { randomUUID } from "node:crypto";
import { promises as fs } from "node:fs";
import path from "node:path";

const [bundlePath, cliHome, cwd] = process.argv.slice(2);
const bundle = JSON.parse(await fs.readFile(bundlePath, "utf8"));
const target = path.join(cliHome, "sessions", bundle.id);
if (bundle.version !== 1 || bundle.files.length === 0) throw new Error("not a bundle");

await fs.mkdir(path.dirname(target), { recursive: true, mode: 0o700 });
const staging = await fs.mkdtemp(path.join(path.dirname(target), ".outpost-session-"));
for (const entry of bundle.files) {
  const file = path.join(staging, entry.path);
  if (!file.startsWith(staging + path.sep)) throw new Error(`unsafe path: ${entry.path}`);
  await fs.mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
  await fs.writeFile(file, relocate(entry), { mode: 0o600, flag: "wx" });
}
await keepExisting();
await fs.rename(staging, target);

function relocate(entry) {
  const data = Buffer.from(entry.data, "base64");
  if (entry.path !== "session.json") return data;
  return JSON.stringify({ ...JSON.parse(data.toString("utf8")), cwd });
}

async function keepExisting() {
  const recovery = path.join(cliHome, ".outpost-recovery", `${bundle.id}-${randomUUID()}`);
  await fs.mkdir(path.dirname(recovery), { recursive: true, mode: 0o700 });
  await fs.rename(target, recovery);
}
