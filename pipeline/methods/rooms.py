"""Which methods there are: those whose settings a folder here declares in its settings.py.

The code that trains is named there and imported by name, so that no method reaches another's by import.
"""

from importlib import import_module
from pathlib import Path

from pipeline.methods.settings import MethodSettings


def declared() -> dict[str, type[MethodSettings]]:
    """Each method's settings, by its name in params.yaml and in that order."""
    by_name: dict[str, type[MethodSettings]] = {}
    for path in sorted(Path(__file__).parent.glob("*/settings.py")):
        module = import_module(f"{__package__}.{path.parent.name}.settings")
        for settings in vars(module).values():
            if not isinstance(settings, type) or not issubclass(settings, MethodSettings):
                continue
            # what the module imports is declared elsewhere, and a base without a name is no method
            if settings.__module__ == module.__name__ and "method" in vars(settings):
                assert settings.method not in by_name, f"{path}: a second method {settings.method!r}"
                by_name[settings.method] = settings
    return dict(sorted(by_name.items()))


METHOD_SETTINGS = declared()


def implementation(method: str) -> tuple[str, str]:
    """Module and name of the class that trains by ``method``."""
    settings = METHOD_SETTINGS[method]
    module, name = settings.trained_by.split(".")
    return f"{settings.__module__.rpartition('.')[0]}.{module}", name
