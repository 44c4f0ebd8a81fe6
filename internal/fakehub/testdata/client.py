"""Drives huggingface_hub against the hub at HF_ENDPOINT. Prints JSON, one line for each step; an exception ends it."""

import filecmp
import hashlib
import json
import os
import sys
import tempfile

import huggingface_hub as hub
from huggingface_hub import CommitOperationAdd, CommitOperationCopy, CommitOperationDelete, errors

api = hub.HfApi()


def say(step, **values):
    print(json.dumps({"step": step, **values}), flush=True)


def raises(kind, call):
    try:
        call()
    except kind as e:
        assert type(e) is kind, type(e)
        return e
    raise AssertionError(f"{kind.__name__} was not raised")


def digest(path):
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def files(folder):
    found = {}
    for root, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(root, name)
            found[os.path.relpath(path, folder).replace(os.sep, "/")] = digest(path)
    return found


def read():
    """Everything of org/tiny, with and without a token."""
    info = api.model_info("org/tiny", files_metadata=True)
    say("info", sha=info.sha, gated=info.gated, private=info.private, license=info.card_data.license,
        files={s.rfilename: [s.size, s.blob_id, s.lfs.sha256 if s.lfs else ""] for s in info.siblings})
    say("expand", values=sorted(k for k, v in vars(api.model_info("org/tiny", expand=["sha", "gated"])).items() if v is not None))
    tree = list(api.list_repo_tree("org/tiny", recursive=True, expand=True))
    say("tree", paths=[e.path for e in tree], commits=[e.last_commit.oid for e in tree])
    refs = api.list_repo_refs("org/tiny", include_pull_requests=True)
    say("refs", branches={b.name: b.target_commit for b in refs.branches}, tags={t.name: t.target_commit for t in refs.tags},
        prs=[p.ref for p in refs.pull_requests])
    say("commits", ids=[c.commit_id for c in api.list_repo_commits("org/tiny")])
    say("paths", paths=[p.path for p in api.get_paths_info("org/tiny", ["config.json", "none.json", "sub"])])
    say("snapshot", files=files(hub.snapshot_download("org/tiny")))
    for revision in ("v1", "refs/pr/1", "side"):
        say("revision", revision=revision, files=files(hub.snapshot_download("org/tiny", revision=revision)))
    path = hub.hf_hub_download("org/tiny", "model.safetensors")
    say("again", link=os.path.basename(os.path.realpath(path)))
    raises(errors.RemoteEntryNotFoundError, lambda: hub.hf_hub_download("org/tiny", "none.json"))
    raises(errors.RevisionNotFoundError, lambda: hub.hf_hub_download("org/tiny", "config.json", revision="none"))
    raises(errors.RepositoryNotFoundError, lambda: api.model_info("org/none"))
    raises(errors.RepositoryNotFoundError, lambda: api.model_info("org/private", token=False))
    raises(errors.GatedRepoError, lambda: hub.hf_hub_download("org/gated", "config.json", token=False))
    raises(errors.GatedRepoError, lambda: hub.hf_hub_download("org/gated", "config.json", token="hf_stranger"))
    assert api.model_info("org/gated", token=False).gated == "manual"
    e = raises(errors.HfHubHTTPError, lambda: api.model_info("org/tiny", token="hf_wrong"))
    assert "Invalid credentials" in str(e), e
    for name in ("org/private", "org/gated"):
        assert files(hub.snapshot_download(name)) == {"config.json": hashlib.sha256(b"{}").hexdigest()}
    say("user", name=api.whoami()["name"])


def offline():
    """What read has left, without a hub."""
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    say("snapshot", files=files(hub.snapshot_download("org/tiny")))
    hub.hf_hub_download("org/tiny", "model.safetensors")
    raises(errors.LocalEntryNotFoundError, lambda: hub.hf_hub_download("org/tiny", "README.md", revision="other"))


