"""The parts of the Kubernetes client library that gpuctl uses, imported without the rest.

Importing any part of the library imports all of it: over a thousand modules of models and APIs, which take longer than
the rest of a command's start. Here its packages run their own code only when somebody asks for another name of theirs.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType

PACKAGES = ("kubernetes", "kubernetes.client", "kubernetes.client.models")


class _Incomplete(ModuleType):
    """A package whose own code has not run: it has its submodules, and is completed for any other name."""

    def __getattr__(self, name: str) -> object:
        """Return a submodule; else run the package's code, which then has the name or not."""
        if name.startswith("__") and name != "__version__":  # Python asks for these itself
            raise AttributeError(name)
        if find_spec(f"{self.__name__}.{name}"):
            return import_module(f"{self.__name__}.{name}")
        self.__class__ = ModuleType  # type: ignore[assignment]
        if self.__spec__ and self.__spec__.loader:
            self.__spec__.loader.exec_module(self)
        return getattr(self, name)


def _add_incomplete(name: str) -> None:
    spec = find_spec(name)
    if name in sys.modules or spec is None:
        return
    package = sys.modules[name] = module_from_spec(spec)
    package.__class__ = _Incomplete
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, package)


for _name in PACKAGES:
    _add_incomplete(_name)

# In this order: each of them takes what came before from the packages.
from kubernetes.client.configuration import Configuration  # noqa: E402

sys.modules["kubernetes.client"].Configuration = Configuration  # type: ignore[attr-defined]
from kubernetes.client.api_client import ApiClient  # noqa: E402

sys.modules["kubernetes.client"].ApiClient = ApiClient  # type: ignore[attr-defined]
from kubernetes.config.config_exception import ConfigException  # noqa: E402
from kubernetes.config.dateutil import parse_rfc3339  # noqa: E402
from kubernetes.config.kube_config import ConfigNode, FileOrData, KubeConfigLoader, KubeConfigMerger  # noqa: E402

__all__ = [
    "ApiClient",
    "ConfigException",
    "ConfigNode",
    "Configuration",
    "FileOrData",
    "KubeConfigLoader",
    "KubeConfigMerger",
    "parse_rfc3339",
]
