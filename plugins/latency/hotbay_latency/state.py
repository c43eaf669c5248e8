"""The two models as bytes, for the next version of this package: version 1 of the producer's state. Pure.

Little endian: width of the features (u32); then for each model the number of observations (u64), its sums (width^2 float64)
and its products (width float64).
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from hotbay_latency.regression import Regression

VERSION: Final = 1
_WIDTH: Final = struct.Struct("<I")
_COUNT: Final = struct.Struct("<Q")
_ITEM: Final = "<f8"
_ITEM_BYTES: Final = 8


class StateRefusedError(ValueError):
    """The bytes are no models that this version can use."""


def pieces(models: Sequence[Regression], width: int) -> Iterator[bytes]:
    """The models, in one piece each."""
    yield _WIDTH.pack(width)
    for model in models:
        sums, products = model.learned
        yield _COUNT.pack(model.observations) + sums.astype(_ITEM).tobytes() + products.astype(_ITEM).tobytes()


def restored(stream: Iterable[bytes], width: int, count: int) -> list[Regression]:
    """The models of `pieces`, cut anyhow. Raises `StateRefusedError`."""
    data = b"".join(stream)
    sums_bytes, products_bytes = width * width * _ITEM_BYTES, width * _ITEM_BYTES
    model_bytes = _COUNT.size + sums_bytes + products_bytes
    if len(data) != _WIDTH.size + count * model_bytes:
        raise StateRefusedError(f"is {len(data)} bytes long, expected {_WIDTH.size + count * model_bytes}")
    (found,) = _WIDTH.unpack_from(data)
    if found != width:
        raise StateRefusedError(f"is of models with {found} features, ours have {width}")
    models = []
    for start in range(_WIDTH.size, len(data), model_bytes):
        (observations,) = _COUNT.unpack_from(data, start)
        numbers = np.frombuffer(data, _ITEM, width * width + width, start + _COUNT.size).astype(np.float64)
        if not np.isfinite(numbers).all():
            raise StateRefusedError("holds numbers that are not finite")
        sums, products = numbers[: width * width].reshape(width, width), numbers[width * width :]
        models.append(Regression.of(observations, sums, products))
    return models
