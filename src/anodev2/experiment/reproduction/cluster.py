"""Runs on a Ray cluster, one task a run, each on whichever node has room."""

import os
import socket
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from signal import SIGTERM, getsignal, signal
from threading import current_thread, main_thread
from typing import Any

from anodev2.experiment.config import RunConfig
from anodev2.experiment.failure import RunFailure
from anodev2.experiment.folder import unwritable
from anodev2.experiment.reproduction.engine import Engine, Outcome, carry_out, tell_retry
from anodev2.usage import UsageError, check_count, first_line

RETRIES = 5
"""How often a run goes on elsewhere before it counts as failed."""

PATIENCE = 120.0
"""Seconds that a run's lock may outlive its node: NFS frees it after 90."""

DESERTED = 600.0
"""Seconds that runs wait for a node to come where none is left that has room for them."""

OBJECT_STORE = 100 * 2**20
"""Bytes of shared memory that Ray keeps; its least is 75 MiB, and tasks here pass a few words."""


@dataclass(frozen=True)
class Cluster(Engine):
    """A Ray cluster; `out` must be one folder on all its nodes.

    A run whose node or process dies goes on from its last checkpoint on a node that lives.

    Args:
        address: HOST:PORT of the head node, or "auto" for the cluster that this machine is in;
            None starts Ray on this machine.
        threads: CPUs of each run.
        gpus: of each run, up to 1; 1/2 has two share one.
    """

    address: str | None
    threads: int
    gpus: float = 0.0

    def __post_init__(self) -> None:
        check_count("threads", self.threads)
        if not 0 <= self.gpus <= 1:
            raise UsageError(
                f"gpus must be from 0 to 1, got {self.gpus:g}: a run trains on one device"
            )

    @property
    def side_by_side(self) -> None:
        """Unknown: nodes come and go."""
        return None

    def run(self, configs: Sequence[RunConfig], out: Path) -> Iterator[Outcome]:
        ray = _ray()
        with _board(out.absolute()) as board, _connected(ray, self.address):
            _check_room(ray.nodes(), self.threads, self.gpus)
            yield from self._outcomes(ray, configs, out.absolute(), board)

    def _outcomes(
        self, ray: Any, configs: Sequence[RunConfig], out: Path, board: "_Board"
    ) -> Iterator[Outcome]:
        # Each run has a process of its own, as with the local engine. Ray's own retries do not
        # tell the task that it is one.
        remote = ray.remote(num_cpus=self.threads, num_gpus=self.gpus, max_calls=1, max_retries=0)(
            _task
        )

        def submit(config: RunConfig, patience: float) -> Any:
            own = remote.options(name=config.name)
            return own.remote(config, out, board.folder, _base(config), self, patience)

        running = {submit(config, 0.0): config for config in configs}
        retries = dict.fromkeys(configs, 0)
        seen = time.monotonic()
        try:
            while running:
                ended, _ = ray.wait(list(running), timeout=0.5)
                board.show()
                if _has_room(ray.nodes(), self.threads, self.gpus):
                    seen = time.monotonic()
                elif time.monotonic() - seen > DESERTED:
                    raise RunFailure(
                        f"for {DESERTED:g} seconds the cluster has had no node with "
                        f"{self.threads} CPUs and {self.gpus:g} GPUs: start nodes, and the same "
                        "command goes on"
                    )
                for task in ended:
                    config = running.pop(task)
                    outcome, death = _outcome(ray, config, task)
                    if death and retries[config] < RETRIES:
                        retries[config] += 1
                        tell_retry(config, death)
                        running[submit(config, PATIENCE)] = config
                    else:
                        yield outcome
        finally:
            for task in running:
                ray.cancel(task, force=True)


def _outcome(ray: Any, config: RunConfig, task: Any) -> tuple[Outcome, str]:
    """What became of a run, and what ended its process or node if that died."""
    try:
        return ray.get(task), ""
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, UsageError):
            raise error.cause from None
        return Outcome(config, "failed", first_line(error.cause)), ""
    except ray.exceptions.RayError as error:
        death = f"its node or process died ({type(error).__name__})"
        return Outcome(config, "failed", f"{death}, {1 + RETRIES} times"), death


