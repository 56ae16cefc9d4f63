"""What is spelled on the command line as NAME or NAME:OPTION=VALUE:OPTION=VALUE.

Inside the library these are objects: how weights move, and the recipe. A line here makes an
evolution or a memory kernel known to every command; one of a user's own is named by its import
path, as in `my.evolutions.Decay:rate=2`.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, TypeVar

import torch
import yaml

from anodev2.evolution import (
    BasisEvolution,
    CoordinateEvolution,
    Evolution,
    Fourier,
    Frozen,
    Legendre,
    LinearEvolution,
    NetworkEvolution,
    PiecewiseLinear,
    ReactionDiffusionAdvection,
)
from anodev2.memory import Dirac, Exponential, Gaussian, Learned, MemoryKernel, Uniform
from anodev2.models import Moving
from anodev2.regularization import Regularization
from anodev2.solver import RK4, Euler, Midpoint
from anodev2.usage import UsageError, check_choice

Number = TypeVar("Number", int, float)
EVOLUTIONS: dict[str, Callable[..., Any]] = {
    "rda": ReactionDiffusionAdvection,
    "linear": LinearEvolution,
    "network": NetworkEvolution,
    "coordinate": CoordinateEvolution,
    "piecewise-linear": PiecewiseLinear,
    "legendre": Legendre,
    "fourier": Fourier,
    "frozen": Frozen,
}
MEMORIES: dict[str, Callable[..., MemoryKernel]] = {
    "dirac": Dirac,
    "exponential": Exponential,
    "gaussian": Gaussian,
    "uniform": Uniform,
    "learned": Learned,
}
BASES = (PiecewiseLinear, Legendre, Fourier)
SPELLED = ("evolution", "memory", "regularization")
DEFAULT = ("rda", "dirac", "none")
"""What is spelled in a run's configuration, and what it is unless given."""
OBJECTS: dict[str, dict[str, Any]] = {
    "solver": {"none": None, "euler": Euler(), "midpoint": Midpoint(), "rk4": RK4()},
    "activation": {"none": None, "tanh": torch.tanh, "sin": torch.sin, "relu": torch.relu},
}
"""Values of options that are objects."""
GIVEN = ("shape", "epochs", "drops")
"""Arguments that come from elsewhere and are no options."""
WITH_ANY = ("compression",)
"""Options that go with any evolution and are not its own."""


def moving(evolution: str, memory: str, regularization: str) -> Moving:
    """What the spelled names mean.

    Args:
        evolution: one of `EVOLUTIONS` with its options, and `compression=FACTOR` with any.
        memory: one of `MEMORIES` with its options.
        regularization: "none", or factors as in `w0=1e-4:p=1e-3:path=1e-2`.

    Raises:
        ValueError: an unknown name or option, or a value that is not valid, with the nearest one.
    """
    if (evolution, memory, regularization) == DEFAULT:
        return Moving()
    name, options = split("evolution", evolution)
    compression = _number(options.pop("compression", "1"))
    if isinstance(compression, str):
        raise UsageError(f"compression={compression}: expected a number such as 4")
    q = _evolution(name, options)
    kernel, settings = split("memory", memory)
    if "." in kernel:
        k = _own("memory kernel", kernel, MemoryKernel, settings)
        k()
    else:
        check_choice("memory kernel", kernel, MEMORIES)
        k = partial(MEMORIES[kernel], **values(kernel, MEMORIES[kernel], settings))
        k()  # values out of range are found here
    factors = {}
    if regularization != "none":
        if "=" not in regularization:
            raise UsageError(f"regularization {regularization!r}: expected w0=, p= or path=NUMBER")
        factors = _options("regularization", regularization, regularization.split(":"))
    r = Regularization(**values("regularization", Regularization, factors))
    return Moving(evolution=q, memory=k, regularize=r, compression=compression)


def _evolution(name: str, options: Mapping[str, str]) -> Callable[..., Evolution]:
    if "." in name:
        return _own("evolution", name, Evolution, options)
    check_choice("evolution", name, EVOLUTIONS)
    known = EVOLUTIONS[name]
    given = values(name, known, options, besides=WITH_ANY)
    if known in BASES:
        return partial(BasisEvolution, basis=known(**given))
    q = partial(known, **given)
    with torch.random.fork_rng(devices=[]):
        q((2, 2, 3, 3))  # values out of range are found here
    return q


