"""gc on one host: what nothing needs goes, and nothing else does."""

from __future__ import annotations

import io
import json
import os
import time
from pathlib import Path

import pytest
from onhost_fakes import FakeDocker, FakeSystemd, host_root

from lockstep.onhost.core import errors, switch_lock
from lockstep.onhost.docker import docker_api
from lockstep.onhost.garbage import cleanup, unneeded_content
from lockstep.onhost.records import deploy_lock, generations, json_records
from lockstep.onhost.switching import hot_change_under_way
from lockstep.onhost.weights import own_snapshots

# None is a part of another.
ENGINES = tuple(f"{letter}1" * 6 for letter in "abc")
IMAGES = tuple(f"site.example/engine@sha256:{f'{letter}2' * 32}" for letter in "abc")
COMMITS = tuple(f"{letter}3" * 20 for letter in "abc")
MODEL = "org--model"


def item_sizes(items: list[dict]) -> dict[str, int]:
    return {f"{item['kind']} {item['name']}": item["bytes"] for item in items}


def item_names(items: list[dict]) -> list[str]:
    return [*item_sizes(items)]


@pytest.fixture
def spark(tmp_path, monkeypatch):
    """A host that was brought to three generations, which had nothing in common."""

    class Spark:
        def __init__(self) -> None:
            self.root = tmp_path / "root"
            self.paths = host_root(self.root, {})
            self.systemd = FakeSystemd(tmp_path / "systemd", monkeypatch)
            self.docker = FakeDocker(self.paths.docker_socket)
            self.engines = self.root / "opt/engines"
            self.cache = self.root / "data/hub"
            self.blobs = self.cache / f"models--{MODEL}/blobs"
            self.blobs.mkdir(parents=True)
            self.paths.pulled_images.mkdir(parents=True)
            for number in range(3):
                self.generation(number)
            (self.engines / "current").symlink_to(ENGINES[2])

        def generation(self, number: int) -> None:
            home = self.engines / ENGINES[number]
            (home / "venv").mkdir(parents=True)
            (home / "venv/library").write_bytes(b"x" * 8192)
            reference = IMAGES[number]
            self.docker.images[reference] = {"Size": 1000}
            self.docker.tags[docker_api.hold_tag(reference)] = reference
            note = self.paths.pulled_images / f"{number}.json"
            note.write_text(json.dumps({"reference": reference}))
            os.utime(note, (1, 1))
            self.fetch(COMMITS[number])
            generations.add_record(self.paths, self.record(number))

        def record(self, number: int) -> dict:
            revision = f"{MODEL.replace('--', '/')}@{COMMITS[number]}"
            return {
                "digest": str(number),
                "engine": {"folder": "/opt/engines", "id": ENGINES[number]},
                "images": [IMAGES[number]],
                "weights": {"cache_dir": "/data/hub", "revisions": [revision]},
                "files": [],
            }

        def has_unit(self) -> None:
            """Two newer generations have the unit of a container."""
            units = [{"path": "/etc/systemd/system/vllm-qwen36.service", "text": ""}]
            for number, digest in ((2, "3"), (1, "4")):
                record = {**self.record(number), "digest": digest, "files": units}
                generations.add_record(self.paths, record)

        def fetch(self, commit: str, *, is_noted: bool = True) -> None:
            """A snapshot with one file of its own and one that all revisions share."""
            if is_noted:
                own_snapshots.note_own_snapshot(self.cache, MODEL, commit)
            snapshot = self.cache / f"models--{MODEL}/snapshots/{commit}"
            snapshot.mkdir(parents=True)
            for name, blob in (("own", f"own-{commit[0]}"), ("shared", "shared")):
                (self.blobs / blob).write_bytes(b"y" * 4096)
                (snapshot / name).symlink_to(f"../../blobs/{blob}")

        def plan(self, keep: int = 2) -> list[str]:
            return item_names(self.cleanup_answer("plan", keep)["items"])

        def cleanup_answer(self, action: str, keep: int = 2, *words: str) -> dict:
            output = io.StringIO()
            with monkeypatch.context() as patch:
                patch.setattr("sys.stdout", output)
                self.code = cleanup.main([action, "--keep", str(keep), *words], self.paths)
            return json.loads(output.getvalue())

        def remove(self, keep: int = 2) -> dict:
            digest = self.cleanup_answer("plan", keep)["digest"]
            return self.cleanup_answer("remove", keep, "--digest", digest)

        @property
        def contents(self) -> tuple[list[str], list[str], list[str], list[str]]:
            """Engines, images, snapshots and blobs, each by its one letter."""
            return (
                sorted(path.name[0] for path in self.engines.glob("?" * 12)),
                sorted(name[-2] for name in self.docker.images),
                sorted(path.name[0] for path in self.cache.glob("*/snapshots/*")),
                sorted(path.name for path in self.blobs.glob("*")),
            )

    spark = Spark()
    yield spark
    spark.docker.close()


