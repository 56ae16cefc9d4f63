"""The optimality conditions of a trained run, as a report."""

from pathlib import Path

from torch.nn.functional import cross_entropy

from anodev2.experiment.data.batches import Batches
from anodev2.experiment.data.loading import load_data
from anodev2.experiment.trained import configuration, trained_network
from anodev2.experiment.training.run import check_fit
from anodev2.stationarity import as_table, stationarity
from anodev2.usage import UsageError, check_count


def report_conditions(run: Path, data: str | None, images: int) -> str:
    """The residuals of the optimality system for the network of a run's last checkpoint.

    Args:
        run: the run's folder.
        data: what it was trained on, where it is now; None takes what its configuration says.
        images: how many training images, unchanged ones, the loss is averaged over.

    Returns:
        Markdown.

    Raises:
        ValueError: no run in the folder, or one without ODE blocks.
    """
    check_count("images", images)
    config, model = configuration(run), trained_network(run)
    source = load_data(data or config.data)
    check_fit(source, config)
    recipe = config.trained_by
    batches = Batches(
        source.train,
        mean=source.mean,
        std=source.std,
        batch_size=images,
        seed=config.seed,
        augment=None,
        shuffle=True,
        epoch=lambda: 0,
    )
    pixels, labels = next(iter(batches))
    rows = stationarity(
        model,
        lambda: cross_entropy(model(pixels), labels),
        weight_decay=recipe.weight_decay,
        p_decay=recipe.p_decay,
    )
    if not rows:
        raise UsageError(f"{config.name} has no ODE blocks: nothing to report")
    of_p = "" if recipe.p_decay is None else f" ({recipe.p_decay:g} of p)"
    return (
        f"# Optimality of {config.name}\n\nOver {len(labels):,} training images, weight decay "
        f"{recipe.weight_decay:g}{of_p}. Norms of the adjoints at t = 0 and of the gradients g, "
        "and beside each its norm relative to its terms: 0 where loss and weight decay balance, 1 "
        f"where nothing does.\n\n{as_table(rows)}"
    )
