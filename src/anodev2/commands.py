"""What each command does: a command is a function here, its options the arguments.

Heavy imports wait until a command runs, so that help is there at once.
"""

import re
from collections.abc import Callable
from pathlib import Path


def train(
    model: str = "resnet4",
    method: str = "anodev2-1",
    data: str = "digits",
    epochs: int | None = None,
    seed: int = 0,
    out: Path = Path("out"),
    order: str = "pre",
    precision: str = "auto",
    evolution: str = "rda",
    memory: str = "dirac",
    regularization: str = "none",
    p_rate: float | None = None,
    recipe: str = "default",
    devices: int = 1,
    num_nodes: int = 1,
    resume: bool = False,
) -> int:
    """Train one network.

    Args:
        model: alexnet, resnet4 or resnet10
        method: baseline, neural-ode, anode, anodev2-1 or anodev2-2; anode-N takes N steps
        data: digits, cifar10, a folder of parquet files or images, or a hub name owner/name;
            all but digits are flipped at random in training
        epochs: passes over the data; by default 15 on digits, else the paper's number
        seed: of the initial weights, the order of the images and their augmentation
        out: folder that the run's own folder is made in
        order: pre (norm and ReLU before each convolution) or post (after it)
        precision: float32, bfloat16 or auto, bfloat16 where this machine has it in hardware
        evolution: q, how the weights of anodev2-1 and anodev2-2 move; see below
        memory: K, what theta remembers of w; see below
        regularization: factors of R(w0, p), as in w0=1e-4:p=1e-3:path=1e-2
        p_rate: factor on the learning rate for the numbers that move the weights; the recipe's
            unless given
        recipe: default or paper, with options as in default:warmup=2; see below
        devices: GPUs of this machine that share each batch, or processes where it has none
        num_nodes: machines that share each batch; start the same command on each, with
            MASTER_ADDR, MASTER_PORT and its NODE_RANK set, and --out on a disk they share
        resume: continue the run that is in the folder
    """
    given = {name: value for name, value in locals().items() if name not in ("out", "resume")}
    from anodev2.experiment.config import run_config
    from anodev2.experiment.training.processes import is_first
    from anodev2.experiment.training.run import train_run

    config = run_config(**given)
    result = train_run(config, out, resume=resume)
    folder = out / "runs" / config.name
    if is_first(config):
        print(f"{config.name}: test accuracy {100 * result.accuracy:.2f} %, in {folder}")
    return 0


def compare(
    model: str = "resnet4",
    methods: str = "baseline,neural-ode,anode,anodev2-1,anodev2-2",
    seeds: str = "0",
    data: str = "digits",
    epochs: int | None = None,
    out: Path = Path("out"),
    order: str = "pre",
    precision: str = "auto",
    evolutions: str = "rda",
    memory: str = "dirac",
    regularization: str = "none",
    p_rates: str | None = None,
    recipe: str = "default",
) -> int:
    """Train methods under one recipe and report them side by side; finished runs are kept.

    Args:
        model: alexnet, resnet4 or resnet10
        methods: names separated by commas; anode at as many steps joins those that move
        seeds: numbers separated by commas, one run of each method for each
        data: digits, cifar10, a folder of parquet files or images, or a hub name owner/name;
            all but digits are flipped at random in training
        epochs: passes over the data; by default 15 on digits, else the paper's number
        out: folder of the runs and of report.md
        order: pre (norm and ReLU before each convolution) or post (after it)
        precision: float32, bfloat16 or auto, bfloat16 where this machine has it in hardware
        evolutions: separated by commas, one run of each method that moves for each; see below
        memory: K, what theta remembers of w; see below
        regularization: factors of R(w0, p), as in w0=1e-4:p=1e-3:path=1e-2
        p_rates: factors on the learning rate of p, separated by commas, one run for each; the
            recipe's unless given
        recipe: default or paper, with options as in default:warmup=2; see below
    """
    from anodev2.experiment.compare import compare_methods

    return compare_methods(
        model=model,
        methods=methods.split(","),
        seeds=seeds.split(","),
        data=data,
        epochs=epochs,
        out=out,
        order=order,
        precision=precision,
        evolutions=re.split(r",(?![^\[]*\])", evolutions),
        memory=memory,
        regularization=regularization,
        p_rates=p_rates.split(",") if p_rates else None,
        recipe=recipe,
    )


def optimality(run: Path, data: str | None = None, images: int = 2048) -> int:
    """Report how far a trained network is from the optimality conditions.

    Args:
        run: folder of a run, as in out/runs/resnet4-anodev2-1-seed0
        data: the data it was trained on, if they are elsewhere now
        images: how many training images to average over
    """
    from anodev2.experiment.conditions import report_conditions

    print(report_conditions(run, data, images))
    return 0