OLDEST = [f"engine {ENGINES[0]}", f"image {IMAGES[0]}", f"weights org/model@{COMMITS[0]}"]
WITHOUT_OLDEST = (["b", "c"], ["b", "c"], ["b", "c"], ["own-b", "own-c", "shared"])


def test_of_three_generations_the_oldest_goes(spark):
    earlier_contents = spark.contents
    assert spark.plan() == OLDEST
    assert (spark.contents, len(generations.readable_records(spark.paths))) == (earlier_contents, 3)
    answer = spark.remove()
    assert spark.code == 0
    assert item_names(answer["removed"]) == OLDEST
    assert [item["bytes"] for item in answer["removed"]] == [8192, 1000, 4096]
    assert spark.contents == WITHOUT_OLDEST
    assert sorted(spark.docker.tags.values()) == sorted(IMAGES[1:])
    assert [record["number"] for record in generations.readable_records(spark.paths)] == [3, 2]
    assert spark.plan() == []


def test_what_a_deploy_has_begun_to_bring_is_needed_before_it_is_on_record(spark):
    generations.record_begun(spark.paths, {**spark.record(0), "digest": "the oldest once more"})
    assert spark.plan() == []
    generations.remove_begun_record(spark.paths)
    assert spark.plan() == OLDEST


def test_the_present_alone_may_stay(spark):
    spark.remove(keep=1)
    assert spark.contents == (["c"], ["c"], ["c"], ["own-c", "shared"])


def test_a_generation_returned_to_is_the_present_one(spark):
    generations.add_record(spark.paths, spark.record(0))
    assert spark.plan() == SECOND


SECOND = [f"engine {ENGINES[1]}", f"image {IMAGES[1]}", f"weights org/model@{COMMITS[1]}"]


def test_what_runs_stays_whatever_the_records_say(spark):
    process = spark.paths.proc / "77"
    process.mkdir()
    (process / "cmdline").write_text(f"vllm\0serve\0--revision\0{COMMITS[0]}\0")
    (process / "maps").write_text(f"7f00 r-xp 0 /opt/engines/{ENGINES[0]}/venv/lib/torch.so\n")
    spark.docker.containers["vllm"] = IMAGES[0]
    assert spark.plan() == []


def test_what_current_names_stays_whatever_the_records_say(spark):
    (spark.engines / "current").unlink()
    (spark.engines / "current").symlink_to(ENGINES[0])
    assert spark.plan() == OLDEST[1:]


def test_what_a_deploy_under_way_asks_for_stays(spark):
    engine = spark.root / "etc/lockstep/engine.json"
    engine.write_text(json.dumps({"id": ENGINES[0]}))
    (spark.root / "etc/lockstep/weights.json").write_text(json.dumps({"revision": COMMITS[0]}))
    # It has pulled the image, and not come to its record yet.
    os.utime(spark.paths.pulled_images / "0.json")
    assert spark.plan() == []


def test_what_a_failed_deploy_would_return_to_stays(spark):
    names = [ENGINES[0], IMAGES[0], COMMITS[0]]
    spark.paths.begun_journal.write_text(json.dumps({"points": names}))
    assert spark.plan() == []


def test_what_is_not_ours_is_not_even_looked_at(spark):
    """An operator's own image, environment, folder and model in the same places."""
    foreign_image = "site.example/mine@sha256:" + "d" * 64
    spark.docker.images[foreign_image] = {"Size": 5}
    (spark.engines / "my-engine/venv").mkdir(parents=True)
    (spark.engines / ("d" * 12)).mkdir()
    spark.fetch("d" * 40, is_noted=False)
    (spark.cache / "models--mine--own/snapshots" / ("e" * 40)).mkdir(parents=True)
    assert spark.plan() == OLDEST
    spark.remove()
    assert foreign_image in spark.docker.images
    assert (spark.engines / "my-engine/venv").exists()
    assert (spark.engines / ("d" * 12)).exists()
    assert (spark.cache / f"models--{MODEL}/snapshots/{'d' * 40}/own").exists()
    assert (spark.cache / "models--mine--own/snapshots" / ("e" * 40)).exists()


