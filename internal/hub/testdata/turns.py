"""Runs operations of huggingface_hub on the cache that HF_HUB_CACHE names, each in a process of its own, which may be killed.

Reads a line of JSON for each operation, answers with the process as {"pid": N}, and at its end with {"status": N}, which
is negative for a signal, and {"error": "..."}.
"""

import json
import os
import sys
import traceback

import huggingface_hub as hub
from huggingface_hub import constants

REPO = "org/tiny"


def prune():
    """As `hf cache prune` does: what no ref names, and what was left incomplete."""
    info = hub.scan_cache_dir()
    loose = [r.commit_hash for repo in info.repos for r in repo.revisions if not r.refs]
    info.delete_revisions(*loose).execute()
    for f in info.incomplete_files:
        os.unlink(f.file_path)


def remove(revision):
    info = hub.scan_cache_dir()
    info.delete_revisions(*[r.commit_hash for repo in info.repos for r in repo.revisions if revision in r.refs]).execute()


def run(op):
    constants.HF_HUB_DISABLE_SYMLINKS = op.get("copies", False)
    revision = op.get("revision", "main")
    match op["what"]:
        case "snapshot":
            hub.snapshot_download(REPO, revision=revision, force_download=op.get("force", False), allow_patterns=op.get("patterns"))
        case "file":
            hub.hf_hub_download(REPO, op["file"], revision=revision, force_download=op.get("force", False))
        case "local":
            hub.snapshot_download(REPO, revision=revision, local_files_only=True)
        case "prune":
            prune()
        case "remove":
            remove(revision)


for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        status = 1
        try:
            run(json.loads(line))
            status = 0
        except BaseException:
            with open(os.environ["ERRORS"], "w") as f:
                f.write(traceback.format_exc())
        os._exit(status)
    print(json.dumps({"pid": pid}), flush=True)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    error = ""
    if status == 1:
        with open(os.environ["ERRORS"]) as f:
            error = f.read()
    print(json.dumps({"status": status, "error": error}), flush=True)
