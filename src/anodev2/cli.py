"""The command line: `anodev2 train`, `anodev2 compare` and `anodev2 optimality`.

Every option can also come from `--config FILE`; `--print_config` prints them all. Exit status
0 done, 1 some runs failed, 2 wrong usage, 130 interrupted; errors are one line on standard
error. Heavy imports wait until a command runs, so that help is there at once.
"""

import re
import sys
from argparse import RawDescriptionHelpFormatter
from collections.abc import Callable
from difflib import get_close_matches
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from typing import Any, NoReturn

from jsonargparse import ArgumentParser, DefaultHelpFormatter, Namespace

from anodev2.experiment.failure import RunFailure
from anodev2.usage import UsageError


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
    p_rate: float = 1.0,
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
        p_rate: factor on the learning rate for the numbers that move the weights
        recipe: default or paper, with options as in default:warmup=2; see below
        devices: GPUs of this machine that share each batch, or processes where it has none
        num_nodes: machines that share each batch; start the same command on each, with
            MASTER_ADDR, MASTER_PORT and its NODE_RANK set, and --out on a disk they share
        resume: continue the run that is in the folder
    """
    from anodev2.experiment.config import run_config
    from anodev2.experiment.processes import is_first
    from anodev2.experiment.run import train_run

    config = run_config(
        model=model,
        method=method,
        order=order,
        data=data,
        epochs=epochs,
        seed=seed,
        precision=precision,
        evolution=evolution,
        memory=memory,
        regularization=regularization,
        p_rate=p_rate,
        recipe=recipe,
        devices=devices,
        num_nodes=num_nodes,
    )
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
    p_rates: str = "1",
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
        p_rates: factors on the learning rate of p, separated by commas, one run for each
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
        p_rates=p_rates.split(","),
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

recipes, with options learning_rate=0.1, momentum=0.9, weight_decay=5e-4, p_decay=none (weight
decay of p, none for that of the weights), batch_size=256, warmup=1 (epochs), clip=1 (of the
gradient's norm), padding=4, initialization=torch|he:
  default           the paper's, with a warm-up and clipping
  paper             its plain reading, without either
"""


class Formatter(DefaultHelpFormatter, RawDescriptionHelpFormatter):
    """Keeps the lines of the list above."""


COMMANDS: dict[str, Callable[..., int]] = {
    "train": train,
    "compare": compare,
    "optimality": optimality,
}


class OneLineParser(ArgumentParser):
    """A parser whose errors are one line that names the nearest option."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        text = " ".join(message.split())
        print(f"anodev2: {text}{_nearest(text)}; see --help", file=sys.stderr)
        sys.exit(2)


def _nearest(message: str) -> str:
    """A hint for the first word of an error that is close to a command or an option."""
    names = {name for command in COMMANDS.values() for name in signature(command).parameters}
    known = {*COMMANDS, *names, *(f"--{name}" for name in names)}
    for word in re.findall(r"(?:arguments: |option '|choice: ')([\w.-]+)", message):
        close = get_close_matches(word, known - {word}, n=1)
        if close and word not in known:
            return f"; did you mean {close[0]!r}?"
    return ""


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit with its status."""
    command, options = _parse(arguments)
    try:
        status = COMMANDS[command](**options)
    except UsageError as error:
        status = _complain(str(error), 2)
    except RunFailure as error:
        status = _complain(str(error), 1)
    except ModuleNotFoundError as error:
        missing = f"{error.name} is not installed: pip install 'anodev2[train]'"
        status = _complain(missing, 2)
    except KeyboardInterrupt as interruption:
        again = "the same command" if command == "compare" else "--resume"
        after = f"; {again} goes on after the last finished epoch" if interruption.args else ""
        status = _complain(f"interrupted{after}", 130)
    sys.stdout.flush()
    sys.exit(status)


def _parse(arguments: list[str] | None) -> tuple[str, dict[str, Any]]:
    parser = OneLineParser(
        prog="anodev2",
        description="Neural networks whose weights move: train and compare them.",
        version=version("anodev2"),
        formatter_class=Formatter,
    )
    commands = parser.add_subcommands(dest="command")
    for name, function in COMMANDS.items():
        summary = (function.__doc__ or "").splitlines()[0]
        sub = OneLineParser(description=summary, epilog=None if name == "optimality" else WAYS)
        sub.add_argument("--config", action="config", help="YAML file with any of these options")
        sub.add_function_arguments(function, as_group=False, as_positional=True, skip={"resume"})
        if name == "train":
            sub.add_argument("--resume", action="store_true", help="continue the run in the folder")
        commands.add_subcommand(name, sub, help=summary)
    given = sys.argv[1:] if arguments is None else arguments
    parsed: Namespace = parser.parse_args([_underscored(token) for token in given])
    options = parsed[parsed.command].as_dict()
    options.pop("config")
    return parsed.command, options


def _underscored(token: str) -> str:
    """An option spelled with dashes, as in --num-nodes=2, under its name."""
    name, equals, value = token.partition("=")
    if not name.startswith("--"):
        return token
    return "--" + name[2:].replace("-", "_") + equals + value


def _complain(text: str, status: int) -> int:
    print(f"anodev2: {text}", file=sys.stderr)
    return status


if __name__ == "__main__":
    main()
