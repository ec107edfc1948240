import pytest

from paperformer.training.console.input_error import InputError
from paperformer.training.data.text.xml_parsing import XmlParser

BOMB = '<!DOCTYPE a [<!ENTITY x "ha"><!ENTITY y "&x;&x;&x;&x;">]><a>&y;</a>'
FILE = '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>'


def parse(content: str) -> list[str]:
    parser, found = XmlParser("x.xml", namespaces=True), list[str]()
    parser.expat.StartElementHandler = lambda name, attributes: found.append(name)
    for character in content.encode():  # wherever a block ends
        parser.feed(bytes([character]))
    parser.close()
    return found


def test_elements_come_with_their_name_spaces() -> None:
    assert parse('<!DOCTYPE a SYSTEM "a.dtd"><a xmlns:n="urn:n"><n:b/></a>') == ["a", "urn:n b"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (BOMB, "x.xml, line 1: the file declares the entity 'x'; entities can expand to any size"),
        (FILE, "x.xml, line 1: the file declares the entity 'x'"),
        ('<!DOCTYPE a SYSTEM "a.dtd"><a>\n&x;</a>', r"x.xml, line 2: the entity 'x' \(&x;\) is defined outside"),
        ("<a>\n<b></a>", "x.xml, line 2, column 6: mismatched tag; the file must be well-formed XML"),
        ("<a>", "x.xml, line 1, column 4: no element found"),
    ],
)
def test_what_is_not_safe_or_not_xml_is_one_line(content: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse(content)
