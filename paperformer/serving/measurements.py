"""What the server counts, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Measurements:
    """Counters of one server, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "paperformer_requests", "Requests that were answered", ["route", "status"], registry=self.registry
        )
        self.request_seconds = Histogram(
            "paperformer_request_seconds",
            "From a request's arrival to the end of its answer",
            ["route"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self.queue_seconds = Histogram(
            "paperformer_queue_seconds",
            "How long a sequence has waited for its batch",
            buckets=SECONDS,
            registry=self.registry,
        )
        self.batch_seconds = Histogram(
            "paperformer_batch_seconds", "How long a batch took", buckets=SECONDS, registry=self.registry
        )
        self.batch_rows = Histogram(
            "paperformer_batch_rows", "Sequences in a batch", buckets=ROWS, registry=self.registry
        )
        self.tokens = Counter(
            "paperformer_tokens", "Tokens that were read (in) and written (out)", ["direction"], registry=self.registry
        )
        self.waiting = Gauge("paperformer_waiting_requests", "Requests that wait for the model", registry=self.registry)
        self.gone = Counter(
            "paperformer_disconnected", "Requests whose client had left before the answer", registry=self.registry
        )
        self.isolated = Counter(
            "paperformer_failed_batches", "Batches that failed, and were run again one by one", registry=self.registry
        )

    def text(self) -> bytes:
        """All of it, in Prometheus' text format."""
        return generate_latest(self.registry)
