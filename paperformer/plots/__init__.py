"""Figures of what a model does: its attention, its positions, its gradients. Each needs matplotlib when it is drawn."""
