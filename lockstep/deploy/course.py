"""The progress of a deploy, made of its events and of the lines of its downloads."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from lockstep.deploy import events
from lockstep.deploy.summary import HostOutcome
from lockstep.onhost.fetch.download_progress import Progress

#: The parts of `deploy.py` that make each stage, by the stage's name for people.
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
#: Operations at which --keep-hot holds a host back; their parts are "Base" and "Services".
REREAD = "Restart system services that our settings concern"
RESTART = "Restart hot models, one host at a time"
_STAGE_OF = {part: stage for stage, parts in STAGES.items() for part in parts}
#: The speed is that of the last so many seconds.
_SPEED_OF_S = 60.0
# Hosts report a download every ten seconds. Two reports give a speed, and a download without a
# report for this long has ended.
_SPEED_FROM_S, _TOLD_S = 5.0, 30.0
# The first interval includes the connection, which alone made the remaining time a third too long.
_LEFT_FROM_S = 15.0


@dataclass
class Stage:
    """One stage.

    Attributes:
        name: The stage's name for people.
        began: Start on a monotonic clock; None before the start.
        end_time: End on the same clock; None before the end.
        changed_hosts: The hosts that each action changed.
        has_failed: True if a host failed in it.
        was_stopped: True if it was under way when Ctrl-C ended the run.
    """

    name: str
    began: float | None = None
    end_time: float | None = None
    changed_hosts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    has_failed: bool = False
    was_stopped: bool = False

    def took(self, now: float) -> float:
        """Return the seconds that the stage took, or has taken so far."""
        end_time = now if self.end_time is None else self.end_time
        return 0.0 if self.began is None else end_time - self.began


@dataclass
class Downloads:
    """The downloads of all hosts in one stage.

    Attributes:
        by_file: The last progress by host and subject.
    """

    by_file: dict[tuple[str, str], Progress] = field(default_factory=dict)
    _samples: dict[tuple[str, str], deque[tuple[float, float]]] = field(default_factory=dict)
    _newest: float = 0.0

    def take(self, host: str, progress: Progress, now: float) -> None:
        """Record the progress of one download."""
        self.by_file[host, progress.subject] = progress
        samples = self._samples.setdefault((host, progress.subject), deque())
        samples.append((now, progress.have))
        while now - samples[0][0] > _SPEED_OF_S:
            samples.popleft()
        self._newest = now

    @property
    def have(self) -> float:
        """Bytes that are on the hosts."""
        return sum(progress.have for progress in self.by_file.values())

    @property
    def total(self) -> float:
        """Bytes that are to be on the hosts."""
        return sum(progress.total for progress in self.by_file.values())

    @property
    def speed(self) -> float | None:
        """Bytes per second, or None while it is unknown."""
        # Each download counts by its own clock. A common clock would count bytes that one host has
        # reported and another has not yet.
        speeds = [
            max(0.0, samples[-1][1] - samples[0][1]) / (samples[-1][0] - samples[0][0])
            for samples in self._samples.values()
            if self._newest - samples[-1][0] < _TOLD_S
            and samples[-1][0] - samples[0][0] >= _SPEED_FROM_S
        ]
        return sum(speeds) if speeds else None

    def left_s(self, now: float) -> float | None:
        """Return the seconds from now until all is there, or None while this is unknown."""
        first = min((samples[0][0] for samples in self._samples.values()), default=self._newest)
        if not self.speed or self._newest - first < _LEFT_FROM_S:
            return None
        # Hosts report at intervals, and continue between the reports.
        return max(0.0, (self.total - self.have) / self.speed - (now - self._newest))


@dataclass
class Course:
    """A run from its first event to its end; all displays are made of it.

    Attributes:
        began: Start on a monotonic clock.
        hosts: The hosts of the run.
        stages: All stages in their order.
        step: The present or last operation; "" before the first.
        step_time: Start of that operation.
        downloads: The downloads of the present stage.
        last: Each host's last line in this operation.
        interrupts: The hot models that the run will stop.
        is_agreed: True once the first change may come; until then nothing was changed.
        is_interrupted: True if Ctrl-C ends the run.
        refusal: The reason for an end before the first change, or "".
        over: Its end; None while it runs, or if it ended without a word.
    """

    began: float
    hosts: tuple[str, ...] = ()
    stages: dict[str, Stage] = field(default_factory=lambda: {name: Stage(name) for name in STAGES})
    step: str = ""
    step_time: float = 0.0
    downloads: Downloads = field(default_factory=Downloads)
    last: dict[str, str] = field(default_factory=dict)
    interrupts: list[events.Interrupts] = field(default_factory=list)
    is_agreed: bool = False
    is_interrupted: bool = False
    refusal: str = ""
    over: events.Over | None = None
    _now: Stage | None = None

    def __post_init__(self) -> None:
        self._enter("checks", self.began)

    @property
    def now(self) -> Stage | None:
        """The present stage, or None after the end of the run."""
        return self._now

    @property
    def outcomes(self) -> tuple[HostOutcome, ...]:
        """The end of the run for each host."""
        return tuple(self.over.outcomes) if self.over else ()

    @property
    def has_failed(self) -> bool:
        """True if a host failed."""
        return any(outcome.failed_at for outcome in self.outcomes)

    @property
    def has_changed(self) -> bool:
        """True if anything was changed."""
        return any(stage.changed_hosts for stage in self.stages.values())

    def take(self, event: events.Event, now: float) -> Iterator[Stage]:
        """Record an event; yield the stages that ended with it."""
        match event:
            case events.RunStart(hosts=hosts):
                self.hosts = tuple(hosts)
            case events.RunRefusal(text=text):
                self.refusal = text
            case events.Interrupts():
                self.interrupts.append(event)
            case events.StepProgress(name=name):
                part, _, title = name.partition(" | ")
                self.last.clear()
                stage = _STAGE_OF.get(part)
                if stage and (self._now is None or self._now.name != stage):
                    yield from self._leave(now)
                    self._enter(stage, now)
                self.step, self.step_time = title or part, now
            case events.OperationDone(
                name=name, changed_hosts=changed_hosts, failed_hosts=failed_hosts
            ) if self._now:
                title = name.partition(" | ")[2] or name
                if changed_hosts:
                    self._now.changed_hosts[title] = tuple(changed_hosts)
                self._now.has_failed = self._now.has_failed or bool(failed_hosts)
            case events.Over():
                self.over = event
                yield from self._leave(now)

    def hear(self, host: str, text: str, progress: Progress | None, now: float) -> None:
        """Record a line of a host."""
        if progress:
            self.downloads.take(host, progress, now)
        self.last[host] = text

    def _enter(self, name: str, now: float) -> None:
        self._now = self.stages[name]
        self._now.began = now if self._now.began is None else self._now.began
        self.downloads = Downloads()

    def _leave(self, now: float) -> Iterator[Stage]:
        if self._now:
            self._now.end_time = now
            if self.over is not None:
                self._now.has_failed = self._now.has_failed or self.has_failed
                self._now.was_stopped = self.is_interrupted
            yield self._now
        self._now = None
