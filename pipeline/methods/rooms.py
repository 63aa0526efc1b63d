"""Registry of methods: the settings classes in the settings.py of each room (folder of a method).

A settings class names its training class. This class is imported by name, so no method imports the code of
another method.
"""

from dprepro.errors import UserError
from dprepro.pipeline.extensions import cached, extensions
from dprepro.pipeline.methods.settings import MethodSettings


@cached
def method_settings() -> dict[str, type[MethodSettings]]:
    """Settings class of each method, by its name in params.yaml, in alphabetical order.

    Raises:
        UserError: two methods have the same name.
    """
    declared: dict[str, type[MethodSettings]] = {}
    for room in extensions("methods").values():
        module = room.load()
        for settings in vars(module).values():
            if not isinstance(settings, type) or not issubclass(settings, MethodSettings):
                continue
            # without imported classes, and without base classes, which have no name
            if settings.__module__ == module.__name__ and "method" in vars(settings):
                if settings.method in declared:
                    raise UserError(
                        f"{room.path}: a second method {settings.method!r}; allowed: another name"
                    )
                declared[settings.method] = settings
    return dict(sorted(declared.items()))
