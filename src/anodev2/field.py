"""A module as a field z -> dz/dt: its tensors by name, and its value with others put in."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils import parametrize
from torch.nn.utils.parametrize import ParametrizationList

from anodev2.evolution import CompressedState, Evolution, ShapeError
from anodev2.solver import Activations, Z
from anodev2.usage import UsageError, check_choice, check_kind

Choice = Iterable[str] | Callable[[str, nn.Parameter], bool]
"""Which parameters of a field evolve: names, or a predicate on name and parameter."""


def places(field: nn.Module) -> dict[str, str]:
    """Every place of the field that holds a parameter or buffer, and the tensor's first name.

    A module that is used twice is one place; a tensor under two names (tied weights), of one
    module or of two, is two places with one first name.
    """
    first: dict[int, str] = {}
    found: dict[str, str] = {}
    for path, module in field.named_modules():
        own = (module.named_parameters, module.named_buffers)
        pairs = (pair for of in own for pair in of(recurse=False, remove_duplicate=False))
        for name, tensor in pairs:
            place = f"{path}.{name}" if path else name
            found[place] = first.setdefault(id(tensor), place)
    return found


def parts(z0: Z) -> Activations:
    """The parts of z(0), as tensors that autograd can save and that count changes in place.

    Those made in inference mode are copied, which is to be done `out_of_inference`.

    Raises:
        ValueError: an empty tuple.
    """
    z = (z0,) if isinstance(z0, Tensor) else tuple(z0)
    if not z:
        raise UsageError("z0 is an empty tuple: expected a tensor, or one for each part of z")
    if torch.compiler.is_compiling():  # nobody may ask
        return z
    return tuple(x.clone() if x.is_inference() else x for x in z)


@contextmanager
def out_of_inference() -> Iterator[None]:
    """Without gradients instead of in inference mode, whose tensors count no changes in place."""
    if torch.compiler.is_compiling() or not torch.is_inference_mode_enabled():
        yield
    else:
        with torch.inference_mode(False), torch.no_grad():
            yield


def evaluate(
    field: nn.Module, tensors: dict[str, Tensor], z: Activations, *, as_tuple: bool = False
) -> Activations:
    """field(z) with `tensors` in their places.

    Args:
        field: the module.
        tensors: parameters and buffers by place, its own where there is none; a buffer that the
            field assigns anew is replaced here, and nowhere else.
        z: the state.
        as_tuple: whether the field takes and returns a tuple of tensors, or a single one.

    Returns:
        dz/dt, of z's shape.

    Raises:
        RuntimeError: the field changed z in place; a compiled one is given a copy instead.
        ValueError: the field does not keep z's shape.
    """
    if parametrize._cache_enabled:
        with _uncached():
            return evaluate(field, tensors, z, as_tuple=as_tuple)
    if torch.compiler.is_compiling():  # a traced tensor does not count changes
        z = tuple(x.clone() for x in z)
    versions = _versions(z)
    given = z if as_tuple else z[0]
    if tensors:
        value = functional_call(field, tensors, (given,), tie_weights=False)
    else:
        value = field(given)
    if _versions(z) != versions:
        raise RuntimeError(_changes_its_input(field))
    return _rates(field, value, z)


def _rates(field: nn.Module, value: object, z: Activations) -> Activations:
    """What a field returned, as one rate for each part of z."""
    rates = _as_tuple(value)
    if [r.shape for r in rates] != [x.shape for x in z]:
        raise UsageError(
            f"the field {type(field).__name__} maps {_shapes(z)} to {_shapes(rates)}; "
            "dz/dt must have the shape of z"
        )
    return rates


def _versions(z: Activations) -> list[int]:
    """How often each was changed in place, as far as that is known."""
    return [] if torch.compiler.is_compiling() else [x._version for x in z]


def _changes_its_input(field: nn.Module) -> str:
    culprit = next((n for n, m in field.named_modules() if getattr(m, "inplace", False)), None)
    return (
        f"the field {type(field).__name__} changes its input in place"
        + (f" (its module {culprit!r} has inplace=True)" if culprit else "")
        + ", but z is needed for the update z + h f: compute out of place first"
    )


def _as_tuple(value: object) -> Activations:
    if isinstance(value, Tensor):
        return (value,)
    if isinstance(value, tuple | list) and all(isinstance(part, Tensor) for part in value):
        return tuple(value)
    kind = type(value).__name__
    if isinstance(value, tuple | list):
        kind += " of " + ", ".join(type(part).__name__ for part in value)
    raise UsageError(f"a field returns a tensor or a tuple of tensors, not a {kind}")


def _shapes(z: Activations) -> str:
    return " and ".join(str(tuple(x.shape)) for x in z)


@contextmanager
def _uncached() -> Iterator[None]:
    """Without the weights that torch's `parametrize.cached()` keeps, which are another step's."""
    before = parametrize._cache_enabled, parametrize._cache
    parametrize._cache_enabled, parametrize._cache = 0, {}
    try:
        yield
    finally:
        parametrize._cache_enabled, parametrize._cache = before


@contextmanager
def modes(training: Mapping[nn.Module, bool]) -> Iterator[None]:
    """The modules in training mode or not; on exit in the modes that they are in now."""
    changed = [m for m, mode in training.items() if m.training != mode]
    for module in changed:
        module.training = training[module]
    try:
        yield
    finally:
        for module in changed:
            module.training = not training[module]


def operators(
    field: nn.Module, evolution: Callable[[Sequence[int]], Evolution], evolve: Choice | None
) -> dict[str, Evolution]:
    """An evolution for each parameter of the field that is to move, by name.

    Args:
        field: the module.
        evolution: makes one from a weight's shape.
        evolve: the parameters; None takes the convolution, linear and attention weights that the
            evolution accepts.

    Raises:
        ValueError: an unknown name, a weight that the evolution refuses, or none that it
            accepts.
    """
    build = _apart(evolution)
    parameters = dict(field.named_parameters())
    shapes = {
        name: parameter.shape if (state := _state(field, name)) is None else state.shape
        for name, parameter in parameters.items()
    }
    if evolve is None:
        accepted = {}
        reason = "it has none"
        for name in _weights(field):
            try:
                accepted[name] = build(shapes[name])
            except ShapeError as error:
                reason = str(error)
        if not accepted:
            raise UsageError(
                f"no convolution or linear weight of {type(field).__name__} fits the evolution "
                f"({reason}): choose an evolution that does, or name parameters that fit it in "
                "`evolve`"
            )
        return accepted
    if isinstance(evolve, str):
        raise UsageError(f"evolve={evolve!r}: expected a list of names, as in [{evolve!r}]")
    if callable(evolve):
        chosen = [name for name, parameter in parameters.items() if evolve(name, parameter)]
    else:  # names as `named_parameters()` of the field or of the block has them
        own = [n if n in parameters else n.removeprefix("field.") for n in evolve]
        chosen = list(dict.fromkeys(own))
    for name in chosen:
        check_choice(f"parameter of {type(field).__name__}", name, parameters)
    return {name: build(shapes[name]) for name in chosen}


def _apart(
    evolution: Callable[[Sequence[int]], Evolution],
) -> Callable[[Sequence[int]], Evolution]:
    """What an evolution draws leaves the random numbers of other parameters as they would be.

    So networks of one seed share all weights but p, whatever moves them.
    """
    if not callable(evolution) or isinstance(evolution, nn.Module):
        raise TypeError(
            f"evolution must be called with a weight's shape, as the class LinearEvolution is; got "
            f"{evolution!r}"
        )
    source = torch.Generator()
    source.set_state(torch.get_rng_state())

    def build(shape: Sequence[int]) -> Evolution:
        with torch.random.fork_rng(devices=[]):
            drawn = torch.randint(2**62, (), generator=source, device="cpu")
            torch.default_generator.manual_seed(int(drawn))
            made: object = evolution(shape)
        check_kind("what `evolution` makes of a weight's shape", made, Evolution, "Frozen((3, 3))")
        assert isinstance(made, Evolution)
        return made

    return build


def initial_weights(field: nn.Module, names: Iterable[str]) -> dict[str, Tensor]:
    """w0 by name: the field's parameters, written out where they are a `CompressedState`."""
    parameters = dict(field.named_parameters())
    states = {name: _state(field, name) for name in names}
    return {n: parameters[n] if s is None else s(parameters[n]) for n, s in states.items()}


def _state(field: nn.Module, name: str) -> CompressedState | None:
    """What makes a weight of a parameter that holds its modes; None for any other."""
    path, _, leaf = name.rpartition(".")
    owner = field.get_submodule(path)
    if not isinstance(owner, ParametrizationList) or leaf != "original":
        return None
    return owner[0] if isinstance(owner[0], CompressedState) else None


def _weights(field: nn.Module) -> list[str]:
    """Names of the convolution, linear and attention weights, or of what parametrizes them."""
    names: list[str] = []
    for path, module in field.named_modules():
        own = dict(module.named_parameters())
        if isinstance(module, nn.MultiheadAttention):
            names += [f"{path}.{n}" if path else n for n in own if n.endswith("proj_weight")]
        if not isinstance(module, (_ConvNd, nn.Linear)):
            continue
        originals = [name for name in own if name.startswith("parametrizations.weight.")]
        largest = max(originals, key=lambda name: own[name].numel(), default="weight")
        names.append(f"{path}.{largest}" if path else largest)
    known = dict(field.named_parameters())
    return [name for name in names if name in known]
