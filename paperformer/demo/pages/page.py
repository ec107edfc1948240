"""The page of `paperformer demo`, and how it is served: all of it from this machine, and to nobody else."""

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

# Before Gradio is imported, which reads them then: it asks for no news, and tells nobody that it is used.
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

import gradio as gr
from fastapi import FastAPI
from fastapi.middleware.trustedhost import TrustedHostMiddleware

from ...training.reporting.templates import read_file
from ..models import ShownModel
from .language import add_language_tab
from .masks import add_mask_tab
from .runs import add_runs_tab
from .translation import add_translation_tab
from .widgets import own_html

LARGEST_FILE = "50mb"

POLICY = (
    "default-src 'self' data: blob:; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; "
    "object-src 'none'; base-uri 'self'; "
    "form-action 'self'; frame-ancestors 'self'"
)
"""What a browser may ask of whom: nothing of anybody but this server, whatever a script should want."""

# Fonts are those of the machine: Gradio's own would be fetched. Its quiet texts are too pale to be read.
THEME = gr.themes.Base(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]).set(
    body_text_color_subdued="#5f5e59",
    body_text_color_subdued_dark="#b3b2ab",
    block_info_text_color="#5f5e59",
    block_info_text_color_dark="#b3b2ab",
)


def build_page(models: Sequence[ShownModel], output_dir: Path) -> gr.Blocks:
    """The page with a tab for each kind of model that there is, and one for the runs of a folder."""
    with gr.Blocks(title="paperformer", analytics_enabled=False, fill_width=True) as page:
        own_html(
            '<header class="pf-head"><h1>paperformer</h1><p>What models do, shown on this machine; '
            "nothing is sent anywhere.</p></header>"
        )
        tabs = {
            "translation": ("Translation", add_translation_tab),
            "text-generation": ("Language model", add_language_tab),
            "fill-mask": ("Masks", add_mask_tab),
        }
        with gr.Tabs():
            for task, (title, add) in tabs.items():
                if own := [model for model in models if model.task == task]:
                    with gr.Tab(title):
                        add(own)
            with gr.Tab("Runs"):
                add_runs_tab(output_dir)
    return page


class Restricted:
    """Sends `POLICY` along with every answer.

    Args:
        application: what answers, by ASGI; its streams end when it says so, which Starlette's own class for such things
            does not let them.
    """

    def __init__(self, application: Any):
        self.application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answers a request."""

        async def send_restricted(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = {"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer"}
                added = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        await self.application(scope, receive, send_restricted)


def make_application(page: gr.Blocks, hosts: Sequence[str]) -> FastAPI:
    """The server of a page.

    Args:
        hosts: by which names it may be asked; a page of somebody else's, whose name leads here, may not read it.
    """
    application = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    application.add_middleware(Restricted)
    application.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))
    room = resources.files(__package__)
    script = room.joinpath("demo.js").read_text("utf-8")
    style = read_file("charts.css") + room.joinpath("demo.css").read_text("utf-8")
    return gr.mount_gradio_app(
        application,
        page,
        path="/",
        theme=THEME,
        css=style,
        head=f"<script>{script}</script>",
        footer_links=[],
        run_history=False,
        ssr_mode=False,
        pwa=False,
        enable_monitoring=False,
        mcp_server=False,
        max_file_size=LARGEST_FILE,
        show_error=False,
    )


@contextmanager
def own_files() -> Iterator[Path]:
    """A folder for what visitors upload and download, which is removed at the end."""
    with TemporaryDirectory(prefix="paperformer-demo-") as folder:
        earlier = os.environ.get("GRADIO_TEMP_DIR")
        os.environ["GRADIO_TEMP_DIR"] = folder
        try:
            yield Path(folder)
        finally:
            if earlier is None:
                os.environ.pop("GRADIO_TEMP_DIR", None)
            else:
                os.environ["GRADIO_TEMP_DIR"] = earlier


def address_of(listener: socket.socket) -> str:
    """Where a browser on this machine finds the page."""
    host, port = listener.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


def is_loopback(listener: socket.socket) -> bool:
    """Whether only this machine can reach it."""
    host = str(listener.getsockname()[0])
    return host.startswith("127.") or host == "::1"


def hosts_of(listener: socket.socket) -> list[str]:
    """The names by which it may be asked: on the loopback its own, else any."""
    return ["127.0.0.1", "localhost", "[::1]"] if is_loopback(listener) else ["*"]
