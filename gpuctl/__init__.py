"""gpuctl: from bare GPU machines to a trusted training cluster."""


def __getattr__(name: str) -> str:
    """`__version__`, read from what is installed when asked: the only place that writes it is galaxy.yml."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    return version("gpuctl")
