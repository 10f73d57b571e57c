"""The daemon as a process: how it starts, listens, says how it is, and ends."""

from __future__ import annotations

import os
import platform
import signal
import stat
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from sandbox_agent import VERSION
from sandbox_api.limits import Limits
from sandbox_api.v1 import daemon_pb2, daemon_pb2_grpc, file_pb2, file_pb2_grpc
from support.daemon import END_SECONDS, running_daemon
from support.status import fails
from support.stream import Requests
from support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.daemon import RunningDaemon

MAX_IDLE_MIB = 45


def _command(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "sandbox_agent", *arguments],
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=END_SECONDS,
        env={**os.environ, **(environment or {})},
    )


def _channel(target: str) -> grpc.Channel:
    return grpc.insecure_channel(target, options=(("grpc.enable_http_proxy", 0),))


def _info(target: str) -> daemon_pb2.GetInfoResponse:
    with _channel(target) as channel:
        return daemon_pb2_grpc.DaemonServiceStub(channel).GetInfo(daemon_pb2.GetInfoRequest(), timeout=END_SECONDS)


@contextmanager
def _write_in_progress(daemon: RunningDaemon) -> Iterator[tuple[grpc.Future, Requests[file_pb2.WriteRequest]]]:
    """Begin to write a file of the workspace; return once the daemon has begun, too."""
    header = file_pb2.WriteHeader(path=os.fsencode(daemon.workspace / "file"))
    requests = Requests(file_pb2.WriteRequest(header=header))
    with _channel(daemon.target) as channel:
        call = file_pb2_grpc.FileServiceStub(channel).Write.future(requests)
        wait_until(lambda: bool(list(daemon.workspace.iterdir())), "the scratch file")
        yield call, requests
        requests.end()


def _status_mib(process_id: int, key: str) -> float:
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:")) / 1024


# Starting and listening


def test_info(tmp_path: Path) -> None:
    """A client learns what it talks to, and where: all that later calls depend on."""
    (tmp_path / "more").mkdir()
    (tmp_path / "real").mkdir()
    (tmp_path / "workspace").symlink_to("real")
    extra = ("--root", str(tmp_path / "more"), "--max-bytes", "1000", "--max-files", "10")
    with running_daemon(tmp_path, *extra) as daemon:
        info = _info(daemon.target)
        assert (info.version, list(info.contracts)) == (VERSION, ["sandbox_api.v1"])
        assert {"bundle.capture.held", "bundle.restore.negotiate", "process"} <= set(info.capabilities)
        assert (info.machine, info.c_library) == (os.uname().machine, platform.libc_ver()[0] or "musl")
        assert (info.home, info.workspace) == (os.fsencode(daemon.home), os.fsencode(tmp_path / "real"))
        assert list(info.roots) == [os.fsencode(tmp_path / name) for name in ("home", "more", "real")]
        assert (info.uid, info.gid, info.kernel) == (os.geteuid(), os.getegid(), os.uname().release)
        assert (info.limits.max_bytes, info.limits.max_files) == (1000, 10)
        assert abs(info.time.ToNanoseconds() - tmp_path.stat().st_mtime_ns) < 600 * 10**9
        assert info.instance_id == _info(daemon.target).instance_id
    with running_daemon(tmp_path) as daemon:
        again = _info(daemon.target)
        assert again.instance_id != info.instance_id
        assert (again.limits.max_bytes, again.limits.max_files) == (Limits().max_bytes, Limits().max_files)


def test_diagnose_looks_at_the_daemon(tmp_path: Path) -> None:
    """Without formats, the daemon itself is looked at, and every finding says how grave it is."""
    with running_daemon(tmp_path) as daemon, _channel(daemon.target) as channel:
        found = daemon_pb2_grpc.DaemonServiceStub(channel).Diagnose(daemon_pb2.DiagnoseRequest(), timeout=END_SECONDS)
    assert found.findings
    assert all(finding.level and finding.check and finding.message for finding in found.findings)


