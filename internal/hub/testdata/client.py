"""Drives huggingface_hub on the cache that HF_HUB_CACHE names. Prints one line of JSON."""

import hashlib
import json
import os
import sys

import huggingface_hub as hub

REPO = os.environ.get("REPO", "org/tiny")
REVISION = os.environ.get("REVISION", "main")


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


def find():
    """Everything without a request."""
    snapshot = files(hub.snapshot_download(REPO, revision=REVISION, local_files_only=True))
    each = {name: digest(hub.hf_hub_download(REPO, name, revision=REVISION, local_files_only=True)) for name in snapshot}
    names = ["added_tokens.json", "tokenizer.model", "config.json"]
    absent = [n for n in names if hub.try_to_load_from_cache(REPO, n, revision=REVISION) is hub._CACHED_NO_EXIST]
    info = hub.scan_cache_dir()
    repos = {r.repo_id: sorted(f.file_name for v in r.revisions for f in v.files) for r in info.repos}
    refs = sorted(ref for r in info.repos if r.repo_id == REPO for v in r.revisions for ref in v.refs)
    return dict(files=snapshot, each=each, absent=absent, repos=repos, refs=refs, warnings=[str(w) for w in info.warnings])


def verify():
    result = hub.HfApi().verify_repo_checksums(REPO)
    return dict(verified=result.checked_count, bad=[m["path"] for m in result.mismatches], extra=result.extra_paths)


def fetch():
    return dict(files=files(hub.snapshot_download(REPO, revision=REVISION)))


def environment():
    """What the variables of each case in CASES mean."""
    import importlib

    from huggingface_hub import constants, utils

    base, meanings = {name: os.environ[name] for name in ("PATH", "HOME")}, []
    for env in json.loads(os.environ["CASES"]):
        os.environ.clear()
        os.environ.update(base | env)
        importlib.reload(constants)
        sent = utils.build_hf_headers().get("authorization", "")
        meanings.append(
            dict(
                cache=os.path.abspath(constants.HF_HUB_CACHE),
                token=sent.removeprefix("Bearer "),
                endpoint=constants.ENDPOINT,
                offline=constants.HF_HUB_OFFLINE,
                copies=constants.HF_HUB_DISABLE_SYMLINKS,
                ask=constants.HF_HUB_ETAG_TIMEOUT,
                stall=constants.HF_HUB_DOWNLOAD_TIMEOUT,
            )
        )
    return meanings


print(json.dumps({"environment": environment, "find": find, "verify": verify, "fetch": fetch}[sys.argv[1]]()))
