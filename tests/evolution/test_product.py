"""Matrix functions of linear equations, linear maps along axes, tables that keep their bits."""

from copy import deepcopy

import pytest
import torch
from operators import assert_near, weight
from torch import Tensor, nn

from anodev2.evolution.product import add_product, expm1, phi1
from anodev2.evolution.table import Table

NORMS = [10 ** (k / 5) for k in range(-30, 3)]
"""From 1e-6 to 2.5."""

every_size = pytest.mark.parametrize("n", [1, 2, 3, 5, 9, 16])
every_count = pytest.mark.parametrize("sets", [1, 2, 3])
precisions = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
functions = pytest.mark.parametrize("function", [expm1, phi1])


def matrices(sets: int, n: int, norm: float, seed: int = 0) -> Tensor:
    """Random, of a spectral norm, in float64."""
    a = weight((sets, n, n), seed)
    return a / torch.linalg.matrix_norm(a, 2)[:, None, None] * norm


def series(function, a: Tensor) -> Tensor:
    """a + a^2 / 2 + a^3 / 6 + ... for expm1, I + a / 2 + a^2 / 6 + ... for phi1."""
    term = a if function is expm1 else torch.eye(a.shape[-1], dtype=a.dtype).expand_as(a)
    total = term
    for k in range(2, 60):
        term = term @ a / k
        total = total + term
    return total


@torch.no_grad()
@precisions
@functions
@every_size
@every_count
def test_matrix_functions_are_their_taylor_series_to_rounding_of_one(sets, n, function, dtype):
    for norm in NORMS:
        a = matrices(sets, n, norm).to(dtype)
        expected = series(function, a.double())
        largest = max(1, expected.abs().max().item())
        error = (function(a).double() - expected).abs().max().item()
        assert error <= 50 * torch.finfo(dtype).eps * largest, norm


@torch.no_grad()
@precisions
@every_count
def test_matrix_functions_of_zero_are_exactly_zero_and_one(sets, dtype):
    zero = torch.zeros(sets, 4, 4, dtype=dtype)
    assert torch.equal(expm1(zero), zero)
    assert torch.equal(phi1(zero), torch.eye(4, dtype=dtype).expand_as(zero))


@torch.no_grad()
@every_count
def test_zero_rows_of_a_matrix_are_exactly_zero_rows_of_expm1(sets):
    a = matrices(sets, 5, 0.7)
    a[:, [1, 3]] = 0
    assert torch.equal(expm1(a)[:, [1, 3]], torch.zeros(sets, 2, 5, dtype=a.dtype))


@torch.no_grad()
@every_size
@every_count
def test_a_phi1_of_a_is_expm1_of_a(sets, n):
    a = matrices(sets, n, 1.5)
    assert_near(a @ phi1(a), expm1(a), within=1e-14)


@torch.no_grad()
@every_count
def test_matrix_functions_of_a_nilpotent_matrix_end_after_its_powers(sets):
    a = torch.diag(torch.tensor([2.0, -3.0]).double(), 1).expand(sets, 3, 3)
    square, unit = a @ a, torch.eye(3, dtype=a.dtype)
    assert_near(expm1(a), a + square / 2, within=1e-15)
    assert_near(phi1(a), unit + a / 2 + square / 6, within=1e-15)


@torch.no_grad()
@functions
@every_count
def test_each_matrix_of_several_has_the_function_that_it_has_alone(sets, function):
    a = torch.cat([matrices(1, 4, norm, seed=k) for k, norm in enumerate((1e-3, 0.02, 2)[:sets])])
    alone = torch.cat([function(x[None]) for x in a])
    assert_near(function(a), alone, torch.ones(1), within=1e-15)


@functions
@every_count
@pytest.mark.parametrize("norm", [0, 0.01, 1])
def test_gradients_of_matrix_functions_are_those_of_finite_differences(norm, sets, function):
    a = matrices(sets, 3, norm).requires_grad_()
    assert torch.autograd.gradcheck(function, (a,))


@functions
def test_second_derivatives_of_matrix_functions_are_those_of_finite_differences(function):
    assert torch.autograd.gradgradcheck(function, (matrices(1, 2, 0.5).requires_grad_(),))


def moved(g: Tensor, w: Tensor, axes) -> Tensor:
    """G w for one set along some axes counted from the first, by its indices."""
    sizes = [w.shape[a] for a in axes]
    inputs = list(range(len(axes), 2 * len(axes)))
    product = torch.tensordot(g.reshape(*sizes, *sizes), w, dims=(inputs, list(axes)))
    return product.movedim(list(range(len(axes))), list(axes))