def test_cli_home_is_resolved(tmp_path: Path) -> None:
    """By a variable of the call, by one of the daemon, or below the agent home, where it need not exist."""
    with running_daemon(tmp_path, environment={"X_HOME": str(tmp_path / "workspace")}) as daemon:
        with _channel(daemon.target) as channel:
            resolve = daemon_pb2_grpc.DaemonServiceStub(channel).ResolveHome
            (daemon.home / "real").mkdir()
            (daemon.home / "link").symlink_to("real")
            requests = [
                daemon_pb2.ResolveHomeRequest(variable="X_HOME", directory=".x", variables={"X_HOME": "/etc"}),
                daemon_pb2.ResolveHomeRequest(variable="X_HOME", directory=".x"),
                daemon_pb2.ResolveHomeRequest(variable="Y_HOME", directory=".x"),
                daemon_pb2.ResolveHomeRequest(directory="link", follow_root_link=True),
            ]
            with fails("workspace", "outside_roots"):
                resolve(requests[0], timeout=END_SECONDS)
            answers = [resolve(request, timeout=END_SECONDS) for request in requests[1:]]
        paths = [daemon.workspace, daemon.home / ".x", daemon.home / "real"]
        assert [(answer.home, answer.exists) for answer in answers] == [(bytes(path), path.exists()) for path in paths]


def test_socket_is_private(tmp_path: Path) -> None:
    """The socket is for its user alone, in a folder for its user alone; the lock goes with the daemon."""
    with running_daemon(tmp_path) as daemon:
        path = Path(daemon.target.removeprefix("unix:"))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("name", ["a%41b", "a?b=c", "a#b", "a b", "ä"])
def test_socket_with_any_name(tmp_path: Path, name: str) -> None:
    """A path that a URI would read otherwise is the socket's path as it is; the health check finds it."""
    listen = f"unix:{tmp_path}/{name}/agent.sock"
    with running_daemon(tmp_path, "--listen", listen) as daemon:
        assert daemon.target == listen
        assert stat.S_ISSOCK((tmp_path / name / "agent.sock").stat().st_mode)
        assert _command("healthcheck", "--listen", listen).returncode == 0


def test_default_socket(tmp_path: Path) -> None:
    """Without --listen, daemon and health check find each other."""
    if os.geteuid() == 0:
        pytest.skip("root's default is one for the whole machine")
    environment = {"XDG_RUNTIME_DIR": str(tmp_path)}
    with running_daemon(tmp_path, "--listen", "", environment=environment) as daemon:
        assert daemon.target == f"unix:{tmp_path}/sandbox-agent/agent.sock"
        assert _command("healthcheck", environment=environment).returncode == 0


def test_live_socket_is_not_stolen(tmp_path: Path) -> None:
    """A second daemon on the same socket is refused with its exit status; the first goes on serving."""
    with running_daemon(tmp_path) as daemon:
        second = _command("serve", "--listen", daemon.target, "--home", str(tmp_path))
        assert (second.returncode, second.stdout) == (12, "")
        assert second.stderr.startswith("sandbox-agent: another daemon listens on")
        assert "configuration/listen" in second.stderr
        assert _info(daemon.target).version == VERSION


def test_stale_socket_is_replaced(tmp_path: Path) -> None:
    """A daemon that was killed leaves its socket; the next one takes its place."""
    with running_daemon(tmp_path) as daemon:
        daemon.process.kill()
        daemon.process.wait(END_SECONDS)
        assert Path(daemon.target.removeprefix("unix:")).exists()
    with running_daemon(tmp_path) as daemon:
        assert _info(daemon.target).version == VERSION


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_loopback_port(tmp_path: Path, host: str) -> None:
    """Port 0 gives a port that is printed, and that no second daemon can share."""
    with running_daemon(tmp_path, "--listen", f"{host}:0") as daemon:
        printed, _, port = daemon.target.rpartition(":")
        assert printed == host
        assert int(port) > 0
        assert "every user of this machine can connect" in daemon.log()
        # A proxy that the environment names is not asked for this machine's own ports.
        environment = {"http_proxy": "http://127.0.0.1:9", "grpc_proxy": "http://127.0.0.1:9"}
        assert _command("healthcheck", "--listen", daemon.target, environment=environment).returncode == 0
        second = _command("serve", "--listen", daemon.target, "--home", str(tmp_path))
        assert second.returncode == 12
        assert "configuration/listen" in second.stderr
        assert _info(daemon.target).version == VERSION