def test_a_snapshot_that_was_there_before_is_not_noted_as_ours(spark):
    spark.fetch("d" * 40, is_noted=False)
    own_snapshots.note_own_snapshot(spark.cache, MODEL, "d" * 40)
    assert not (own_snapshots.notes_folder(spark.cache) / f"{MODEL}@{'d' * 40}").exists()


def test_with_a_revision_go_its_names_its_stamp_and_its_merged_folder(spark):
    refs = spark.cache / f"models--{MODEL}/refs"
    refs.mkdir()
    (refs / "main").write_text(COMMITS[0])
    (refs / "stable").write_text(COMMITS[2])
    beside = spark.cache.parent
    merged_folder = beside / "lockstep-merged" / MODEL / COMMITS[0]
    stamp = beside / "lockstep-verified" / f"{MODEL}@{COMMITS[0]}.json"
    merged_folder.mkdir(parents=True)
    stamp.parent.mkdir()
    stamp.write_text("{}")
    spark.remove()
    assert sorted(path.name for path in refs.glob("*")) == ["stable"]
    assert not merged_folder.exists() and not stamp.exists()


def test_the_last_revision_takes_the_repository_with_it(spark):
    own_snapshots.note_own_snapshot(spark.cache, "org--other", "f" * 40)
    snapshot = spark.cache / "models--org--other/snapshots" / ("f" * 40)
    snapshot.mkdir(parents=True)
    spark.remove()
    assert not (spark.cache / "models--org--other").exists()


def test_compressed_layers_go_and_count_with_the_last_image_that_has_them(spark):
    spark.paths.layers.mkdir(parents=True)
    shared_layer = "f" * 64
    own = ("1" * 64, "2" * 64, "3" * 64)
    for reference, layer in zip(IMAGES, own, strict=True):
        digests = [{"digest": f"sha256:{name}", "size": 1} for name in (layer, shared_layer)]
        manifest = json.dumps({"config": digests[0], "layers": digests})
        (spark.paths.layers / reference.rpartition(":")[2]).write_text(manifest)
        (spark.paths.layers / layer).write_bytes(b"\0" * 500)
    (spark.paths.layers / shared_layer).write_bytes(b"\0" * 700)
    [image] = [item for item in spark.cleanup_answer("plan")["items"] if item["kind"] == "image"]
    assert image["bytes"] == 1000 + 500 + len(manifest)
    names = {path.name for path in spark.paths.layers.iterdir()}
    spark.remove()
    removed_layers = names - {path.name for path in spark.paths.layers.iterdir()}
    assert removed_layers == {IMAGES[0].rpartition(":")[2], own[0]}
    spark.remove(keep=1)
    assert {path.name for path in spark.paths.layers.iterdir()} == {
        IMAGES[2].rpartition(":")[2],
        own[2],
        shared_layer,
    }


def test_wheels_and_histories_that_no_kept_engine_is_made_of_go(spark):
    store = spark.engines / "store"
    (store / "wheels").mkdir(parents=True)
    commits = ("d" * 40, "e" * 40, "f" * 40)
    for number, engine in enumerate(ENGINES):
        name = f"{number}" * 64
        (spark.engines / engine / "vllm.txt").write_text(f"a==1 --hash=sha256:{name}\n")
        (spark.engines / engine / "vllm/.git").mkdir(parents=True)
        (spark.engines / engine / "vllm/.git/HEAD").write_text(f"{commits[number]}\n")
        (store / name).write_bytes(b"w" * 300)
        (store / commits[number]).write_bytes(b"b" * 200)
        (store / f"wheels/a-{number}.whl").symlink_to(f"../{name}")
    asked_for = "9" * 64
    (spark.root / "etc/lockstep").mkdir(parents=True, exist_ok=True)
    (spark.root / "etc/lockstep/engine.json").write_text(json.dumps({"sha256": asked_for}))
    (store / f"{asked_for}.incomplete").write_bytes(b"begun")
    (store / f".{commits[0]}.new").write_bytes(b"cut off")
    [wheels_item] = [
        item for item in spark.cleanup_answer("plan")["items"] if item["kind"] == "wheels"
    ]
    assert wheels_item == {
        "kind": "wheels",
        "name": str(store),
        "bytes": 507,
    }
    spark.remove()
    assert sorted(path.name for path in store.iterdir()) == sorted(
        ["1" * 64, "2" * 64, f"{asked_for}.incomplete", *commits[1:], "wheels"]
    )
    assert sorted(path.name for path in (store / "wheels").iterdir()) == ["a-1.whl", "a-2.whl"]


