"""What the paper's claims are judged by."""

from collections.abc import Sequence
from dataclasses import dataclass

from anodev2.experiment.config import recipe_numbers
from anodev2.experiment.reproduction.collection import Collection, configuration_of
from anodev2.experiment.reproduction.step_times import Times, times_of

CONFIGURATIONS = {"anodev2-1": "configuration 1", "anodev2-2": "configuration 2"}


@dataclass(frozen=True)
class Evidence:
    """What the claims are judged by.

    Args:
        runs: finished ones.
        seconds: of training steps, the latest last.
    """

    runs: Collection
    seconds: Sequence[Times]

    def times(self, model: str, label: str) -> Times | None:
        """Of training steps like those of the runs of a network and label, None of no such run."""
        runs = self.runs.by_key.get((model, label), [])
        if not runs:
            return None
        config = configuration_of(runs[0])
        batch_size = recipe_numbers(runs[0].recipe, config)["batch_size"]
        kinds = {configuration_of(r).kind for r in self.runs.results if r.config["model"] == model}
        return times_of(self.seconds, config, batch_size, kinds)