def test_network_is_refused(tmp_path: Path) -> None:
    """An address that others reach is refused, with the reason in one line and a hint."""
    refused = _command("serve", "--listen", "0.0.0.0:0", "--home", str(tmp_path))
    assert (refused.returncode, refused.stdout) == (12, "")
    assert "TLS and tokens are not available" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("option", ["--home", "--workspace", "--root"])
def test_root_that_is_missing_is_refused(tmp_path: Path, option: str) -> None:
    """A root that is no directory ends the start with a message that names it."""
    socket = f"unix:{tmp_path}/agent.sock"
    refused = _command("serve", "--listen", socket, "--home", str(tmp_path), option, str(tmp_path / "missing"))
    assert refused.returncode == 12
    assert "missing" in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_unusable_state_folder_does_not_stop_reads(tmp_path: Path) -> None:
    """Where the state folder is not the daemon's alone, it says so in its log and still reads."""
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(0o777)
    with running_daemon(tmp_path, "--state", str(state)) as daemon:
        assert "the state folder cannot be used reason=workspace/access" in daemon.log()
        (daemon.workspace / "file").write_text("x")
        with _channel(daemon.target) as channel:
            request = file_pb2.StatRequest(path=os.fsencode(daemon.workspace / "file"))
            assert file_pb2_grpc.FileServiceStub(channel).Stat(request, timeout=END_SECONDS).file.size == 1


def test_a_daemon_that_only_reads_leaves_no_trace(tmp_path: Path) -> None:
    """Serving alone makes nothing in home and workspace."""
    with running_daemon(tmp_path) as daemon:
        _info(daemon.target)
    assert list(daemon.home.iterdir()) == list(daemon.workspace.iterdir()) == []


def test_idle_memory(tmp_path: Path) -> None:
    """A daemon that waits costs its sandbox at most 45 MiB."""
    with running_daemon(tmp_path) as daemon:
        _info(daemon.target)
        assert _status_mib(daemon.process.pid, "VmHWM") <= MAX_IDLE_MIB


# Health, reflection, version, log


def test_health(tmp_path: Path) -> None:
    """Health is told by the standard service, for orchestrators, and by the command, for images."""
    with running_daemon(tmp_path) as daemon:
        with _channel(daemon.target) as channel:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=END_SECONDS)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        healthy = _command("healthcheck", "--listen", daemon.target)
        assert (healthy.returncode, healthy.stdout) == (0, f"serving on {daemon.target}\n")
    unhealthy = _command("healthcheck", "--listen", daemon.target, "--timeout-seconds", "2")
    assert (unhealthy.returncode, unhealthy.stdout) == (1, f"not serving: {daemon.target} says UNAVAILABLE\n")


def test_reflection(tmp_path: Path) -> None:
    """Tools such as grpcurl find all services and their messages."""
    with running_daemon(tmp_path) as daemon, _channel(daemon.target) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        symbol = reflection_pb2.ServerReflectionRequest(file_containing_symbol="sandbox_api.v1.BundleService")
        names, file = stub.ServerReflectionInfo(iter([request, symbol]), timeout=END_SECONDS)
    assert {service.name for service in names.list_services_response.service} == {
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
        "sandbox_api.v1.BundleService",
        "sandbox_api.v1.DaemonService",
        "sandbox_api.v1.FileService",
        "sandbox_api.v1.ProcessService",
        "sandbox_api.v1.TranscriptService",
    }
    assert file.file_descriptor_response.file_descriptor_proto


