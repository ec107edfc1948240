import sys

import pytest

from paperformer.training.console.input_error import InputError
from paperformer.training.data.cleaning.language_identification import LanguageIdentifier

ENGLISH = ["Where is the station, please?", "She has never been there before."]
GERMAN = ["Wo ist bitte der Bahnhof?", "Sie ist noch nie dort gewesen."]
NEITHER = ["Tom", "OK", "12:30", "Berlin", "", "100 %", "a1b2c3d4e5f6", "++++ ---- ===="]


@pytest.fixture(scope="module")
def identifier() -> LanguageIdentifier:
    pytest.importorskip("py3langid", reason="needs the extra langid")
    return LanguageIdentifier(["en", "de"])


def test_swapped_languages_are_found(identifier: LanguageIdentifier) -> None:
    assert identifier.is_other(GERMAN, "en").tolist() == [True, True]
    assert identifier.is_other(ENGLISH, "de").tolist() == [True, True]


def test_right_languages_are_kept(identifier: LanguageIdentifier) -> None:
    assert identifier.is_other(ENGLISH, "en").tolist() == [False, False]
    assert identifier.is_other(GERMAN, "de").tolist() == [False, False]


@pytest.mark.parametrize("language", ["en", "de", "ru"])
def test_what_is_in_no_language_is_kept(identifier: LanguageIdentifier, language: str) -> None:
    assert not identifier.is_other(NEITHER, language).any()


def test_locales_and_close_relatives(identifier: LanguageIdentifier) -> None:
    assert not identifier.is_other(["Onde fica a estação, por favor?"], "pt_BR").any()
    assert not identifier.is_other(["请问，火车站在什么地方？"], "zh-Hant").any()
    assert not identifier.is_other(["Hvor er jernbanestasjonen, er du snill?"], "nb").any()
    assert not identifier.is_other(["Što ćemo raditi sljedeći tjedan?"], "sr").any()
    assert identifier.is_other(["Što ćemo raditi sljedeći tjedan?"], "pl").all()


def test_the_likeliest_language_is_not_enough(identifier: LanguageIdentifier) -> None:
    # Each is as good in Danish as in Norwegian, and the model has to prefer one of them.
    sentences = ["Jeg har en bil.", "Vi skal hjem nu."]
    assert not identifier.is_other(sentences, "da").any()
    assert not identifier.is_other(sentences, "no").any()


def test_a_long_text_is_judged_by_its_beginning(identifier: LanguageIdentifier) -> None:
    text = " ".join(ENGLISH * 10) + " ".join(GERMAN * 100)
    assert identifier.is_other([text], "en").tolist() == [False]


def test_an_unknown_language() -> None:
    pytest.importorskip("py3langid", reason="needs the extra langid")
    with pytest.raises(InputError, match=r"language_identification is true, but 'tlh' is not among .*: ace, af"):
        LanguageIdentifier(["en", "tlh"])


def test_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    with pytest.raises(InputError, match=r"needs py3langid; install it: pip install 'paperformer\[langid\]'"):
        LanguageIdentifier(["en"])