def _own(what: str, name: str, kind: type, options: Mapping[str, str]) -> Callable[..., Any]:
    """A class of the user's with its options; mistakes in building one are one line."""
    own = _imported(what, name, kind)
    chosen = values(name, own, options, besides=WITH_ANY if kind is Evolution else ())

    def build(*shape: Any) -> Any:
        try:
            return own(*shape, **chosen)
        except UsageError:
            raise
        except Exception as error:
            given = f" for a weight of shape {tuple(shape[0])}" if shape else ""
            raise UsageError(f"{what} {name} cannot be built{given}: {error}") from error

    return build


def _imported(what: str, name: str, kind: type) -> Callable[..., Any]:
    """A class by its import path, from the working folder too."""
    module, _, attribute = name.rpartition(".")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"{what} {name!r} cannot be imported ({error})") from error
    if not (isinstance(found, type) and issubclass(found, kind)):
        raise UsageError(f"{what} {name!r} is not a class of {kind.__module__}.{kind.__name__}")
    return found


def split(what: str, text: str) -> tuple[str, dict[str, str]]:
    """The name and the options of NAME:OPTION=VALUE:..."""
    name, *parts = text.split(":")
    return name, _options(what, text, parts)


def _options(what: str, text: str, parts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in parts:
        key, sign, value = part.partition("=")
        if not sign:
            raise UsageError(f"{what} {text!r}: {part!r} is no OPTION=VALUE")
        if key in found:
            raise UsageError(f"{what} {text!r} has {key} twice: {found[key]!r} and {value!r}")
        found[key] = value
    return found


def values(
    name: str,
    build: Callable[..., Any],
    options: Mapping[str, str],
    *,
    besides: Sequence[str] = (),
) -> dict[str, Any]:
    """Options with their values as the signature of `build` wants them.

    Args:
        name: what is built, as it was spelled.
        build: what takes the options.
        options: as they were spelled.
        besides: options that go with it and are not its own, to be named with these.

    Raises:
        ValueError: an unknown option, or a value of another kind than its default.
    """
    known = {
        key: parameter
        for key, parameter in signature(build).parameters.items()
        if key not in GIVEN and parameter.kind is not Parameter.VAR_KEYWORD
    }
    for key, text in options.items():
        if not (known or besides):
            raise UsageError(f"{name} takes no options, got {key}={text}")
        if key not in known:
            check_choice(f"option of {name}", key, [*known, *besides])
    return {key: _value(name, key, text, known[key]) for key, text in options.items()}


def _value(name: str, key: str, text: str, known: Parameter) -> Any:
    if key in OBJECTS and not isinstance(known.default, str):
        optional = "None" in str(known.annotation)
        check_choice(key, text, [n for n, x in OBJECTS[key].items() if optional or x is not None])
        return OBJECTS[key][text]
    default = known.default
    if text == "none" and "None" in str(known.annotation):
        return None
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        value = text
    if isinstance(value, str) and "float" in str(known.annotation):
        value = _number(text)  # YAML takes 1e-3 for a word
        default = 1.0 if default is None else default
    if "Sequence" in str(known.annotation):
        value = [value] if isinstance(value, int) else value
        if not (isinstance(value, list) and all(isinstance(x, int) for x in value)):
            raise UsageError(f"{name}: {key}={text}, expected a whole number or [0,1]")
    if default is Parameter.empty:
        return value
    if isinstance(default, str):
        return text
    kind = type(default)
    if isinstance(default, float) and type(value) is int:
        value = float(value)
    if kind is not type(None) and type(value) is not kind:
        raise UsageError(f"{name}: {key}={text}, expected a value like {default!r}")
    return value


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def listed(what: str, text: str) -> list[str]:
    """What commas separate, without the blanks around it.

    Raises:
        ValueError: there is nothing.
    """
    found = [part.strip() for part in text.split(",") if part.strip()]
    if not found:
        raise UsageError(f"{what} {text!r}: expected at least one, separated by commas")
    return found


def parse_numbers(
    option: str, given: Sequence[str], kind: Callable[[str], Number], expected: str
) -> list[Number]:
    """What an option lists, as numbers, once each.

    Raises:
        ValueError: one that is not of this kind.
    """
    try:
        return list(dict.fromkeys(kind(text) for text in given))
    except ValueError as error:
        raise UsageError(
            f"{option} {','.join(given)!r}: expected {expected}, separated by commas"
        ) from error