def test_what_an_engine_compiled_goes_with_it(spark):
    """By engine id in the service's home, by image digest in the volume of a unit of ours."""
    digests = [reference.rpartition(":")[2][:12] for reference in IMAGES]
    volume = spark.root / "docker/volumes/vllm-qwen36-cache/_data"
    foreign = spark.root / "docker/volumes/mine-cache/_data"
    home = spark.root / "var/lib/lockstep/.cache"
    for folder, names in ((volume, digests), (foreign, digests), (home, ENGINES)):
        for name in (*names, "huggingface"):
            (folder / name).mkdir(parents=True)
            (folder / name / "kernel").write_bytes(b"k" * 4096)
    for name, folder in (("vllm-qwen36-cache", volume), ("mine-cache", foreign)):
        spark.docker.volumes[name] = f"/{folder.relative_to(spark.root)}"
    spark.has_unit()
    compiled_items = [f"compiled {home / ENGINES[0]}", f"compiled {volume / digests[0]}"]
    assert spark.plan() == [*OLDEST, *compiled_items]
    answer = spark.remove()
    assert item_sizes(answer["removed"])[compiled_items[1]] == 4096
    remaining_names = sorted(path.name for path in volume.iterdir())
    assert remaining_names == [*sorted(digests[1:]), "huggingface"]
    assert sorted(path.name for path in home.iterdir()) == [*ENGINES[1:], "huggingface"]
    assert len(list(foreign.iterdir())) == 4


def test_a_volume_of_our_name_that_somebody_else_made_is_not_looked_at(spark):
    folder = spark.root / "docker/volumes/vllm-qwen36-cache/_data"
    kept_folder = folder / IMAGES[0].rpartition(":")[2][:12]
    kept_folder.mkdir(parents=True)
    spark.docker.volumes["vllm-qwen36-cache"] = f"/{folder.relative_to(spark.root)}"
    spark.docker.foreign = {"vllm-qwen36-cache"}
    spark.has_unit()
    spark.remove()
    assert kept_folder.exists()


def test_wheels_that_an_environment_shares_stay(spark):
    archive = spark.engines / "uv-cache/archive-v0"
    for number, letter in enumerate("abc"):
        (archive / letter).mkdir(parents=True)
        (archive / letter / "wheel").write_bytes(b"z" * 4096)
        os.link(archive / letter / "wheel", spark.engines / ENGINES[number] / "venv/wheel")
    entry = spark.engines / "uv-cache/wheels-v5/path/abc/a.rev"
    entry.parent.mkdir(parents=True)
    entry.write_text("archive-v0/a")
    wheels = f"wheels {spark.engines}/uv-cache"
    assert spark.plan() == [OLDEST[0], wheels, *OLDEST[1:]]
    answer = spark.remove()
    sizes = item_sizes(answer["removed"])
    # The same bytes have two names, and come free once.
    assert (sizes[OLDEST[0]], sizes[wheels]) == (8192, 4096)
    assert sorted(path.name for path in archive.glob("*")) == ["b", "c"]
    # uv unpacks again what it has no entry for; an entry without its wheel is an error to it.
    assert not entry.exists()


def test_where_files_cannot_be_shared_all_wheels_stay(spark):
    wheel = spark.engines / "uv-cache/archive-v0/a/wheel"
    wheel.parent.mkdir(parents=True)
    wheel.write_text("z")
    assert spark.plan() == OLDEST


def test_what_came_into_use_since_it_was_shown_stays(spark):
    assert spark.plan() == OLDEST
    (spark.engines / "current").unlink()
    (spark.engines / "current").symlink_to(ENGINES[0])
    assert item_names(spark.remove()["removed"]) == OLDEST[1:]


def test_an_image_in_use_stays_with_the_reason_and_the_rest_goes(spark):
    spark.docker.refusals[IMAGES[0]] = "image is being used by stopped container 12"
    answer = spark.remove()
    assert spark.code == 1
    assert item_names(answer["failed"]) == [OLDEST[1]]
    assert answer["failed"][0]["why"] == "image is being used by stopped container 12"
    assert item_names(answer["removed"]) == [OLDEST[0], OLDEST[2]]
    assert len(generations.readable_records(spark.paths)) == 3


