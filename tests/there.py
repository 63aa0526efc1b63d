"""What a test goes on with, which must be there."""

from typing import TypeVar

T = TypeVar("T")


def there(value: T | None) -> T:
    """``value``, which is not None."""
    assert value is not None
    return value
