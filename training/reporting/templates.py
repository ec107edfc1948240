"""The templates of pages, with the filters and the files that they share."""

from functools import cache
from importlib import resources

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template
from markupsafe import Markup

from .curves import Chart, pick_evenly, shorten_number, show_chart
from .display import readable_bytes


@cache
def load_template(name: str) -> Template:
    """A template of this folder, in which every text is escaped that does not come from `file` or `drawn`."""
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
        "drawn": _draw,
        "zip": zip,
        "fixed": _fix,
    }
    environment.globals["file"] = lambda name: Markup(read_file(name))
    return environment


def _draw(chart: Chart, *, has_keys: bool = True) -> Markup:
    return Markup(show_chart(chart, has_keys=has_keys))


def _fix(value: float, digits: int, sign: str = "") -> str:
    return f"{value:{sign}.{digits}f}"


def format_duration(seconds: float) -> str:
    """Hours, minutes, seconds, the two largest: `2 h 5 min`, `3 min 20 s`, `12 s`."""
    total = round(seconds)
    hours, minutes = total // 3600, total % 3600 // 60
    if hours:
        return f"{hours:,} h {minutes} min"
    return f"{minutes} min {total % 60} s" if minutes else f"{total} s"
