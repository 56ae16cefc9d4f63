"""Ways in which files come to be what they should not be."""

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch


@dataclass(frozen=True)
class Touching:
    """An object whose pickle makes a file where it is loaded."""

    target: Path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.target,)


def truncate(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flip_bit(content: bytes) -> bytes:
    middle = len(content) // 3
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def forbid(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse to open files of that name, as the system does where one may not read them."""
    plain = Path.open

    def refusing(self: Path, *args: Any, **settings: Any) -> Any:
        if self.name == name:
            raise PermissionError(13, "Permission denied", str(self))
        return plain(self, *args, **settings)

    monkeypatch.setattr(Path, "open", refusing)


def edited(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    def edit(content: bytes) -> bytes:
        found = json.loads(content)
        change(found)
        return json.dumps(found).encode()

    return edit


BAD_RESULTS: dict[str, Callable[[bytes], bytes]] = {
    "cut off": truncate,
    "empty": lambda _: b"",
    "not text": lambda _: bytes(range(256)),
    "not an object": lambda _: b"[1]",
    "nested without end": lambda _: b"[" * 100_000,
    "without its data": edited(lambda found: found.pop("data")),
    "without a method": edited(lambda found: found["config"].pop("method")),
    "of another seed": edited(lambda found: found["config"].update(seed=1)),
    "of fewer epochs": edited(lambda found: found["epochs"].pop()),
    "an epoch without accuracy": edited(lambda found: found["epochs"][2].pop("test_accuracy")),
    "parameters in words": edited(lambda found: found.update(parameters="many")),
}


def resaved(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    """Writes the checkpoint again with a change in it."""

    def resave(content: bytes) -> bytes:
        found = torch.load(io.BytesIO(content), weights_only=True)
        change(found)
        stream = io.BytesIO()
        torch.save(found, stream)
        return stream.getvalue()

    return resave


def widen(found: dict[str, Any]) -> None:
    name = next(iter(found["state_dict"]))
    found["state_dict"][name] = torch.cat([found["state_dict"][name]] * 2)


def halve(found: dict[str, Any]) -> None:
    name = next(iter(found["state_dict"]))
    found["state_dict"][name] = found["state_dict"][name].half()


def rename(found: dict[str, Any]) -> None:
    found["state_dict"]["model.other"] = found["state_dict"].popitem()[1]


def saved_list() -> bytes:
    stream = io.BytesIO()
    torch.save([1, 2], stream)
    return stream.getvalue()


BAD_CHECKPOINTS: dict[str, Callable[[bytes], bytes]] = {
    "cut off": truncate,
    "empty": lambda _: b"",
    "junk": lambda _: b"junk",
    "a bit flipped": flip_bit,
    "a list": lambda _: saved_list(),
    "without weights": resaved(lambda found: found.pop("state_dict")),
    "other shapes": resaved(widen),
    "other types": resaved(halve),
    "other names": resaved(rename),
    "without the loops": resaved(lambda found: found.pop("loops")),
    "without the optimizer": resaved(lambda found: found.pop("optimizer_states")),
    "without the history": resaved(lambda found: found["callbacks"].pop("History")),
    "of another seed": resaved(lambda found: found["run"].update(seed=1)),
    "of other numbers": resaved(lambda found: found["recipe"].update(warmup=2.0)),
    "of more epochs": resaved(lambda found: found["run"].update(epochs=4)),
}