def reproduce(
    table: str,
    models: str = "resnet4,resnet10,alexnet",
    methods: str | None = None,
    seeds: str = "0,1,2,3,4",
    data: str = "cifar10",
    epochs: int | None = None,
    out: Path = Path("reproduction"),
    order: str = "pre",
    precision: str = "auto",
    recipe: str = "default",
    engine: str = "local",
    processes: int = 1,
    threads: int | None = None,
    address: str | None = None,
    gpus: float = 0.0,
) -> int:
    """Make one of the paper's tables: train what is not there yet and write the report.

    Args:
        table: accuracy-1, accuracy-2, parameters, ablation, steps or all
        models: networks, separated by commas
        methods: rows of the table to keep, separated by commas; all unless given
        seeds: numbers separated by commas, one run of each row for each
        data: cifar10, a folder of parquet files or images, a hub name owner/name, or digits
        epochs: passes over the data; by default 15 on digits, else the paper's number
        out: folder of runs/, report.html, report.md and figures/; several commands may share it
        order: pre (norm and ReLU before each convolution) or post (after it)
        precision: float32, bfloat16 or auto, bfloat16 where this machine has it in hardware
        recipe: default or paper, with options as in default:warmup=2; see train --help
        engine: local, processes of this machine, or ray, a Ray cluster
        processes: how many runs go side by side on this machine
        threads: of a run; by default the processors shared among the processes
        address: of the Ray cluster, as in 10.0.0.1:6379; by default one is started here
        gpus: GPUs of a run on a Ray cluster
    """
    from anodev2.experiment.reproduction.engines import find_engine
    from anodev2.experiment.reproduction.work import Work
    from anodev2.experiment.reproduction.work import reproduce as make
    from anodev2.experiment.spelling import listed, parse_numbers

    runs_on = find_engine(engine, processes=processes, threads=threads, address=address, gpus=gpus)
    work = Work(
        table=table,
        models=listed("models", models),
        methods=None if methods is None else listed("methods", methods),
        seeds=parse_numbers("seeds", seeds.split(","), int, "whole numbers as in 0,1,2"),
        data=data,
        epochs=epochs,
        order=order,
        precision=precision,
        recipe=recipe,
        out=out,
    )
    return make(work, runs_on)


def report(folders: str, out: Path | None = None) -> int:
    """Write the report of finished runs again, of several folders together if given.

    Args:
        folders: with runs/*/result.json, separated by commas; of a run in several the first counts
        out: where report.html, report.md and figures/ go; the first folder unless given
    """
    from anodev2.experiment.failure import written_or_failed
    from anodev2.experiment.reproduction.collection import collect
    from anodev2.experiment.reproduction.publication import publish
    from anodev2.experiment.reproduction.step_times import read_seconds
    from anodev2.experiment.spelling import listed

    places = [Path(folder) for folder in listed("folders", folders)]
    runs = collect(places)
    timed = [times for place in reversed(places) for times in read_seconds(place / "timings.json")]
    with written_or_failed(out or places[0]):
        publish(out or places[0], runs, timed)
    return 0


def figures(
    name: str,
    runs: str = "",
    method: str | None = None,
    out: Path = Path("figures"),
) -> int:
    """Draw a figure, as PNG and as SVG.

    Args:
        name: advection, kernels, coupling, curves or adjoint
        runs: folders of runs, separated by commas, for kernels and curves
        method: whose block the coupling diagram shows; both configurations unless given
        out: folder of the files
    """
    from anodev2.experiment.figures.gallery import draw
    from anodev2.experiment.spelling import listed

    folders = [Path(run) for run in listed("runs", runs)] if runs else []
    for path in draw(name, out, runs=folders, method=method):
        print(path)
    return 0


COMMANDS: dict[str, Callable[..., int]] = {
    "train": train,
    "compare": compare,
    "reproduce": reproduce,
    "report": report,
    "figures": figures,
    "optimality": optimality,
}
"""Every command by name."""

WAYS = """\
evolutions, each with its options as in linear:form=skew, and compression=FACTOR with any:
  rda               reaction-diffusion-advection of kernels
                    (coefficients=channel|layer|filter|point, activation=tanh|none|sin|relu,
                    solver=none|euler|midpoint|rk4; none is the paper's split step)
  linear            dw/dt = A w along the kernel's axes, or those given by number
                    (form=dense|skew|low-rank, axes=none, rank=2)
  network           a small network of each filter (hidden=16, activation=tanh, solver=euler)
  coordinate        a pattern-producing network of coordinates and time (hidden=12, solver=euler)
  piecewise-linear  a path through learned weights at knots (intervals=4)
  legendre          a path in Legendre polynomials of time (degree=3)
  fourier           a path in sines and cosines of time (frequencies=2)
  frozen            weights at rest
  package.Class     a subclass of anodev2.evolution.Evolution of your own

memory kernels; normalize=false with all but dirac is the raw integral:
  dirac             theta = w
  exponential       rate exp(-rate tau) (rate=5.0, learn=false)
  gaussian          half a bell (width=0.2, learn=false)
  uniform           the mean over a window (window=0.4)
  learned           a number for each lag of the w-grid (lags=5)

recipes, with options learning_rate=0.1, p_rate=3 (rate of p in terms of that), momentum=0.9,
weight_decay=5e-4, p_decay=none (weight decay of p, none for that of the weights), batch_size=256,
warmup=1 (epochs), clip=1 (of the gradient's norm), padding=4, initialization=torch|he:
  default           the paper's, with a warm-up, clipping, and a rate of its own for p
  paper             its plain reading, without these
"""
