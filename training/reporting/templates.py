"""The templates of pages, with the filters and the files that they share."""

from functools import cache
from importlib import resources

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template

from .curves import pick_evenly, shorten_number, show_chart
from .display import readable_bytes


@cache
def load_template(name: str) -> Template:
    """A template of this folder, in which all is escaped but what is said to be `safe`: our files and drawings."""
    return _environment().get_template(name)


def read_file(name: str) -> str:
    """A style sheet, a script or a template of this folder."""
    return resources.files(__package__).joinpath(name).read_text("utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(read_file),
    )
    environment.filters |= {
        "short": shorten_number,
        "duration": format_duration,
        "bytes": readable_bytes,
        "evenly": pick_evenly,
        "drawn": show_chart,
        "zip": zip,
        "fixed": _fix,
    }
    environment.globals["file"] = read_file
    return environment


def _fix(value: float, digits: int, sign: str = "") -> str:
    return f"{value:{sign}.{digits}f}"


def format_duration(seconds: float) -> str:
    """Hours, minutes, seconds, the two largest: `2 h 5 min`, `3 min 20 s`, `12 s`."""
    total = round(seconds)
    hours, minutes = total // 3600, total % 3600 // 60
    if hours:
        return f"{hours:,} h {minutes} min"
    return f"{minutes} min {total % 60} s" if minutes else f"{total} s"
