"""gc on one host: what nothing needs goes, and nothing else does."""

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
            self.use(ENGINES[2])

        def use(self, engine: str) -> None:
            """Make an engine the current one."""
            current = self.engines / "current"
            current.unlink(missing_ok=True)
            current.symlink_to(engine)

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

        def add_volume(self, name: str) -> Path:
            """A volume of Docker; two newer generations have the unit vllm-qwen36.service."""
            units = [{"path": "/etc/systemd/system/vllm-qwen36.service", "text": ""}]
            for number, digest in ((2, "3"), (1, "4")):
                record = {**self.record(number), "digest": digest, "files": units}
                generations.add_record(self.paths, record)
            self.docker.volumes[name] = f"/docker/volumes/{name}/_data"
            return self.root / "docker/volumes" / name / "_data"

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


OLDEST, MIDDLE, _ = (
    [f"engine {engine}", f"image {image}", f"weights org/model@{commit}"]
    for engine, image, commit in zip(ENGINES, IMAGES, COMMITS, strict=True)
)


def test_of_three_generations_the_oldest_goes(spark):
    earlier_contents = spark.contents
    assert spark.plan() == OLDEST
    assert (spark.contents, len(generations.readable_records(spark.paths))) == (earlier_contents, 3)
    answer = spark.remove()
    assert spark.code == 0
    assert item_names(answer["removed"]) == OLDEST
    assert [item["bytes"] for item in answer["removed"]] == [8192, 1000, 4096]
    assert spark.contents == (["b", "c"], ["b", "c"], ["b", "c"], ["own-b", "own-c", "shared"])
    assert sorted(spark.docker.tags.values()) == sorted(IMAGES[1:])
    assert [record["number"] for record in generations.readable_records(spark.paths)] == [3, 2]
    assert spark.plan() == []
    spark.remove(keep=1)
    assert spark.contents == (["c"], ["c"], ["c"], ["own-c", "shared"])


def test_what_a_deploy_has_begun_to_bring_or_would_return_to_is_needed(spark):
    generations.record_begun(spark.paths, {**spark.record(0), "digest": "the oldest once more"})
    assert spark.plan() == []
    generations.remove_begun_record(spark.paths)
    assert spark.plan() == OLDEST
    names = [ENGINES[0], IMAGES[0], COMMITS[0]]
    spark.paths.begun_journal.write_text(json.dumps({"points": names}))
    assert spark.plan() == []


def test_a_generation_returned_to_is_the_present_one(spark):
    generations.add_record(spark.paths, spark.record(0))
    assert spark.plan() == MIDDLE


def test_what_runs_stays_whatever_the_records_say(spark):
    process = spark.paths.proc / "77"
    process.mkdir()
    (process / "cmdline").write_text(f"vllm\0serve\0--revision\0{COMMITS[0]}\0")
    (process / "maps").write_text(f"7f00 r-xp 0 /opt/engines/{ENGINES[0]}/venv/lib/torch.so\n")
    spark.docker.containers["vllm"] = IMAGES[0]
    assert spark.plan() == []


def test_what_current_names_stays_whatever_the_records_say(spark):
    spark.use(ENGINES[0])
    assert spark.plan() == OLDEST[1:]
    assert item_names(spark.remove()["removed"]) == OLDEST[1:]


def test_what_a_deploy_under_way_asks_for_stays(spark):
    engine = spark.root / "etc/lockstep/engine.json"
    engine.write_text(json.dumps({"id": ENGINES[0]}))
    (spark.root / "etc/lockstep/weights.json").write_text(json.dumps({"revision": COMMITS[0]}))
    # It has pulled the image, and not come to its record yet.
    os.utime(spark.paths.pulled_images / "0.json")
    assert spark.plan() == []


def test_what_is_not_ours_is_not_even_looked_at(spark):
    """An operator's own image, environment, folder and model in the same places."""
    foreign_image = "site.example/mine@sha256:" + "d" * 64
    spark.docker.images[foreign_image] = {"Size": 5}
    spark.fetch("d" * 40, is_noted=False)
    # Noted too late: it was there before.
    own_snapshots.note_own_snapshot(spark.cache, MODEL, "d" * 40)
    foreign_folders = [
        spark.engines / "my-engine/venv",
        spark.engines / ("d" * 12),
        spark.cache / "models--mine--own/snapshots" / ("e" * 40),
    ]
    for folder in foreign_folders:
        folder.mkdir(parents=True)
    assert spark.plan() == OLDEST
    spark.remove()
    assert foreign_image in spark.docker.images
    assert all(folder.exists() for folder in foreign_folders)
    assert (spark.cache / f"models--{MODEL}/snapshots/{'d' * 40}/own").exists()


