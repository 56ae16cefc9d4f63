"""The report's section on its runs: each of them, what it ran with, and what is not finished."""

from anodev2.experiment.config import RunConfig
from anodev2.experiment.environment import DIRTY
from anodev2.experiment.reproduction.collection import Collection
from anodev2.experiment.reproduction.document import Table
from anodev2.experiment.reproduction.plan import duration


def run_section(runs: Collection) -> list[str | Table]:
    """Every run, and what is in no table since it is not finished."""
    told = "; ".join(f"{name} ({state})" for name, state in runs.unfinished.items())
    missing = [f"Not finished, and in no table: {told}."] if told else []
    return [*missing, _conditions(runs), run_table(runs)]


def run_table(runs: Collection) -> Table:
    """Every run, with where and how long it ran."""
    columns = ["run", "seed", "epochs", "test accuracy", "train loss", "time", "precision"]
    columns += ["threads", "processor", "git revision"]
    lines = []
    for result in (result for results in runs.by_key.values() for result in results):
        config = RunConfig(**result.config)
        lines.append(
            [
                f"{config.model} {config.label}",
                str(config.seed),
                str(config.epochs),
                f"{100 * result.accuracy:.2f}",
                f"{result.curve('train_loss')[-1]:.4f}",
                duration(sum(result.curve("seconds"))),
                result.precision,
                ", ".join(result.trained_with("threads")),
                ", ".join(result.trained_with("processor")),
                ", ".join(map(_short, result.trained_with("git_revision"))),
            ]
        )
    return Table(columns, lines)


def _short(revision: str) -> str:
    """As in 92b399dfda, or 92b399dfda-dirty where files differed from it."""
    commit, dirty, _ = revision.partition(DIRTY)
    return commit[:10] + dirty


def _conditions(runs: Collection) -> str:
    """Versions of what the runs ran with, each with all values that it had."""
    known = [
        name
        for name in runs.results[0].environment
        if name not in ("git_revision", "threads", "processor")
    ]
    values = {n: sorted({v for r in runs.results for v in r.trained_with(n)}) for n in known}
    return "Made with " + ", ".join(f"{n} {' and '.join(v)}" for n, v in values.items()) + "."
