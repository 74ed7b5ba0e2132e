"""A TCP proxy with programmable faults, so that lost replies and dead links can be repeated at will."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time

from tests.live import HOST


class FaultProxy:
    """Forwards connections to a port of this machine. Set the faults at any time; they act on open connections too.

    ``delay``: seconds that each chunk waits, in both directions. ``black_hole``: connections stay open and carry
    nothing. :meth:`drop_reply`: the command reaches the server, its reply does not come back. :meth:`reset`: every
    connection is cut. :meth:`refuse`: nobody listens, until :meth:`accept`.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.delay = 0.0
        self.black_hole = False
        self.dropped = 0  # replies thrown away so far
        self._drops = 0
        self._word = b""
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self.port = 0
        self.accept()

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    @property
    def connections(self) -> int:
        return len(self._pairs)

    def drop_reply(self, to: bytes = b"", times: int = 1) -> None:
        """The next `times` replies to a command that contains `to` are lost, and their connections are cut."""
        with self._lock:
            self._word, self._drops = to.upper(), times

    def accept(self) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, self.port))
        listener.listen(256)
        self.port = listener.getsockname()[1]
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def refuse(self) -> None:
        """Stop listening; open connections are cut."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts; close alone does not
            self._listener.close()
            self._listener = None
        self.reset()

    close = refuse

    def reset(self) -> None:
        """Cut every open connection, as a crashed machine or a firewall does (RST, no goodbye)."""
        for pair in list(self._pairs):
            self._cut(pair)

    def _cut(self, pair: tuple[socket.socket, socket.socket]) -> None:
        with self._lock:
            self._pairs.discard(pair)
        for end in pair:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RD)  # wakes the thread that reads; sends nothing, so that close sends the RST
            end.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection((HOST, self.target))
            except OSError:
                client.close()
                continue
            self._join(client, server)

    def _join(self, client: socket.socket, server: socket.socket) -> None:
        pair = (client, server)
        asked = bytearray()  # what was asked since the last reply
        for end in pair:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._pairs.add(pair)
        threading.Thread(target=self._up, args=(pair, asked), daemon=True).start()
        threading.Thread(target=self._down, args=(pair, asked), daemon=True).start()

    def _up(self, pair: tuple[socket.socket, socket.socket], asked: bytearray) -> None:
        client, server = pair
        with contextlib.suppress(OSError):
            while chunk := client.recv(65_536):
                time.sleep(self.delay)
                asked += chunk.upper()
                if not self.black_hole:
                    server.sendall(chunk)
        self._cut(pair)

    def _down(self, pair: tuple[socket.socket, socket.socket], asked: bytearray) -> None:
        client, server = pair
        with contextlib.suppress(OSError):
            while chunk := server.recv(65_536):
                time.sleep(self.delay)
                if self._takes(asked):
                    break
                asked.clear()
                if not self.black_hole:
                    client.sendall(chunk)
        self._cut(pair)

    def _takes(self, asked: bytearray) -> bool:
        with self._lock:
            if not self._drops or self._word not in asked:
                return False
            self._drops -= 1
            self.dropped += 1
            return True