@torch.no_grad()
@pytest.mark.parametrize("axes", [[3], [0], [2, 3], [0, 2], [1, 3], [0, 1, 2, 3]], ids=str)
def test_a_product_acts_along_its_axes_flattened_together(axes):
    base, w = weight((2, 3, 4, 2)), weight((2, 3, 4, 2), seed=1)
    n = torch.Size(w.shape[a] for a in axes).numel()
    g = weight((1, n, n), seed=2)
    found = add_product(base, w, [a - 4 for a in axes], [g])
    assert_near(found, base + moved(g[0], w, axes), within=1e-15)


@torch.no_grad()
def test_factors_act_one_after_another():
    base, w = weight((4, 3, 5)), weight((4, 3, 5), seed=1)
    inner, outer = weight((1, 2, 5), seed=2), weight((1, 5, 2), seed=3)
    expected = add_product(base, w, [-1], [outer @ inner])
    assert_near(add_product(base, w, [-1], [inner, outer]), expected, within=1e-15)


@torch.no_grad()
@pytest.mark.parametrize("sets", [1, 2, 4, 12])
def test_each_set_acts_on_an_equal_part_of_the_other_axes(sets):
    base, w, g = weight((4, 3, 5)), weight((4, 3, 5), seed=1), weight((sets, 5, 5), seed=2)
    each = g.repeat_interleave(12 // sets, 0).reshape(4, 3, 5, 5)
    expected = base + (each @ w[..., None])[..., 0]
    assert_near(add_product(base, w, [-1], [g]), expected, within=1e-15)


@torch.no_grad()
@pytest.mark.parametrize("axes", [[-1], [-3, -1]], ids=str)
def test_a_product_with_zero_is_the_base_to_the_bit_and_writes_nothing(axes):
    base, w = weight((4, 3, 5)), weight((4, 3, 5), seed=1)
    before = base.clone(), w.clone()
    n = 5 if axes == [-1] else 20
    found = add_product(base, w, axes, [torch.zeros(1, n, n, dtype=w.dtype)])
    assert torch.equal(found, base)
    add_product(base, w, axes, [torch.ones(1, n, n, dtype=w.dtype)])
    assert torch.equal(base, before[0]) and torch.equal(w, before[1])


def test_gradients_of_a_product_are_those_of_finite_differences():
    inputs = [weight(s, i) for i, s in enumerate([(2, 2, 3), (2, 2, 3), (2, 1, 3), (2, 3, 1)])]
    inputs = [x.requires_grad_() for x in inputs]
    assert torch.autograd.gradcheck(
        lambda base, w, *factors: add_product(base, w, [-1], factors), inputs
    )


HALVES = [torch.bfloat16, torch.float16]


@pytest.mark.parametrize("half", HALVES, ids=str)
@precisions
def test_a_table_cast_to_half_precision_and_back_has_its_bits(dtype, half):
    values = weight((5, 3))
    for table in (Table(values).to(half), Table(values).to(half).float(), Table(values).double()):
        assert torch.equal(table(dtype), values.to(dtype))


def test_a_table_in_a_module_is_cast_without_loss_along_with_it():
    values = weight((5, 3))
    module = nn.Sequential(nn.Linear(3, 3), Table(values)).half().float()
    assert torch.equal(module[1](torch.float64), values)


def test_a_table_moves_with_its_module_to_another_device():
    module = nn.Sequential(Table(weight((5, 3)))).to("meta")
    assert module[0](torch.float32).device.type == "meta"


def test_a_copy_of_a_table_has_its_own_memory_with_the_same_bits():
    table = Table(weight((5, 3)))
    copy = deepcopy(table)
    found, source = copy(torch.float64), table(torch.float64)
    assert torch.equal(found, source) and found.data_ptr() != source.data_ptr()


def test_a_table_is_no_part_of_a_state_dict_nor_a_parameter():
    table = Table(weight((5, 3)))
    assert not table.state_dict() and not list(table.parameters())


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 3, 4)], ids=str)
@precisions
def test_a_table_has_the_shape_of_its_values(dtype, shape):
    assert torch.equal(Table(weight(shape))(dtype), weight(shape).to(dtype))


def test_a_table_of_values_that_are_not_contiguous_has_their_bits():
    values = weight((3, 5)).T
    assert torch.equal(Table(values)(torch.float64), values)