def _task(
    config: RunConfig, out: Path, board: Path, base: Path | None, engine: Cluster, patience: float
) -> Outcome:
    """Carry out one run on a node of the cluster."""
    node = _ray().util.get_node_ip_address()
    if not board.is_dir():
        raise UsageError(
            f"the node {node} does not see '{out}': expected --out to be a folder that all nodes "
            "of the cluster share"
        )
    if base:
        try:
            os.chdir(base)
        except OSError as error:
            raise UsageError(
                f"the node {node} does not see '{base}', in which '{config.data}' lies: expected "
                "--data to be a folder that all nodes of the cluster share"
            ) from error
    if engine.gpus == 0:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # Ray leaves all to a task that asks for none
    with (board / config.name).open("a", buffering=1) as lines, redirect_stderr(lines):
        return carry_out(config, out, engine.threads, patience=patience)


def _base(config: RunConfig) -> Path | None:
    """The folder that a relative path of the data starts from."""
    data = Path(config.data)
    return Path.cwd() if data.is_dir() and not data.is_absolute() else None


class _Board:
    """A folder in which each run on another machine leaves the lines it says.

    Args:
        folder: where; a node that does not see it does not share `out`.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._shown: dict[Path, int] = {}

    def show(self) -> None:
        """Write the lines that have come since on standard error."""
        for path in sorted(self.folder.iterdir()):
            with path.open("rb") as file:
                file.seek(self._shown.get(path, 0))
                text = file.read()
            lines = text[: text.rfind(b"\n") + 1]
            self._shown[path] = self._shown.get(path, 0) + len(lines)
            print(lines.decode(errors="replace"), end="", file=sys.stderr, flush=True)


@contextmanager
def _board(out: Path) -> Iterator[_Board]:
    folder = out / f".cluster-{uuid.uuid4().hex}"
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise unwritable(out, error) from error
    try:
        yield _Board(folder)
    finally:
        rmtree(folder, ignore_errors=True)


def _ray() -> Any:
    """Ray, which counts no usage and keeps its remarks on nodes off standard output."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")  # read when it is imported
    try:
        import ray
    except ModuleNotFoundError as error:
        raise UsageError(
            "the engine 'ray' needs Ray: pip install 'anodev2[cluster]' on each node, or take the "
            "engine 'local'"
        ) from error
    return ray


@contextmanager
def _connected(ray: Any, address: str | None) -> Iterator[None]:
    """Ray, started or joined without a word, until the end of the block."""
    quiet = {"log_to_driver": False, "logging_level": "CRITICAL", "include_dashboard": False}
    try:
        with _signals_kept():
            if address is None:
                ray.init("local", object_store_memory=OBJECT_STORE, **quiet)
            else:
                _check_answers(address)
                ray.init(address, **quiet)
    except Exception as error:  # Ray's kinds for this differ by version and address
        if address is None:
            raise RunFailure(f"Ray does not start on this machine ({first_line(error)})") from error
        raise UsageError(
            f"no Ray cluster at '{address}' that this machine belongs to ({first_line(error)}): "
            "expected HOST:PORT of its head node, or no --address to start Ray here"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _signals_kept() -> Iterator[None]:
    """What a request to end does stays as it is: Ray's own answer is to exit."""
    before = getsignal(SIGTERM)
    try:
        yield
    finally:
        if current_thread() is main_thread():
            signal(SIGTERM, before)


def _check_answers(address: str) -> None:
    """Raise where nothing listens at HOST:PORT: Ray itself tries for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=10).close()


def _check_room(nodes: Sequence[dict[str, Any]], threads: int, gpus: float) -> None:
    """Refuse runs that wait for ever: ones too large for every node."""
    if _has_room(nodes, threads, gpus):
        return
    rooms = [node["Resources"] for node in nodes if node["Alive"]]
    listed = ", ".join(f"{room.get('CPU', 0):g} and {room.get('GPU', 0):g}" for room in rooms)
    raise UsageError(
        f"no node of the cluster has {threads} CPUs and {gpus:g} GPUs for a run: its nodes have "
        f"{listed}"
    )


def _has_room(nodes: Sequence[dict[str, Any]], threads: int, gpus: float) -> bool:
    """Whether a node that is up is large enough for a run, be it busy or not."""
    rooms = [node["Resources"] for node in nodes if node["Alive"]]
    return any(room.get("CPU", 0) >= threads and room.get("GPU", 0) >= gpus for room in rooms)
