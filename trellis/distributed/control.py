"""The control channel: small JSON messages between the processes, beside the engine that carries the arrays.

Rank 0 serves it in a thread. One thing happens on it: every process sends a value under a name, and gets the values of all.
So processes can be compared before a collective that would otherwise wait for ever, and a process that does not come is named.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import selectors
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any


class DistributedError(RuntimeError):
    """Processes do not agree, or one of them has ended. The message names the ranks."""


class StuckError(DistributedError, TimeoutError):
    """A process did not come within the timeout. The message names its rank."""


def begun_text(framework: str) -> str:
    return (
        f"initialize: {framework} has already begun to compute, and joins other processes only before that; call "
        "tl.distributed.initialize() at the beginning of the program"
    )


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; of a port that the last rank 0 has just left, too."""
    made = socket.create_server(("", port), reuse_port=False, backlog=1024)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return made


class _Peer:
    """A connection as the server sees it."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.rank, self.received = connection, -1, b""

    def read(self) -> list[dict[str, Any]] | None:
        """The messages that have come; None if the other end is gone."""
        try:
            data = self.connection.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            return None
        *lines, self.received = (self.received + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def send(self, message: Any) -> None:
        with contextlib.suppress(OSError):  # it may be gone, which the next read sees
            self.connection.sendall(json.dumps(message).encode() + b"\n")


class Server(threading.Thread):
    """Collects one value per rank under a name, then sends all of them to all. It answers with an error if a rank is missing."""

    def __init__(self, listener: socket.socket, size: int) -> None:
        super().__init__(daemon=True, name="trellis-control")
        self.listener, self.size = listener, size
        self.peers: dict[int, _Peer] = {}
        self.gone: dict[int, str] = {}  # rank -> what it did last
        self.last: dict[int, str] = {}
        self.waiting: dict[str, dict[int, Any]] = {}
        self.deadlines: dict[str, float] = {}
        self.selector = selectors.DefaultSelector()
        self.selector.register(listener, selectors.EVENT_READ, None)

    def run(self) -> None:
        while True:
            nearest = min(self.deadlines.values(), default=time.monotonic() + 3600.0)
            for found, _ in self.selector.select(max(0.0, nearest - time.monotonic())):
                if found.data is None:
                    connection, _ = self.listener.accept()
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self.selector.register(connection, selectors.EVENT_READ, _Peer(connection))
                else:
                    self._serve(found.data)
            now = time.monotonic()
            for name in [name for name, deadline in self.deadlines.items() if deadline <= now]:
                self._give_up(name)
            if len(self.gone) == self.size:
                return

    def _serve(self, peer: _Peer) -> None:
        messages = peer.read()
        if messages is None:
            self.selector.unregister(peer.connection)
            if peer.rank >= 0:
                self.gone[peer.rank] = self.last.get(peer.rank, "")
                for name in list(self.waiting):
                    self._give_up(name)
            return
        for message in messages:
            peer.rank = message["rank"]
            self.peers[peer.rank], self.last[peer.rank] = peer, message["name"]
            self._collect(message)

    def _collect(self, message: dict[str, Any]) -> None:
        name = message["key"]
        values = self.waiting.setdefault(name, {})
        values[message["rank"]] = message["value"]
        self.deadlines.setdefault(name, time.monotonic() + message["timeout"])
        if len(values) == self.size:
            self._answer(name, {"values": [values[rank] for rank in range(self.size)]})
        elif self.gone:
            self._give_up(name)

    def _give_up(self, name: str) -> None:
        missing = [rank for rank in range(self.size) if rank not in self.waiting[name]]
        self._answer(name, {"missing": {rank: self.last.get(rank, "") for rank in missing if rank not in self.gone},
                            "gone": {rank: self.gone[rank] for rank in missing if rank in self.gone}})  # fmt: skip

    def _answer(self, name: str, message: Any) -> None:
        self.deadlines.pop(name, None)
        for rank in self.waiting.pop(name):
            self.peers[rank].send(message)


class Control:
    """This process's end of the channel."""

    def __init__(self, rank: int, size: int, host: str, port: int, timeout: float, listener: socket.socket | None = None) -> None:
        self.rank, self.size, self.timeout, self.count = rank, size, timeout, 0
        if rank == 0:
            Server(listener or listen(host, port), size).start()
        self.socket = _connect(host, port, timeout, rank)
        self.host = self.socket.getsockname()[0]
        self.received = b""
        self.lock = threading.Lock()

    def exchange(self, name: str, value: Any, timeout: float | None = None, *, key: str = "") -> list[Any]:
        """The values that all processes give, by rank. Every process calls it, in the same order.

        Calls are told apart by their number, or by `key`; `name` is what messages call it.
        """
        timeout = self.timeout if timeout is None else timeout
        with self.lock:
            if not key:
                self.count += 1
            message = {"rank": self.rank, "key": key or str(self.count), "name": name, "value": value, "timeout": timeout}
            try:
                self.socket.sendall(json.dumps(message).encode() + b"\n")
                answer = self._answer(timeout)
            except OSError as error:
                raise DistributedError(f"{name}: rank 0 has ended or cannot be reached: {error}") from error
        if "values" in answer:
            return answer["values"]
        raise _failure(name, answer, timeout)

    def _answer(self, timeout: float) -> dict[str, Any]:
        self.socket.settimeout(timeout + 30.0)  # the server gives up first, and names the missing
        while b"\n" not in self.received:
            data = self.socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the connection is closed")
            self.received += data
        line, _, self.received = self.received.partition(b"\n")
        return json.loads(line)

    def compare(self, name: str, mine: Mapping[str, str]) -> None:
        """Raise, on every rank, if the descriptions differ between the ranks. The message shows the first difference."""
        digests = self.exchange(name, hashlib.sha256(json.dumps(mine, sort_keys=True).encode()).hexdigest())
        if len(set(digests)) == 1:
            return
        raise DistributedError(f"{name}: the processes differ: {difference(self.exchange(name, dict(mine)))}")

    def close(self) -> None:
        self.socket.close()


