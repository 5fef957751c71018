"""How a deploy goes, made of its events and of the lines of its downloads."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from lockstep.deploy import events
from lockstep.deploy.summary import HostOutcome
from lockstep.onhost.core.progress import Progress

#: Stage, as a person knows it → the parts of `deploy.py` that it is.
STAGES = {
    "checks": ("Preflight",),
    "packages": ("Base", "Firewall", "Fabric"),
    "engine": ("PyTorch", "vLLM", "FlashInfer", "Engine check"),
    "images": ("Images",),
    "weights": ("Weights",),
    "services": ("Keys", "Services"),
    "gateway": ("Gateway", "Switch"),
    "open webui": ("Open WebUI",),
    "monitoring": ("Monitoring",),
    "read back": ("Verify",),
}
#: Parts that belong to what happens around them.
BETWEEN = ("Sharing",)
#: Operations at which --keep-hot holds a host back: of their parts, "Base" and "Services".
REREAD = "Restart system services that our settings concern"
RESTART = "Restart hot models, one host at a time"
_STAGE_OF = {part: stage for stage, parts in STAGES.items() for part in parts}
#: The speed is that of the last so many seconds.
_SPEED_OF_S = 60.0
# Hosts tell of a download each ten seconds: twice gives a speed, and one not told of has ended.
_SPEED_FROM_S, _TOLD_S = 5.0, 30.0
# The first interval has the connection in it: what is left was a third too long by it alone.
_LEFT_FROM_S = 15.0


@dataclass
class Stage:
    """One stage.

    Attributes:
        name: As a person knows it.
        began: When, on a monotonic clock; None while it has not.
        ended: Likewise.
        changed: What was done → on which hosts.
        failed: Whether a host failed in it.
        stopped: Whether it was under way when the run was ended by Ctrl-C.
    """

    name: str
    began: float | None = None
    ended: float | None = None
    changed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    failed: bool = False
    stopped: bool = False

    def took(self, now: float) -> float:
        """Seconds that it took, or has taken so far."""
        ended = now if self.ended is None else self.ended
        return 0.0 if self.began is None else ended - self.began


@dataclass
class Downloads:
    """The downloads of all hosts in one stage.

    Attributes:
        each: (host, what) → its last progress.
    """

    each: dict[tuple[str, str], Progress] = field(default_factory=dict)
    _samples: dict[tuple[str, str], deque[tuple[float, float]]] = field(default_factory=dict)
    _newest: float = 0.0

    def take(self, host: str, progress: Progress, now: float) -> None:
        """Note how far one is."""
        self.each[host, progress.what] = progress
        samples = self._samples.setdefault((host, progress.what), deque())
        samples.append((now, progress.have))
        while now - samples[0][0] > _SPEED_OF_S:
            samples.popleft()
        self._newest = now

    @property
    def have(self) -> float:
        """Bytes that are on the hosts."""
        return sum(each.have for each in self.each.values())

    @property
    def total(self) -> float:
        """Bytes that are to be on the hosts."""
        return sum(each.total for each in self.each.values())

    @property
    def speed(self) -> float | None:
        """Bytes in a second, None while nobody can tell."""
        # Each by its own clock: together, what one host has told and another not yet would count.
        speeds = [
            max(0.0, samples[-1][1] - samples[0][1]) / (samples[-1][0] - samples[0][0])
            for samples in self._samples.values()
            if self._newest - samples[-1][0] < _TOLD_S
            and samples[-1][0] - samples[0][0] >= _SPEED_FROM_S
        ]
        return sum(speeds) if speeds else None

    def left_s(self, now: float) -> float | None:
        """Seconds from now until all is there, None while nobody can tell."""
        first = min((samples[0][0] for samples in self._samples.values()), default=self._newest)
        if not self.speed or self._newest - first < _LEFT_FROM_S:
            return None
        # Hosts tell at intervals, and go on between them.
        return max(0.0, (self.total - self.have) / self.speed - (now - self._newest))


@dataclass
class Course:
    """A run from its first event to its end; what is shown of it is made of this.

    Attributes:
        began: When, on a monotonic clock.
        hosts: The hosts of the run.
        stages: All stages in their order.
        step: The operation that is under way, or was the last one; "" before the first.
        stepped: Since when.
        downloads: Those of the present stage.
        last: Host → the last line that it said in this operation.
        interrupts: What the run will stop.
        agreed: Whether the first change may come: until then nothing was changed.
        interrupted: Whether Ctrl-C ends it.
        refused: Why it ended before the first change, "" where it did not.
        over: Its end, None while it runs, or where it ended without a word.
    """

    began: float
    hosts: tuple[str, ...] = ()
    stages: dict[str, Stage] = field(default_factory=lambda: {each: Stage(each) for each in STAGES})
    step: str = ""
    stepped: float = 0.0
    downloads: Downloads = field(default_factory=Downloads)
    last: dict[str, str] = field(default_factory=dict)
    interrupts: list[events.Interrupts] = field(default_factory=list)
    agreed: bool = False
    interrupted: bool = False
    refused: str = ""
    over: events.Over | None = None
    _now: Stage | None = None

    def __post_init__(self) -> None:
        self._enter("checks", self.began)

    @property
    def now(self) -> Stage | None:
        """The present stage, None where the run has ended."""
        return self._now

    @property
    def outcomes(self) -> tuple[HostOutcome, ...]:
        """The end of the run for each host."""
        return tuple(self.over.outcomes) if self.over else ()

    @property
    def failed(self) -> bool:
        """Whether a host failed."""
        return any(each.failed_at for each in self.outcomes)

    @property
    def changed(self) -> bool:
        """Whether anything was changed."""
        return any(stage.changed for stage in self.stages.values())

    def take(self, event: events.Event, now: float) -> Iterator[Stage]:
        """Note an event; the stages that ended with it."""
        match event:
            case events.Started(hosts=hosts):
                self.hosts = tuple(hosts)
            case events.Refused(text=text):
                self.refused = text
            case events.Interrupts():
                self.interrupts.append(event)
            case events.Step(name=name):
                part, _, what = name.partition(" | ")
                self.last.clear()
                stage = _STAGE_OF.get(part)
                if stage and (self._now is None or self._now.name != stage):
                    yield from self._leave(now)
                    self._enter(stage, now)
                self.step, self.stepped = what or part, now
            case events.Done(name=name, changed=changed, failed=failed) if self._now:
                what = name.partition(" | ")[2] or name
                if changed:
                    self._now.changed[what] = tuple(changed)
                self._now.failed = self._now.failed or bool(failed)
            case events.Over():
                self.over = event
                yield from self._leave(now)

    def hear(self, host: str, said: str, progress: Progress | None, now: float) -> None:
        """Note a line of a host."""
        if progress:
            self.downloads.take(host, progress, now)
        self.last[host] = said

    def _enter(self, name: str, now: float) -> None:
        self._now = self.stages[name]
        self._now.began = now if self._now.began is None else self._now.began
        self.downloads = Downloads()

    def _leave(self, now: float) -> Iterator[Stage]:
        if self._now:
            self._now.ended = now
            if self.over is not None:
                self._now.failed = self._now.failed or self.failed
                self._now.stopped = self.interrupted
            yield self._now
        self._now = None
