"""The command that shows models and runs on a page."""

from pathlib import Path
from threading import Thread
from typing import Any

from ..training.console.browser import open_page
from ..training.console.input_error import InputError


def demo(
    models: tuple[str, ...],
    output_dir: str = "runs",
    host: str = "127.0.0.1",
    port: int = 7860,
    browser: bool = False,
    trust_remote_code: bool = False,
) -> None:
    """Show what models do on a page in the browser, and how training runs go: paperformer demo [MODEL ...].

    Of a translation model: its n best translations as a tree, how sure it is of each word, and what it looks at; two
    models beside each other; files of all formats that paperformer translate takes. Of a language model: a text that
    it continues token by token, and one that it reads. Of a masked model: masks filled in. All of it is computed and
    served here; the page asks nobody else for anything. docs/demo.md shows it.

    Args:
        models: Folders of models or of runs, names on the Hub, or of those that come with paperformer: cldr-en-de,
            shakespeare. None: these two.
        output_dir: Folder of the runs that the page shows.
        host: Address to listen at. Whoever reaches it can use the page: there is no password.
        port: Port to listen at; 0 takes one that is free.
        browser: Open the page in the browser.
        trust_remote_code: Run Python code that lies in a model's folder; paperformer's own models never need it.
    """
    server = _import_server()
    from ..demo.models import find_models, preload

    shown = find_models(models, trust_remote_code=trust_remote_code)
    pages = _import_pages()
    with server.listen(host, port) as listener, pages.own_files():
        page = pages.build_page(shown, Path(output_dir))
        application = pages.make_application(page, pages.hosts_of(listener))
        address = pages.address_of(listener)
        lines = [f"showing {', '.join(model.name for model in shown)} at {address} ; Ctrl-C stops it"]
        if not pages.is_loopback(listener):
            lines.append(f"anybody who reaches {host} can use it")
        if browser:  # whose request waits at the listener until it is served
            Thread(target=open_page, args=[address], daemon=True).start()
        Thread(target=preload, args=[shown], daemon=True).start()
        # A page that is open keeps a stream open, which has to be given up in the end: no error.
        server.serve(application, listener, "\n".join(lines), 1.0, log_level="critical")


def _import_server() -> Any:
    """What serves, once it is known to be installed."""
    try:
        from ..serving import server
    except ModuleNotFoundError as error:
        raise InputError(f"demo needs {error.name}: pip install 'paperformer[demo]'") from error
    return server


def _import_pages() -> Any:
    """The page, once it is known that what it needs is installed."""
    try:
        from ..demo.pages import page
    except ModuleNotFoundError as error:
        raise InputError(f"demo needs {error.name}: pip install 'paperformer[demo]'") from error
    return page