def test_with_a_revision_go_its_names_its_stamp_its_merged_folder_and_a_repository_without_others(
    spark,
):
    refs = spark.cache / f"models--{MODEL}/refs"
    refs.mkdir()
    (refs / "main").write_text(COMMITS[0])
    (refs / "stable").write_text(COMMITS[2])
    merged_folder = spark.cache.parent / "lockstep-merged" / MODEL / COMMITS[0]
    stamp = spark.cache.parent / "lockstep-verified" / f"{MODEL}@{COMMITS[0]}.json"
    own_snapshots.note_own_snapshot(spark.cache, "org--other", "f" * 40)
    snapshot = spark.cache / "models--org--other/snapshots" / ("f" * 40)
    for folder in (merged_folder, stamp.parent, snapshot):
        folder.mkdir(parents=True)
    stamp.write_text("{}")
    spark.remove()
    assert [path.name for path in refs.glob("*")] == ["stable"]
    assert not merged_folder.exists() and not stamp.exists()
    assert not (spark.cache / "models--org--other").exists()


def test_compressed_layers_go_and_count_with_the_last_image_that_has_them(spark):
    layers = spark.paths.layers
    layers.mkdir(parents=True)
    shared_layer, own = "f" * 64, ("1" * 64, "2" * 64, "3" * 64)
    manifests = [reference.rpartition(":")[2] for reference in IMAGES]
    for name, layer in zip(manifests, own, strict=True):
        digests = [{"digest": f"sha256:{name}", "size": 1} for name in (layer, shared_layer)]
        manifest = json.dumps({"config": digests[0], "layers": digests})
        (layers / name).write_text(manifest)
        (layers / layer).write_bytes(b"\0" * 500)
    (layers / shared_layer).write_bytes(b"\0" * 700)
    [image] = [item for item in spark.cleanup_answer("plan")["items"] if item["kind"] == "image"]
    assert image["bytes"] == 1000 + 500 + len(manifest)
    names = {path.name for path in layers.iterdir()}
    spark.remove()
    assert names - {path.name for path in layers.iterdir()} == {manifests[0], own[0]}
    spark.remove(keep=1)
    assert {path.name for path in layers.iterdir()} == {manifests[2], own[2], shared_layer}


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
    (spark.root / "etc/lockstep/engine.json").write_text(json.dumps({"sha256": asked_for}))
    (store / f"{asked_for}.incomplete").write_bytes(b"begun")
    (store / f".{commits[0]}.new").write_bytes(b"cut off")
    items = spark.cleanup_answer("plan")["items"]
    assert {"kind": "wheels", "name": str(store), "bytes": 507} in items
    spark.remove()
    kept_names = {"1" * 64, "2" * 64, f"{asked_for}.incomplete", *commits[1:], "wheels"}
    assert {path.name for path in store.iterdir()} == kept_names
    assert {path.name for path in (store / "wheels").iterdir()} == {"a-1.whl", "a-2.whl"}


def test_what_an_engine_compiled_goes_with_it(spark):
    """By engine id in the service's home, by image digest in the volume of a unit of ours."""
    digests = [reference.rpartition(":")[2][:12] for reference in IMAGES]
    home = spark.root / "var/lib/lockstep/.cache"
    volume, foreign = spark.add_volume("vllm-qwen36-cache"), spark.add_volume("mine-cache")
    for folder, names in ((volume, digests), (foreign, digests), (home, ENGINES)):
        for name in (*names, "huggingface"):
            (folder / name).mkdir(parents=True)
            (folder / name / "kernel").write_bytes(b"k" * 4096)
    compiled_items = [f"compiled {home / ENGINES[0]}", f"compiled {volume / digests[0]}"]
    assert spark.plan() == [*OLDEST, *compiled_items]
    answer = spark.remove()
    assert item_sizes(answer["removed"])[compiled_items[1]] == 4096
    assert {path.name for path in volume.iterdir()} == {*digests[1:], "huggingface"}
    assert {path.name for path in home.iterdir()} == {*ENGINES[1:], "huggingface"}
    assert len(list(foreign.iterdir())) == 4


def test_a_volume_of_our_name_that_somebody_else_made_is_not_looked_at(spark):
    kept_folder = spark.add_volume("vllm-qwen36-cache") / IMAGES[0].rpartition(":")[2][:12]
    kept_folder.mkdir(parents=True)
    spark.docker.foreign = {"vllm-qwen36-cache"}
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


