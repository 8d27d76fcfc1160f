"""The control channel: small JSON messages between the processes, beside the engine that carries the arrays.

Rank 0 serves it in threads. One thing happens on it: every process sends a value under a name, and gets the values of all.
So processes can be compared before a collective that would otherwise wait for ever, and a process that does not come is named.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any


class DistributedError(RuntimeError):
    """Processes do not agree, or one of them has ended. The message names the ranks.

    >>> import trellis as tl
    >>> issubclass(tl.distributed.DistributedError, RuntimeError)
    True
    """


class StuckError(DistributedError, TimeoutError):
    """A process did not come within the timeout. The message names its rank.

    >>> import trellis as tl
    >>> issubclass(tl.distributed.StuckError, (tl.distributed.DistributedError, TimeoutError))
    True
    """


def begun_text(framework: str) -> str:
    return (
        f"initialize: {framework} has already begun to compute, and joins other processes only before that; call "
        "tl.distributed.initialize() at the beginning of the program"
    )


def listen(port: int) -> socket.socket:
    """A socket that listens; of a port that the last rank 0 has just left, too."""
    return socket.create_server(("", port), backlog=1024)


class Engine:
    """What the engines of the frameworks have in common; each has `all_reduce`, `all_gather` and `broadcast` of its own."""

    name = ""
    carries: tuple[str, ...] = ()  # the dtypes that it carries
    waits_forever = False  # whether its collectives know no timeout
    uncompiled: Any = staticmethod(lambda function: function)  # a function that a compiler does not look into
    rank = 0
    all_reduce: Any

    def reduce_scatter(self, rows: Any, op: str) -> Any:
        return self.all_reduce(rows, op)[self.rank]

    def give_up(self, why: str) -> None:
        """Leave a collective in which this process waits: with the whole process, if there is no other way."""
        print(f"trellis: {why}", file=sys.stderr, flush=True)
        self.abort()

    def abort(self) -> None:
        os._exit(1)

    def shutdown(self) -> None: ...


class Server:
    """Collects one value per rank under a key, then sends all of them to all. It answers with an error if a rank is missing.

    A thread serves each process: it reads a value, waits for those of the others, and answers.
    """

    def __init__(self, listener: socket.socket, size: int) -> None:
        self.size = size
        self.changed = threading.Condition()
        self.waiting: dict[str, dict[int, Any]] = {}
        self.last: dict[int, str] = {}  # rank -> what it did last
        self.gone: set[int] = set()
        _begin(self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _begin(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        rank = -1
        with contextlib.suppress(OSError):  # the other end is gone
            for line in connection.makefile("rb"):
                message = json.loads(line)
                rank = message["rank"]
                connection.sendall(json.dumps(self._answer(**message)).encode() + b"\n")
        with self.changed:
            self.gone |= {rank} - {-1}
            self.changed.notify_all()

    def _answer(self, rank: int, key: str, name: str, value: Any, timeout: float) -> dict[str, Any]:
        with self.changed:
            values = self.waiting.setdefault(key, {})
            values[rank], self.last[rank] = (name, value), name
            if len(values) == self.size:
                self.changed.notify_all()
            self.changed.wait_for(lambda: len(values) == self.size or self.gone - set(values), timeout)
            if self.waiting.get(key) is values:
                del self.waiting[key]
            missing = {other: self.last.get(other, "") for other in range(self.size) if other not in values}
        if not missing:
            return dict(zip(("names", "values"), zip(*[values[other] for other in range(self.size)])))
        gone = {other: last for other, last in missing.items() if other in self.gone}
        return {"gone": gone, "missing": {other: last for other, last in missing.items() if other not in gone}}


def _begin(function: Any, *arguments: Any) -> None:
    threading.Thread(target=function, args=arguments, daemon=True, name="trellis-control").start()


class Control:
    """This process's end of the channel."""

    def __init__(self, rank: int, size: int, host: str, port: int, timeout: float, listener: socket.socket | None = None) -> None:
        self.rank, self.size, self.timeout, self.count = rank, size, timeout, 0
        if rank == 0:
            Server(listener or listen(port), size)
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
        if "values" not in answer:
            raise _failure(name, answer, timeout)
        if not key and len(set(answer["names"])) > 1:
            raise _differ(name, [{"the call": one} for one in answer["names"]])
        return answer["values"]

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
        if len(set(digests)) > 1:
            raise _differ(name, self.exchange(name, dict(mine)))

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


def _differ(name: str, described: list[dict[str, str]]) -> DistributedError:
    return DistributedError(f"{name}: the processes differ: {difference(described)}")


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