def difference(described: list[dict[str, str]]) -> str:
    """The first entry that is not the same for all ranks.

    >>> difference([{"w": "float32[2]", "b": "1"}, {"w": "float32[3]", "b": "1"}])
    "'w': rank 0 has float32[2], rank 1 has float32[3]"
    """
    names = dict.fromkeys(name for one in described for name in one)
    found = [name for name in names if len({one.get(name) for one in described}) > 1]
    by_value: dict[str, list[int]] = {}
    for rank, one in enumerate(described):
        by_value.setdefault(one.get(found[0], "nothing"), []).append(rank)
    shown = ", ".join(f"{ranks_text(ranks)} has {value}" for value, ranks in by_value.items())
    return f"{found[0]!r}: {shown}" + (f" (and {len(found) - 1} more differences)" if len(found) > 1 else "")


def ranks_text(ranks: list[int]) -> str:
    several = ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {several}"


def _failure(name: str, answer: dict[str, Any], timeout: float) -> DistributedError:
    gone, missing = answer["gone"], answer["missing"]
    if gone:
        where = [f"rank {rank}{f' after {last}' if last else ''}" for rank, last in gone.items()]
        return DistributedError(f"{name}: {', '.join(where)} has ended; its own output says why")
    where = [f"rank {rank} ({f'last seen in {last}' if last else 'never seen'})" for rank, last in missing.items()]
    return StuckError(f"{name}: {', '.join(where)} did not come within {timeout:g} seconds")


def _connect(host: str, port: int, timeout: float, rank: int) -> socket.socket:
    deadline = time.monotonic() + timeout
    while True:
        try:
            made = socket.create_connection((host, port), timeout=5.0)
            break
        except OSError as error:
            if time.monotonic() > deadline:
                raise StuckError(
                    f"initialize: rank {rank} reached no rank 0 at {host}:{port} within {timeout:g} seconds: {error}"
                ) from error
            time.sleep(0.05)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made
