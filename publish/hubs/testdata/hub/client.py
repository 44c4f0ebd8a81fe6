"""What huggingface_hub makes of a package: client.py get|put REPO DIR [REVISION]."""

import sys

from huggingface_hub import HfApi

action, repo, folder = sys.argv[1:4]
api = HfApi()
if action == "put":
    api.create_repo(repo)
    api.upload_folder(repo_id=repo, folder_path=folder)
else:
    api.snapshot_download(repo, revision=sys.argv[4], local_dir=folder)
