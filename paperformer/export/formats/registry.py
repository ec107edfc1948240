"""The formats that there are: a new one is one more file, and a name in here."""

from .ctranslate2_format import CTRANSLATE2
from .format import Format
from .gguf_format import GGUF
from .onnx_format import ONNX

FORMATS: dict[str, Format] = {each.name: each for each in (CTRANSLATE2, ONNX, GGUF)}
