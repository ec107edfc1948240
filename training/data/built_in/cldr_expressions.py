"""Expressions that every locale has its own way to write: dates, amounts, measurements, names and more.

An expression is drawn as a value (a date, a sum of money, some countries) and then said in two locales through Babel.
Each kind of expression is one function; `KINDS` lists them. What makes a corpus of them, and which promises it keeps,
is in `cldr.py`.
"""

import re
from calendar import monthrange
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from random import Random
from typing import Literal, NamedTuple, TypeVar

from babel import Locale
from babel.dates import format_date, format_skeleton, format_time, format_timedelta
from babel.lists import format_list
from babel.numbers import (
    format_compact_decimal,
    format_currency,
    format_decimal,
    format_percent,
    get_currency_precision,
)
from babel.units import UnknownUnitError, format_unit

# Names in wide use, and few: training meets each about a hundred times. ISO 3166, 639 and 4217 codes.
TERRITORIES = (
    "AE AR AT AU BD BE BG BR CA CH CL CN CO CU CZ DE DK EG ES ET FI FR GB GR HR HU ID IE IL IN IQ IR IS IT "
    "JP KE KR LT LV MA MX NG NL NO NZ PE PH PK PL PT RO RS RU SA SE SG TH TR UA US UY VN ZA"
)
LANGUAGES = (
    "ar bg bn cs da de el en es fa fi fr he hi hr hu id it ja ko lt lv ms nl pl pt ro ru sk sr sv sw ta th "
    "tr uk ur vi zh zu"
)
CURRENCIES = (
    "AED ARS AUD BRL CAD CHF CLP CNY CZK DKK EGP EUR GBP HUF IDR ILS INR JPY KES KRW MXN NGN NOK NZD PEN PHP "
    "PLN RON RUB SAR SEK SGD THB TRY UAH USD VND ZAR"
)
UNITS = (
    "length-kilometer length-meter length-centimeter length-millimeter length-mile length-foot length-inch "
    "area-square-kilometer area-square-meter area-hectare volume-cubic-meter volume-liter volume-milliliter "
    "mass-tonne mass-kilogram mass-gram speed-kilometer-per-hour speed-meter-per-second speed-mile-per-hour "
    "temperature-celsius temperature-fahrenheit angle-degree pressure-hectopascal energy-kilowatt-hour "
    "energy-joule power-watt power-kilowatt electric-volt electric-ampere frequency-hertz "
    "frequency-gigahertz digital-byte digital-megabyte digital-gigabyte digital-terabyte "
    "duration-millisecond duration-second duration-minute duration-hour duration-day duration-week "
    "duration-month duration-year"
)

TimeUnit = Literal["second", "minute", "hour", "day", "week", "month", "year"]

# Seconds in the units of relative times, as babel.dates.format_timedelta counts them.
TIME_UNITS: dict[TimeUnit, int] = {
    "second": 1,
    "minute": 60,
    "hour": 3600,
    "day": 86_400,
    "week": 7 * 86_400,
    "month": 30 * 86_400,
    "year": 365 * 86_400,
}

# Between them, these take every plural form of every language (CLDR's zero, one, two, few, many and other).
EXAMPLE_NUMBERS = [Decimal(number) for number in ("0", "1", "1.5", "2", "3", "5", "6", "11", "100")]

# CLDR's names of ways to write: units and compact numbers, amounts of money, lists.
Length = Literal["long", "short"]
AmountFormat = Literal["name", "standard"]
ListStyle = Literal["standard", "or"]

LENGTHS: tuple[Length, ...] = ("long", "short")
AMOUNT_FORMATS: tuple[AmountFormat, ...] = ("name", "standard")
LIST_STYLES: tuple[ListStyle, ...] = ("standard", "or")

NO_BREAK_BLANKS = str.maketrans({"\N{NO-BREAK SPACE}": " ", "\N{NARROW NO-BREAK SPACE}": " "})

# Something to say, which a locale puts into its own words.
Saying = Callable[[Locale], str]
# Draws a saying. A kind of expression is a function that makes one for a source and a target locale,
# or returns None where these locales have no data of that kind.
Draw = Callable[[Random], Saying]
Kind = Callable[[Locale, Locale], Draw | None]

DateForm = tuple[str, int]  # the style, and the month, whose name may be abbreviated
UnitForm = tuple[str, Length]

Item = TypeVar("Item")
Value = TypeVar("Value")


