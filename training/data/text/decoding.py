"""Text of an encoding that a file names."""

import codecs


def text_decoder(encoding: str) -> codecs.IncrementalDecoder:
    """What decodes bytes in an encoding, block by block.

    Raises:
        LookupError: if Python does not know it, or if it is no encoding of text, as `base64` and `zip` are not.
    """
    try:
        b"a".decode(encoding, "replace")  # tells encodings of text from others, which `codecs` does not
    except UnicodeError as error:
        raise LookupError(str(error)) from error
    return codecs.getincrementaldecoder(encoding)()
