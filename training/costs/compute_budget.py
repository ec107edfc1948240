"""What training compute buys: the model and the data that suit a given number of FLOPs.

Symbols: C floating-point operations of a training run, N parameters, D tokens of training data, L loss.
"""

from dataclasses import dataclass

TOKENS_PER_PARAMETER = 20
"""Tokens of training data a parameter where both are best for their compute: what approaches 1 and 2 of Hoffmann et al.
(2022, arXiv 2203.15556, section 3) come to, and what their model Chinchilla had (70 billion, 1.4 trillion)."""


@dataclass(frozen=True)
class ScalingLaw:
    """L(N, D) = E + A / N^alpha + B / D^beta, the loss of a decoder-only model that never sees a text twice.

    Approach 3 of Hoffmann et al. (2022, equation 2). With C = 6 N D, the loss is least (equation 4) at

        N = G (C / 6)^(beta / (alpha + beta))    D = C / (6 N)    G = (alpha A / (beta B))^(1 / (alpha + beta))
    """

    irreducible: float
    """E, in nats a token."""

    a: float
    b: float
    alpha: float
    beta: float

    def loss(self, parameters: float, tokens: float) -> float:
        """L, in nats a token of the data and the tokenizer of the fit."""
        return self.irreducible + self.a / parameters**self.alpha + self.b / tokens**self.beta

    def optimum(self, compute: float) -> tuple[float, float]:
        """The N and the D of least loss for C floating-point operations."""
        parameters = self._scale * (compute / 6) ** (self.beta / (self.alpha + self.beta))
        return parameters, compute / (6 * parameters)

    def optimal_tokens(self, parameters: float) -> float:
        """The D for which N parameters are best: what is left of C = 6 N D when `optimum` is solved for it."""
        return (parameters / self._scale) ** ((self.alpha + self.beta) / self.beta) / parameters

    @property
    def _scale(self) -> float:
        """G."""
        return (self.alpha * self.a / (self.beta * self.b)) ** (1 / (self.alpha + self.beta))


CHINCHILLA = ScalingLaw(irreducible=1.8172, a=482.01, b=2085.43, alpha=0.3478, beta=0.3658)
"""The law with the constants of Besiroglu et al. (2024, arXiv 2404.10102), who fitted it again to the runs of Hoffmann
et al. (2022): the constants published there (1.69, 406.4, 410.7, 0.34, 0.28) fit those runs badly and contradict the
paper's own approaches 1 and 2."""


def rule_of_thumb(compute: float) -> tuple[float, float]:
    """N and D of C = 6 N D with `TOKENS_PER_PARAMETER`."""
    parameters = (compute / (6 * TOKENS_PER_PARAMETER)) ** 0.5
    return parameters, TOKENS_PER_PARAMETER * parameters


def training_hours(compute: float, peak: float, utilisation: float, num_devices: int) -> float:
    """Hours for C floating-point operations on devices that reach a share of their peak speed.

    The share is the model FLOPs utilisation of Chowdhery et al. (2022, arXiv 2204.02311, appendix B) unless C counts
    what gradient checkpointing computes again; then it is their hardware FLOPs utilisation.
    """
    return compute / (peak * utilisation * num_devices) / 3600
