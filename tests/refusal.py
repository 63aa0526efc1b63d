"""What somebody is told whose input is refused."""

from collections.abc import Callable

import pytest

from dprepro.errors import UserError


def refusal_of(action: Callable[[], object]) -> str:
    """The one line that ``action`` ends with."""
    with pytest.raises(UserError) as caught:
        action()
    assert "\n" not in str(caught.value)
    return str(caught.value)