class Expression(NamedTuple):
    """A composed expression in two locales."""

    kind: str  # a key of `KINDS`
    source: str
    target: str


def dates(source: Locale, target: Locale) -> Draw | None:
    """Calendar days, with and without year and weekday: "Wed, Sep 26", "September 26"."""
    styles = ["full", "long", "medium", "short", "yMMMM", "MMMEd", "MMMd", "MMMMd"]
    forms = _date_forms(source, target, styles)
    return _draw_form(forms, _draw_moment, _say_date)


def times(source: Locale, target: Locale) -> Draw:
    """Times of day: "3:05:09 PM"."""

    def draw(rng: Random) -> Saying:
        moment, style = _moment(rng, month=1), rng.choice(["short", "medium"])
        return lambda locale: format_time(moment, style, locale=locale)

    return draw


def datetimes(source: Locale, target: Locale) -> Draw | None:
    """A day and a time in the locale's order: "9/26/07, 3:05 PM"."""

    def say(form: DateForm, moment: datetime, locale: Locale) -> str:
        # CLDR names the joining pattern after the style of the date: {1} is the date, {0} the time.
        pattern = str(locale.datetime_formats[form[0]]).replace("'", "")
        time = format_time(moment, "short", locale=locale)
        return pattern.replace("{1}", _say_date(form, moment, locale)).replace("{0}", time)

    return _draw_form(_date_forms(source, target, ["long", "medium", "short"]), _draw_moment, say)


def numbers(source: Locale, target: Locale) -> Draw:
    """Plain numbers, one in ten negative: "-1,234.5"."""

    def draw(rng: Random) -> Saying:
        number = _number(rng, max_digits=7, max_fraction_digits=3)
        if rng.random() < 0.1:
            number = -number
        return lambda locale: format_decimal(number, locale=locale)

    return draw


def compact_numbers(source: Locale, target: Locale) -> Draw | None:
    """Large numbers in words, long and short: "1.2 million", "1.2M"."""

    def say(form: tuple[Length, int], digits: int, locale: Locale) -> str:
        length, exponent = form
        # Two significant digits: whatever power of ten a locale counts in, one decimal place loses nothing.
        return format_compact_decimal(digits * 10**exponent, format_type=length, locale=locale, fraction_digits=1)

    examples = (10, 12, 20, 50)
    in_both = [length for length in LENGTHS if all(length in side.compact_decimal_formats for side in (source, target))]
    forms = [(length, exponent) for length in in_both for exponent in range(3, 13)]
    # Without a word in it ("12.000" is German for 12K), the source would not tell that the target has one.
    forms = [form for form in forms if all(re.search(r"[^\d\W]", say(form, digits, source)) for digits in examples)]
    return _draw_form(_unambiguous(forms, say, examples, source, target), lambda rng, form: rng.randint(10, 99), say)


def percentages(source: Locale, target: Locale) -> Draw:
    """Percentages with up to two decimal places: "12.5%"."""

    def draw(rng: Random) -> Saying:
        share = _number(rng, max_digits=3, max_fraction_digits=2) / 100
        return lambda locale: format_percent(share, locale=locale, decimal_quantization=False)

    return draw


def amounts(source: Locale, target: Locale) -> Draw | None:
    """Amounts of money with the currency's name or symbol: "1,234.50 US dollars", "$1,234.50"."""

    def say(form: tuple[str, AmountFormat], number: Decimal, locale: Locale) -> str:
        currency, format_type = form
        # The plural depends on the decimal places shown, so the number brings them: "1.00 US dollars".
        shown = number.quantize(Decimal(1).scaleb(-get_currency_precision(currency)))
        return format_currency(shown, currency, locale=locale, format_type=format_type)

    named = [code for code in CURRENCIES.split() if code in source.currencies and code in target.currencies]
    forms = [(code, format_type) for format_type in AMOUNT_FORMATS for code in named]
    forms = _unambiguous(forms, say, EXAMPLE_NUMBERS, source, target)
    return _draw_form(forms, lambda rng, form: _number(rng, max_digits=5, max_fraction_digits=2), say)


def measurements(source: Locale, target: Locale) -> Draw | None:
    """A number with a unit, spelled out or abbreviated: "12.5 kilometers per hour", "12.5 km/h"."""

    def draw_number(rng: Random, form: UnitForm) -> Decimal:
        # A twentieth of all measurements are of exactly one, so that singulars are learned.
        return Decimal(1) if rng.random() < 0.05 else _number(rng, max_digits=4, max_fraction_digits=2)

    return _draw_form(_unit_forms(source, target, UNITS.split()), draw_number, _say_unit)


