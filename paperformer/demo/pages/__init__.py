"""The widgets of the page, by Gradio; each module is one of its tabs."""
