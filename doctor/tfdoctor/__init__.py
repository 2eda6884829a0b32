"""Find out why TensorFlow does not use a GPU, and what to do about it.

Programs can call `tfdoctor.check()`, `tfdoctor.diagnose(text)` and `tfdoctor.recommend()`. Notebooks can run
`%load_ext tfdoctor`. These functions are in `tfdoctor.api`, which is loaded when one of them is first used.
"""

__version__ = "0.1.0"
__all__ = ["Error", "check", "diagnose", "load_ipython_extension", "recommend"]


def __getattr__(name: str) -> object:
    """Load a public name from `tfdoctor.api` when it is first used."""
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from importlib import import_module

    module = "notebook" if name == "load_ipython_extension" else "calls"
    return getattr(import_module(f"tfdoctor.api.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