def relative_times(source: Locale, target: Locale) -> Draw | None:
    """A distance from now: "in 3 days", "2 hours ago"."""

    def say(form: tuple[TimeUnit, int], number: int | Decimal, locale: Locale) -> str:
        unit, direction = form
        # A threshold that no number reaches keeps Babel from turning 14 days into two weeks.
        return format_timedelta(
            timedelta(seconds=direction * int(number) * TIME_UNITS[unit]),
            granularity=unit,
            threshold=10**9,
            add_direction=True,
            locale=locale,
        )

    forms = [(unit, direction) for unit in TIME_UNITS for direction in (1, -1)]
    forms = _unambiguous(forms, say, EXAMPLE_NUMBERS, source, target)
    return _draw_form(forms, lambda rng, form: rng.randint(1, 10 ** rng.randint(1, 3)), say)


def durations(source: Locale, target: Locale) -> Draw | None:
    """A time span in two neighbouring units: "2 hours and 5 minutes"."""
    units = [f"duration-{unit}" for unit in TIME_UNITS]
    usable = {unit for unit, length in _unit_forms(source, target, units) if length == "long"}
    steps = [(large, small) for small, large in pairwise(units) if {small, large} <= usable]

    def say(step: tuple[str, str], counts: list[Decimal], locale: Locale) -> str:
        parts = zip(step, counts, strict=True)
        return format_list([_say_unit((unit, "long"), count, locale) for unit, count in parts], locale=locale)

    return _draw_form(steps, lambda rng, step: [Decimal(rng.randint(1, 60)) for _ in step], say)


def name_lists(source: Locale, target: Locale) -> Draw | None:
    """Two or three names joined by "and" or "or": "Brazil, Kenya, and Switzerland"."""
    families = [family for family in name_families(source, target) if len(family) >= 3]

    def say(style: ListStyle, length: int, locale: Locale) -> str:
        return format_list(["A", "B", "C"][:length], style, locale=locale) if style in locale.list_patterns else ""

    styles = _unambiguous(LIST_STYLES, say, (2, 3), source, target)

    def draw(rng: Random) -> Saying:
        family = rng.choices(families, weights=[len(family) for family in families])[0]
        style = rng.choice(styles)
        names = rng.sample(family, rng.choice([2, 2, 3]))
        return lambda locale: format_list([say(locale) for say in names], style, locale=locale)

    return draw if families and styles else None


# Every kind with its weight, the share of the expressions drawn. A kind that has few distinct expressions
# ends up with a smaller share of the pairs, which hold each expression once.
KINDS: dict[str, tuple[Kind, int]] = {
    "date": (dates, 18),
    "time": (times, 5),
    "datetime": (datetimes, 8),
    "number": (numbers, 6),
    "compact number": (compact_numbers, 4),
    "percentage": (percentages, 4),
    "amount": (amounts, 17),
    "measurement": (measurements, 15),
    "relative time": (relative_times, 5),
    "duration": (durations, 5),
    "list of names": (name_lists, 13),
}


def name_families(source: Locale, target: Locale) -> list[list[Saying]]:
    """Returns the names of territories, of languages and of currencies that translate in one way only.

    Indonesian calls Japan and Japanese alike, "Jepang": from Indonesian, that is a country.
    """
    tables: list[tuple[str, Callable[[str, Locale], str | None]]] = [
        (TERRITORIES, lambda code, locale: locale.territories.get(code)),
        (LANGUAGES, lambda code, locale: locale.languages.get(code)),
        (CURRENCIES, lambda code, locale: locale.currencies.get(code)),
    ]

    def saying(code: str, name: Callable[[str, Locale], str | None]) -> Saying:
        return lambda locale: name(code, locale) or ""

    families = [[saying(code, name) for code in codes.split()] for codes, name in tables]
    every_name = [say for family in families for say in family]
    kept = set(_unambiguous(every_name, lambda say, _, locale: say(locale), [None], source, target))
    return [[say for say in family if say in kept] for family in families]