def test_an_image_in_use_stays_with_the_reason_and_the_rest_goes(spark):
    spark.docker.refusals[IMAGES[0]] = "image is being used by stopped container 12"
    answer = spark.remove()
    assert spark.code == 1
    assert item_names(answer["failed"]) == [OLDEST[1]]
    assert answer["failed"][0]["why"] == "image is being used by stopped container 12"
    assert item_names(answer["removed"]) == [OLDEST[0], OLDEST[2]]
    assert len(generations.readable_records(spark.paths)) == 3


def test_a_switch_a_job_of_a_deploy_and_a_rollout_that_was_cut_off_are_not_disturbed(
    spark, monkeypatch
):
    monkeypatch.setattr(switch_lock, "_GRACE_S", 0.0)
    with switch_lock.hold_lock(spark.paths.switch_lock, "anna", "qwen"):
        assert_refused(spark.remove, "anna is switching to qwen")
    job = "lockstep-job-weights.service"
    spark.systemd.unit(job, ActiveState="active", SubState="running")
    for action in ("plan", "remove"):
        assert_refused(lambda action=action: cleanup.main([action], spark.paths), "job-weights")
    spark.systemd.unit(job, ActiveState="active", SubState="exited")
    assert spark.plan() == OLDEST
    work = hot_change_under_way.HotWork("qwen", "the deploy")
    json_records.save(spark.paths.hot_change, hot_change_under_way.HotChange(rollout=work))
    assert_refused(spark.plan, "a rollout")
    assert spark.contents[0] == ["a", "b", "c"]


def assert_refused(act, message: str) -> None:
    with pytest.raises(errors.Problem, match=message) as error:
        act()
    assert error.value.code == errors.EXIT_LOCKED


def test_what_became_unneeded_after_the_look_stays_until_it_is_shown(spark):
    spark.use(ENGINES[0])
    digest = spark.cleanup_answer("plan")["digest"]
    spark.use(ENGINES[2])
    contents = spark.contents
    with pytest.raises(errors.Problem, match="`lockstep gc` again"):
        spark.cleanup_answer("remove", 2, "--digest", digest)
    assert spark.contents == contents


def test_a_host_without_records_gives_nothing_away(spark):
    for path in spark.paths.generations.glob("*"):
        path.unlink()
    with pytest.raises(errors.Problem, match="no record of a generation"):
        cleanup.main(["plan"], spark.paths)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give rights away")
def test_files_are_removed_with_the_rights_of_their_owner_only(spark, request):
    """The engines own their folders: a link to elsewhere must lead to nothing more than theirs."""
    os.chown(spark.engines, 12345, 12346)
    groups = os.getgroups()
    request.addfinalizer(lambda: os.setgroups(groups))
    os.setgroups([4, 24])
    with cleanup.act_as_owner(spark.engines):
        assert (os.geteuid(), os.getegid(), os.getgroups()) == (12345, 12346, [])
    assert (os.geteuid(), os.getegid(), os.getgroups()) == (0, 0, [4, 24])


def test_a_deploy_that_holds_its_lock_keeps_it_out(spark):
    deploy = deploy_lock.Deploy("1", "anna", "laptop", "deploy of spark", 1.0)
    with deploy_lock.hold_lock(deploy, spark.paths.deploy_lock):
        for act in (spark.plan, spark.remove):
            assert_refused(act, "anna from laptop: deploy of sp")
    assert spark.contents[0] == ["a", "b", "c"]


def test_a_deploy_that_begins_between_look_and_removal_is_kept_out(spark, monkeypatch):
    """It could need what was just judged unneeded."""
    refusals = []
    real_plan = unneeded_content.plan_cleanup

    def plan(*args):
        result = real_plan(*args)
        deploy = deploy_lock.Deploy("1", "anna", "laptop", "deploy of spark", time.time())
        with pytest.raises(deploy_lock.DeployUnderWay) as error:
            deploy_lock.hold_lock(deploy, spark.paths.deploy_lock).__enter__()
        refusals.append(str(error.value).partition(",")[0])
        return result

    digest = spark.cleanup_answer("plan")["digest"]
    monkeypatch.setattr(cleanup.unneeded_content, "plan_cleanup", plan)
    spark.cleanup_answer("remove", 2, "--digest", digest)
    assert refusals == [f"a deploy is under way (root from {os.uname().nodename}: gc"]
    assert spark.contents[0] != ["a", "b", "c"]
