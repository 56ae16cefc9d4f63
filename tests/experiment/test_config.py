"""What a run's configuration has where nothing is given, and what it refuses."""

import pytest
import torch

from anodev2.experiment.config import fast_precision, run_config
from anodev2.usage import UsageError
from tiny import tiny_config


def test_epochs_default_to_the_papers_number_and_fewer_on_digits() -> None:
    settings = {"method": "anode", "order": "pre", "seed": 0, "precision": "auto", "epochs": None}
    assert run_config(model="alexnet", data="cifar10", **settings).epochs == 120
    assert run_config(model="resnet10", data="cifar10", **settings).epochs == 350
    assert run_config(model="resnet4", data="digits", **settings).epochs == 15


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(UsageError, match="seed must be at least 0 and below"):
        tiny_config(seed=-1)


def test_auto_precision_is_bfloat16_only_where_hardware_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    assert fast_precision() == tiny_config(precision="auto").precision == "bfloat16"
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True})
    assert fast_precision() == tiny_config(precision="auto").precision == "float32"
