"""What is found out about a model and an engine."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Finding:
    """A point of what an engine asks for."""

    what: str
    is_met: bool | None
    """None: it cannot be told here."""
    reason: str = ""


@dataclass
class Verdict:
    """What an engine can do with a model."""

    engine: str
    command: str
    """How the model is served with it."""
    findings: list[Finding] = field(default_factory=list)

    def note(self, what: str, is_met: bool | None, reason: str = "") -> bool:
        """Adds a point; whether it is met."""
        self.findings.append(Finding(what, is_met, reason))
        return is_met is True

    @property
    def is_able(self) -> bool:
        """Whether no point speaks against it."""
        return all(finding.is_met is not False for finding in self.findings)

    def lines(self) -> list[str]:
        """The verdict as text."""
        is_sure = all(finding.is_met for finding in self.findings)
        said = ("yes" if is_sure else "yes, as far as can be told here") if self.is_able else "no"
        marks = {True: "ok", False: "no", None: "?"}
        points = [
            f"    {marks[each.is_met]:<3} {each.what}" + (f": {each.reason}" if each.reason else "")
            for each in self.findings
        ]
        return [f"{self.engine}: {said}", *([f"    {self.command}"] if self.is_able and self.command else []), *points]
