"""The assertion that an argument is refused, by its name and not by the words of the error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from optuna_dp.errors import InvalidArgumentError


@contextmanager
def refuses(argument: str) -> Iterator[pytest.ExceptionInfo[InvalidArgumentError]]:
    """Wants an :class:`InvalidArgumentError` about ``argument`` from the block."""
    with pytest.raises(InvalidArgumentError) as caught:
        yield caught
    assert caught.value.argument == argument