def test_version() -> None:
    """The command says which version it is, and nothing else."""
    said = _command("version")
    assert (said.returncode, said.stdout, said.stderr) == (0, f"{VERSION}\n", "")


def test_log_names_no_path(tmp_path: Path) -> None:
    """What a call names stays out of the log, unless the operator asks for it."""
    request = file_pb2.StatRequest(path=os.fsencode(tmp_path / "workspace" / "secret"))
    for extra, is_named in ((), False), (("--debug",), True):
        with running_daemon(tmp_path, *extra) as daemon, _channel(daemon.target) as channel:
            with fails("workspace", "not_found"):
                file_pb2_grpc.FileServiceStub(channel).Stat(request, timeout=END_SECONDS)
            assert ("secret" in daemon.log()) == is_named
        assert "method=/sandbox_api.v1.FileService/Stat" in daemon.log()
        assert "outcome=workspace/not_found" in daemon.log()


# Ending


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    """Either signal ends the daemon with status 0; its socket is gone and its log says so."""
    with running_daemon(tmp_path) as daemon:
        daemon.process.send_signal(number)
        assert daemon.process.wait(END_SECONDS) == 0
    assert daemon.log().splitlines()[-1].endswith("stopped")
    assert not Path(daemon.target.removeprefix("unix:")).exists()


def test_end_of_input_ends(tmp_path: Path) -> None:
    """With --until-eof a daemon ends when its parent closes the pipe or dies; what comes before is ignored."""
    with running_daemon(tmp_path, "--until-eof") as daemon:
        assert daemon.process.stdin is not None
        daemon.process.stdin.write(b"ignored")
        daemon.process.stdin.flush()
        assert _info(daemon.target).version == VERSION
        daemon.process.stdin.close()
        assert daemon.process.wait(END_SECONDS) == 0


def test_end_of_input_that_cannot_be_waited_for(tmp_path: Path) -> None:
    """With --until-eof and no parent that holds a pipe open, the daemon ends at once."""
    socket = f"unix:{tmp_path}/run/agent.sock"
    ended = _command("serve", "--until-eof", "--listen", socket, "--home", str(tmp_path))
    assert (ended.returncode, ended.stdout) == (0, f"listening {socket}\n")


def test_drain_lets_a_call_finish(tmp_path: Path) -> None:
    """A call in progress when the signal comes may end, health says so, and a second signal changes nothing."""
    with (
        running_daemon(tmp_path) as daemon,
        _channel(daemon.target) as channel,
        _write_in_progress(daemon) as (call, requests),
    ):
        health = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=END_SECONDS)
        assert next(health).status == health_pb2.HealthCheckResponse.SERVING
        daemon.process.terminate()
        assert next(health).status == health_pb2.HealthCheckResponse.NOT_SERVING
        health.cancel()
        wait_until(lambda: "draining" in daemon.log(), "the drain")
        daemon.process.terminate()
        empty = bytes.fromhex("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
        message = file_pb2.WriteRequest()
        message.trailer.sha256 = empty
        requests.send(message)
        requests.end()
        assert call.result(END_SECONDS).file.size == 0
        assert daemon.process.wait(END_SECONDS) == 0
        assert [path.name for path in daemon.workspace.iterdir()] == ["file"]


def test_drain_ends_calls_that_do_not_finish(tmp_path: Path) -> None:
    """After the grace period a call is cancelled; it cleans up before the daemon ends."""
    with (
        running_daemon(tmp_path, "--drain-seconds", "0.1") as daemon,
        _write_in_progress(daemon) as (call, _),
    ):
        daemon.process.terminate()
        assert daemon.process.wait(END_SECONDS) == 0
        assert isinstance(call.exception(END_SECONDS), grpc.RpcError)
        assert list(daemon.workspace.iterdir()) == []
        assert "outcome=unavailable/cancelled" in daemon.log()