def write():
    """A repository of our own, and what became of it."""
    name = "org/made"
    url = api.create_repo(name, private=True)
    assert url.repo_id == name, url
    raises(errors.HfHubHTTPError, lambda: api.create_repo(name))
    assert api.create_repo(name, exist_ok=True).repo_id == name
    assert api.model_info(name).private
    api.update_repo_settings(name, private=False, gated="auto")
    info = api.model_info(name)
    assert not info.private and info.gated == "auto", info
    api.update_repo_settings(name, gated=False)

    api.upload_file(path_or_fileobj=b'{"a": 1}', path_in_repo="config.json", repo_id=name)
    api.upload_file(path_or_fileobj=b"small weights", path_in_repo="small.safetensors", repo_id=name)
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(os.path.join(folder, "sub", "deep"))
        big = os.urandom(20 << 20)
        for path, b in {"model.safetensors": big, "README.md": b"---\nlicense: mit\n---\n# made\n", "sub/deep/notes.txt": b"notes\n",
                        "empty.txt": b"", "sub/second.bin": big[: 9 << 20]}.items():
            with open(os.path.join(folder, path), "wb") as f:
                f.write(b)
        done = api.upload_folder(folder_path=folder, repo_id=name, commit_message="all of it")
        assert api.model_info(name).sha == done.oid, done
        again = api.upload_folder(folder_path=folder, repo_id=name, commit_message="nothing new")
        assert again.oid == done.oid, again
        got = hub.snapshot_download(name)
        for path in ("model.safetensors", "README.md", "sub/deep/notes.txt", "empty.txt", "sub/second.bin"):
            assert filecmp.cmp(os.path.join(folder, path), os.path.join(got, path), shallow=False), path

    head = api.model_info(name).sha
    api.create_tag(name, tag="v1.0")
    raises(errors.HfHubHTTPError, lambda: api.create_tag(name, tag="v1.0"))
    api.create_tag(name, tag="v1.0", exist_ok=True)
    api.create_branch(name, branch="w4/q4", revision=head)
    api.create_commit(name, [CommitOperationAdd("only-here.txt", b"x")], commit_message="branch", revision="w4/q4", parent_commit=head)
    done = api.create_commit(
        name,
        [CommitOperationAdd("new.bin", b"w" * 1000), CommitOperationDelete("config.json"), CommitOperationDelete("sub/deep/"),
         CommitOperationCopy("model.safetensors", "copy.safetensors"), CommitOperationCopy("README.md", "COPY.md")],
        commit_message="changes", parent_commit=head)
    e = raises(errors.HfHubHTTPError, lambda: api.create_commit(name, [CommitOperationAdd("late.txt", b"x")], commit_message="late", parent_commit=head))
    assert e.response.status_code == 412, e
    raises(errors.RemoteEntryNotFoundError, lambda: api.create_commit(name, [CommitOperationAdd("half.txt", b"x"), CommitOperationDelete("none.txt")], commit_message="half"))
    assert api.model_info(name).sha == done.oid
    pr = api.create_commit(name, [CommitOperationAdd("pr.txt", b"x")], commit_message="proposal", create_pr=True)
    assert pr.pr_num == 1 and hub.hf_hub_download(name, "pr.txt", revision="refs/pr/1"), pr
    raises(errors.HfHubHTTPError, lambda: api.upload_file(path_or_fileobj=b"x", path_in_repo="x", repo_id=name, token="hf_reader"))
    say("made", sha=done.oid, files=files(hub.snapshot_download(name, revision=done.oid)), listed=sorted(api.list_repo_files(name)),
        branch=sorted(api.list_repo_files(name, revision="w4/q4")), tag=sorted(api.list_repo_files(name, revision="v1.0")))
    api.create_repo("org/short-lived")
    api.delete_repo("org/short-lived")
    api.delete_repo("org/short-lived", missing_ok=True)
    raises(errors.RepositoryNotFoundError, lambda: api.delete_repo("org/short-lived"))


def xet():
    """With hf_xet not disabled: downloads need no Xet, uploads fail before a byte is sent."""
    import huggingface_hub.utils._runtime as runtime

    say("xet", available=runtime.is_xet_available())
    path = hub.hf_hub_download("org/tiny", "model.safetensors", force_download=True)
    assert os.path.getsize(path) > 0
    api.create_repo("org/xet", exist_ok=True)
    try:
        api.upload_file(path_or_fileobj=b"weights", path_in_repo="a.safetensors", repo_id="org/xet")
        say("upload", error="")
    except Exception as e:
        say("upload", error=type(e).__name__)


globals()[sys.argv[1]]()
