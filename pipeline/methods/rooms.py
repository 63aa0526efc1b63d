"""Which methods there are: those whose settings a room, a folder of methods, declares in its settings.py.

The code that trains is named there and imported by name, so that no method reaches another's by import.
"""

from pipeline.errors import UserError
from pipeline.extensions import cached, extensions
from pipeline.methods.settings import MethodSettings


@cached
def method_settings() -> dict[str, type[MethodSettings]]:
    """Each method's settings, by its name in params.yaml and in that order.

    Raises:
        UserError: two methods have the same name.
    """
    declared: dict[str, type[MethodSettings]] = {}
    for room in extensions("methods").values():
        module = room.load()
        for settings in vars(module).values():
            if not isinstance(settings, type) or not issubclass(settings, MethodSettings):
                continue
            # what the module imports is declared elsewhere, and a base without a name is no method
            if settings.__module__ == module.__name__ and "method" in vars(settings):
                if settings.method in declared:
                    raise UserError(
                        f"{room.path}: a second method {settings.method!r}; allowed: another name"
                    )
                declared[settings.method] = settings
    return dict(sorted(declared.items()))


def implementation(method: str) -> tuple[str, str]:
    """Module and name of the class that trains by ``method``."""
    settings = method_settings()[method]
    module, name = settings.trained_by.split(".")
    return f"{settings.__module__.rpartition('.')[0]}.{module}", name
