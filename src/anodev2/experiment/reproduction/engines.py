"""Engines by name, with what the command line gives them."""

import torch

from anodev2.experiment.reproduction.engine import Engine
from anodev2.experiment.reproduction.local import Local
from anodev2.usage import UsageError, check_choice, check_count


def find_engine(
    name: str, *, processes: int, threads: int | None, address: str | None, gpus: float
) -> Engine:
    """The engine of that name.

    Args:
        name: "local" or "ray".
        processes: how many runs go side by side on this machine.
        threads: of a run; None shares the processors of this machine among the processes.
        address: of a Ray cluster, None to start one here.
        gpus: GPUs of a run on a Ray cluster.

    Raises:
        ValueError: an unknown engine, a number out of range, or an option that is another
            engine's.
    """
    check_choice("engine", name, ["local", "ray"])
    check_count("processes", processes)
    threads = max(1, processor_count() // processes) if threads is None else threads
    check_count("threads", threads)
    if name == "local":
        if address is not None or gpus:
            raise UsageError("address and gpus are for --engine ray")
        return Local(processes=processes, threads=threads)
    if processes != 1:
        raise UsageError("processes is for --engine local: Ray runs as many as its CPUs allow")
    from anodev2.experiment.reproduction.cluster import Cluster

    return Cluster(address=address, threads=threads, gpus=gpus)


def processor_count() -> int:
    """Processors that this process may use, as torch counts them."""
    return torch.get_num_threads()
