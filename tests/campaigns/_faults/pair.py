"""A Valkey with a replica, behind the fault proxy: frozen, killed, restarted with or without its data, failed over."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.live import HOST
from tests.proxy import FaultProxy
from tests.servers import RedisServer

# appendfsync no: each command is in the file before its reply leaves, and a killed process, unlike a lost machine,
# loses nothing of it; everysec may put the write off. No pause before a full copy, no waiting for replicas at the end.
OPTIONS = (
    *("--appendfsync", "no", "--repl-diskless-sync-delay", "0", "--shutdown-timeout", "0"),
    *("--repl-timeout", "3600", "--appendonly", "no"),
)
LONGEST = 15.0  # seconds that a server may take to come together again


class Pair:
    """The clients' server is behind :attr:`proxy`; the other copies it."""

    def __init__(self, base: Path, *, clock: bool = True) -> None:
        self.primary, self.replica = (RedisServer("valkey91", base, *OPTIONS, clock=clock) for _ in range(2))
        self.proxy = FaultProxy(self.primary.port)

    def start(self) -> Pair:
        for server in (self.primary, self.replica):
            self._spawn(server)
        self._follow(self.replica, self.primary)
        return self

    def stop(self) -> None:
        self.proxy.close()
        for server in (self.primary, self.replica):
            server.stop()

    def wait_for_copy(self) -> bool:
        """Wait until the replica has all that the primary has; False if that does not come to be."""
        return _until(self._is_copied)

    def kill_and_restart(self) -> None:
        """With all data: the append-only file has it."""
        self._wait_for_files(self.primary)
        self.primary.kill()
        self._spawn(self.primary, appendonly=True)

    def save_and_restart(self) -> None:
        """With all data: the snapshot that an orderly end writes has it."""
        self.primary.control.config_set("appendonly", "no")
        self.primary.client(retry=Retry(NoBackoff(), 0)).shutdown(save=True)  # it has no reply to wait for
        _until(lambda: not self.primary.process.alive)
        self._restart_from_snapshot()

    def snapshot(self) -> None:
        """Keep the state of this moment for :meth:`kill_and_restart_from_snapshot`."""
        self.primary.control.save()

    def kill_and_restart_from_snapshot(self) -> None:
        """Without what was written since :meth:`snapshot`."""
        self.primary.kill()
        self._restart_from_snapshot()

    def kill_and_restart_empty(self) -> None:
        self.primary.kill()
        self._files(self.primary, "dump.rdb").unlink(missing_ok=True)
        self._restart_from_snapshot()

    def detach(self) -> None:
        """From now on the replica copies nothing, though the primary goes on serving."""
        self.replica.control.replicaof("NO", "ONE")

    def promote_detached(self) -> None:
        """Clients go to the former replica, which lacks what was written since :meth:`detach`."""
        self._switch()
        self.replica.kill()
        self._files(self.replica, "dump.rdb").unlink(missing_ok=True)
        shutil.rmtree(self._files(self.replica, "appendonlydir"), ignore_errors=True)
        self._spawn(self.replica)
        self._follow(self.replica, self.primary)

    def fail_over(self) -> bool:
        """In order: no write is lost. Clients of the old primary meet a read-only server. False if it did not work."""
        self.primary.control.execute_command("FAILOVER", "TIMEOUT", 3000)
        done = _until(lambda: self._role(self.primary) == "slave" and self._role(self.replica) == "master")
        if done:
            self._switch()
        return done

    def fill(self) -> None:
        """Writes are refused from now on, for want of memory."""
        self.primary.control.config_set("maxmemory", "1")

    def make_room(self) -> None:
        self.primary.control.config_set("maxmemory", "0")

    def flush_scripts(self) -> None:
        self.primary.control.script_flush()

    def move_clock(self, seconds: float) -> None:
        for server in (self.primary, self.replica):
            server.move_clock(seconds)

    def _switch(self) -> None:
        self.primary, self.replica = self.replica, self.primary
        self.proxy.target = self.primary.port
        self.proxy.reset()

    def _spawn(self, server: RedisServer, *, appendonly: bool = False) -> None:
        """A server that is told so at the start reads its append-only file, otherwise its snapshot."""
        server.process.argv[-1] = "yes" if appendonly else "no"
        server.close_clients()
        server.start()
        server.control.config_set("appendonly", "yes")
        self._wait_for_files(server)

    def _restart_from_snapshot(self) -> None:
        shutil.rmtree(self._files(self.primary, "appendonlydir"), ignore_errors=True)
        self._spawn(self.primary)

    def _wait_for_files(self, server: RedisServer) -> None:
        """An append-only file that was switched on holds nothing until its first rewrite is over."""
        if not _until(lambda: self._has_file(server)):
            raise RuntimeError(f"no append-only file came to be; the log ends:\n{server.log()[-2000:]}")

    @staticmethod
    def _has_file(server: RedisServer) -> bool:
        info = server.control.info("persistence")
        pending = info["aof_rewrite_in_progress"] or info["aof_rewrite_scheduled"]
        return bool(info["aof_enabled"]) and not pending and not info["loading"]

    def _follow(self, server: RedisServer, leader: RedisServer) -> None:
        server.control.replicaof(HOST, str(leader.port))

    def _is_copied(self) -> bool:
        theirs = self.replica.control.info("replication")
        ours = self.primary.control.info("replication")
        return theirs.get("master_link_status") == "up" and theirs["slave_repl_offset"] >= ours["master_repl_offset"]

    @staticmethod
    def _role(server: RedisServer) -> str:
        return str(server.control.info("replication")["role"])

    @staticmethod
    def _files(server: RedisServer, name: str) -> Path:
        return server.process.folder / name


def _until(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + LONGEST
    while time.monotonic() < end:
        try:
            if holds():
                return True
        except redis.RedisError:
            pass  # it is starting, or loading what it got from the other
        time.sleep(0.01)
    return False