def expressions(source: Locale, target: Locale, rng: Random) -> Iterator[Expression]:
    """Yields composed expressions without end; the same one may come again.

    Half of the sources have plain blanks where CLDR has no-break ones: nobody types those.
    """
    draws = {name: draw for name, (kind, _) in KINDS.items() if (draw := kind(source, target))}
    names, weights = list(draws), [KINDS[name][1] for name in draws]
    while True:
        name = rng.choices(names, weights)[0]
        say = draws[name](rng)
        blanks = rng.choice([NO_BREAK_BLANKS, {}])
        yield Expression(name, say(source).translate(blanks), say(target))


def _unambiguous(
    items: Iterable[Item],
    say: Callable[[Item, Value, Locale], str],
    values: Sequence[Value],
    source: Locale,
    target: Locale,
) -> list[Item]:
    """Keeps the items that both locales can write and that no item before contradicts.

    Args:
        items: Ways to write, of which the first of two alike counts.
        say: Writes a value in such a way; "" where the locale cannot.
        values: Examples. Two items contradict each other where, for some of these, they agree on a source text and
            disagree on its target.
    """
    kept, meaning = [], dict[str, str]()
    for item in items:
        wordings = {say(item, value, source): say(item, value, target) for value in values}
        writable = all(wordings) and all(wordings.values())
        if writable and all(meaning.get(text, wording) == wording for text, wording in wordings.items()):
            kept.append(item)
            meaning |= wordings
    return kept


def _date_forms(source: Locale, target: Locale, styles: Sequence[str]) -> list[DateForm]:
    """Returns the forms where the source's wording tells the style; the first of two alike counts."""

    def available(style: str, locale: Locale) -> bool:
        return style in locale.date_formats or style in locale.datetime_skeletons

    def say(form: DateForm, day: int, locale: Locale) -> str:
        return _say_date(form, datetime(2007, form[1], day), locale)

    in_both = [style for style in styles if available(style, source) and available(style, target)]
    return _unambiguous([(style, month) for style in in_both for month in range(1, 13)], say, (3, 26), source, target)


def _unit_forms(source: Locale, target: Locale, units: Sequence[str]) -> list[UnitForm]:
    """Returns the forms of the units of which both locales have the name."""
    forms = [(unit, length) for length in LENGTHS for unit in units]
    return _unambiguous(forms, _say_unit, EXAMPLE_NUMBERS, source, target)


def _say_unit(form: UnitForm, number: Decimal, locale: Locale) -> str:
    """Returns the measurement, or "" where the locale cannot write it."""
    unit, length = form
    # CLDR takes the short pattern for a long one that is absent, Babel writes the unit's identifier instead.
    lengths: tuple[Length, ...] = (length, "short")
    for available_length in lengths:
        try:
            text = format_unit(number, unit, available_length, locale=locale)
        except UnknownUnitError:
            return ""
        if unit not in text:
            return text
    return ""


def _say_date(form: DateForm, moment: datetime, locale: Locale) -> str:
    style, _ = form
    if style in locale.date_formats:
        return format_date(moment, style, locale=locale)
    return format_skeleton(style, moment, locale=locale, fuzzy=False)


def _draw_form(
    forms: Sequence[Item], draw_value: Callable[[Random, Item], Value], say: Callable[[Item, Value, Locale], str]
) -> Draw | None:
    """Returns what draws a form and a value to say in it, or None if there are no forms."""

    def draw(rng: Random) -> Saying:
        form = rng.choice(forms)
        value = draw_value(rng, form)
        return lambda locale: say(form, value, locale)

    return draw if forms else None


def _draw_moment(rng: Random, form: DateForm) -> datetime:
    return _moment(rng, form[1])


def _moment(rng: Random, month: int) -> datetime:
    """Draws a second of that month, in one of the hundred years from 1950 to 2049."""
    year = rng.randint(1950, 2049)
    day = rng.randint(1, monthrange(year, month)[1])
    return datetime(year, month, day, rng.randrange(24), rng.randrange(60), rng.randrange(60))


def _number(rng: Random, max_digits: int, max_fraction_digits: int) -> Decimal:
    """Draws a positive number, short ones as often as long ones; half of them are whole.

    No zero ends the fraction: 1.50 would be printed as 1.5, but inflected for its two decimal places.
    """
    whole = rng.randrange(10 ** rng.randint(1, max_digits))
    if rng.random() < 0.5:
        return Decimal(whole + 1)
    fraction_digits = rng.randint(1, max_fraction_digits)
    fraction = 10 * rng.randrange(10 ** (fraction_digits - 1)) + rng.randint(1, 9)
    return whole + Decimal(fraction).scaleb(-fraction_digits)
