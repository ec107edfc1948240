import pyarrow as pa
import pytest

from paperformer.training.data.cleaning.mojibake import is_mojibake

SENTENCES = {
    "de": "Über den Wolken muß die Freiheit wohl grenzenlos sein, schön für die Gäste.",
    "fr": "L'été dernier, nous avons mangé à la plage près de l'hôtel.",
    "pl": "Zażółć gęślą jaźń, a potem idź spać.",
    "ru": "Сегодня хорошая погода, и мы идём в парк.",
    "el": "Σήμερα ο καιρός είναι πολύ καλός.",
    "ar": "الطقس جميل اليوم وسنذهب إلى الحديقة",
    "hi": "आज मौसम बहुत अच्छा है।",
    "zh": "今天天气很好，我们去公园吧。",
    "ja": "今日は天気がいいので、公園に行きましょう。",
    "vi": "Hôm nay trời đẹp, chúng tôi đi công viên.",
    "uk": "Сьогодні гарна погода, і їжак їсть яблуко.",
    "tr": "Bugün hava çok güzel, İstanbul'da yürüyüş yapacağız.",
}


def found(*texts: str) -> list[bool]:
    return is_mojibake(pa.array(texts, pa.string())).tolist()


@pytest.mark.parametrize("encoding", ["latin-1", "sloppy-windows-1252"])
@pytest.mark.parametrize("sentence", SENTENCES.values(), ids=SENTENCES)
def test_utf8_read_as_latin_1_is_found(sentence: str, encoding: str) -> None:
    assert found(sentence.encode().decode(encoding)) == [True]


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (SENTENCES["ru"], "sloppy-windows-1251"),
        (SENTENCES["ru"], "sloppy-windows-1250"),
        (SENTENCES["ru"], "cp437"),
        (SENTENCES["fr"], "macroman"),
        (SENTENCES["fr"], "cp437"),
        (SENTENCES["pl"], "iso-8859-2"),
    ],
)
def test_utf8_read_as_other_encodings_is_found(text: str, encoding: str) -> None:
    assert found(text.encode().decode(encoding)) == [True]


def test_no_break_spaces_that_came_out_as_spaces() -> None:
    assert found("voilÃ  la ville", "voilà la ville") == [True, False]


def test_twice_decoded_text_is_found() -> None:
    assert found("schön".encode().decode("cp1252").encode().decode("cp1252")) == [True]


@pytest.mark.parametrize("sentence", SENTENCES.values(), ids=SENTENCES)
def test_right_text_is_not(sentence: str) -> None:
    assert (
        found(sentence, sentence.upper(), f"«{sentence}»", f"{sentence} 16,50\u00a0£ – 3 × 5 m², 20 °C …")
        == [False] * 4
    )


def test_rows_are_told_apart() -> None:
    assert found("plain", "schÃ¶n", "schön", "", "Ã¼ber") == [False, True, False, False, True]
    assert found() == []
    assert found("plain") == [False]


def test_words_with_letters_that_are_common_in_mojibake_are_not() -> None:
    # Capital Ã and Â, as in Portuguese, and the Ukrainian "Сі": the filter lets them through, and ftfy says no.
    assert found("NÃO HÁ", "ÂNGULO", "Сінгапур", "„Ich vergaß“, war ihre Antwort.") == [False] * 4