def test_a_job_of_a_deploy_is_not_disturbed(spark):
    spark.systemd.unit("lockstep-job-weights.service", ActiveState="active", SubState="running")
    for action in ("plan", "remove"):
        with pytest.raises(errors.Problem, match="lockstep-job-weights") as error:
            cleanup.main([action], spark.paths)
        assert error.value.code == 75
    spark.systemd.unit("lockstep-job-weights.service", ActiveState="active", SubState="exited")
    assert spark.plan() == OLDEST


def test_a_switch_is_not_disturbed(spark, monkeypatch):
    monkeypatch.setattr(switch_lock, "_GRACE_S", 0.0)
    with switch_lock.hold_lock(spark.paths.switch_lock, "anna", "qwen"):
        with pytest.raises(errors.Problem, match="anna is switching to qwen") as error:
            spark.remove()
        assert error.value.code == 75
    assert spark.contents[0] == ["a", "b", "c"]


def test_a_rollout_that_was_cut_off_is_not_disturbed(spark):
    record = hot_change_under_way.HotChange(
        rollout=hot_change_under_way.HotWork("qwen", "the deploy")
    )
    json_records.save(spark.paths.hot_change, record)
    with pytest.raises(errors.Problem, match="a rollout"):
        cleanup.main(["plan"], spark.paths)


def test_what_became_unneeded_after_the_look_stays_until_it_is_shown(spark):
    link = spark.engines / "current"
    link.unlink()
    link.symlink_to(ENGINES[0])
    digest = spark.cleanup_answer("plan")["digest"]
    link.unlink()
    link.symlink_to(ENGINES[2])
    contents = spark.contents
    with pytest.raises(errors.Problem, match="`lockstep gc` again"):
        spark.cleanup_answer("remove", 2, "--digest", digest)
    assert spark.contents == contents


def test_a_host_without_records_gives_nothing_away(spark):
    for path in spark.paths.generations.glob("*"):
        path.unlink()
    with pytest.raises(errors.Problem, match="no record of a generation"):
        cleanup.main(["plan"], spark.paths)


def test_files_are_removed_with_the_rights_of_their_owner_only(spark, request):
    """The engines own their folders: a link to elsewhere must lead to nothing more than theirs."""
    identities = []
    folder = spark.engines
    if os.geteuid() != 0:
        pytest.skip("only root can give rights away")
    os.chown(folder, 12345, 12346)
    groups = os.getgroups()
    request.addfinalizer(lambda: os.setgroups(groups))
    os.setgroups([4, 24])
    with cleanup.act_as_owner(Path(folder)):
        identities.append((os.geteuid(), os.getegid(), os.getgroups()))
    assert identities == [(12345, 12346, [])]
    assert (os.geteuid(), os.getegid(), os.getgroups()) == (0, 0, [4, 24])


def test_a_deploy_that_holds_its_lock_keeps_it_out(spark):
    deploy = deploy_lock.Deploy("1", "anna", "laptop", "deploy of spark", 1.0)
    with deploy_lock.hold_lock(deploy, spark.paths.deploy_lock):
        for act in (lambda: cleanup.main(["plan"], spark.paths), lambda: spark.remove()):
            with pytest.raises(errors.Problem, match="anna from laptop: deploy of sp") as error:
                act()
            assert error.value.code == errors.EXIT_LOCKED
    assert spark.contents[0] == ["a", "b", "c"]


def test_a_deploy_that_begins_between_look_and_removal_is_kept_out(spark, monkeypatch):
    """It could need what was just judged unneeded."""
    lines = []
    real_plan = unneeded_content.plan_cleanup

    def plan(*args):
        result = real_plan(*args)
        deploy = deploy_lock.Deploy("1", "anna", "laptop", "deploy of spark", time.time())
        with (
            pytest.raises(deploy_lock.DeployUnderWay) as error,
            deploy_lock.hold_lock(deploy, spark.paths.deploy_lock),
        ):
            lines.append("it deploys beside gc")
        lines.append(str(error.value))
        return result

    digest = spark.cleanup_answer("plan")["digest"]
    monkeypatch.setattr(cleanup.unneeded_content, "plan_cleanup", plan)
    spark.cleanup_answer("remove", 2, "--digest", digest)
    assert [line.partition(",")[0] for line in lines] == [
        f"a deploy is under way (root from {os.uname().nodename}: gc"
    ]
    assert spark.contents[0] != ["a", "b", "c"]
