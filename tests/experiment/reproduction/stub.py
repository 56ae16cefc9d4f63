"""An engine that trains nothing, and a small table for it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from anodev2.experiment.config import RunConfig
from anodev2.experiment.data.loading import load_data
from anodev2.experiment.reproduction.engine import Engine, Outcome
from anodev2.experiment.reproduction.work import Work
from anodev2.experiment.result import describe_data
from results import result

METHODS = ["baseline", "anodev2-1"]


@dataclass
class Stub(Engine):
    """Finishes runs at once, but for those whose seed is in `fail`, or in `busy` the first time."""

    fail: tuple[int, ...] = ()
    busy: tuple[int, ...] = ()
    asked: list[list[str]] = field(default_factory=list)
    threads: int = 1

    @property
    def side_by_side(self) -> int:
        return 1

    def run(self, configs: Sequence[RunConfig], out: Path) -> Iterator[Outcome]:
        self.asked.append([config.name for config in configs])
        for config in configs:
            if config.seed in self.fail:
                yield Outcome(config, "failed", "the loss is nan in epoch 1")
            elif config.seed in self.busy and len(self.asked) == 1:
                yield Outcome(config, "busy")
            else:
                found = result(method=config.method, seed=config.seed, epochs=config.epochs)
                data = found.data | describe_data(load_data(config.data)) | {"is_cifar10": True}
                found = replace(found, config=vars(config), data=data, precision=config.precision)
                found.write(out / "runs" / config.name / "result.json")
                (out / "runs" / config.name / "config.yaml").write_text(
                    yaml.safe_dump(vars(config))
                )
                yield Outcome(config, "done")


def work(out: Path, *, seeds: Sequence[int] = (0,), table: str = "accuracy-1") -> Work:
    return Work(
        table=table,
        models=["resnet4"],
        methods=METHODS if table != "parameters" else None,
        seeds=seeds,
        data="digits",
        epochs=2,
        order="pre",
        precision="float32",
        recipe="default",
        out=out,
    )
