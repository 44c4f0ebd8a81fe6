"""What the libraries of the hubs make of a package: client.py LIBRARY get|put REPO DIR [REVISION]."""

import os
import sys

library, action, repo, folder = sys.argv[1:5]
revision = sys.argv[5] if len(sys.argv) > 5 else None

if library == "huggingface_hub":
    from huggingface_hub import HfApi

    api = HfApi()
    if action == "put":
        api.create_repo(repo)
        api.upload_folder(repo_id=repo, folder_path=folder)
    else:
        api.snapshot_download(repo, revision=revision, local_dir=folder)
else:
    from modelscope_hub.api import HubApi

    api = HubApi(token=os.environ["MODELSCOPE_API_TOKEN"], endpoint=os.environ["MODELSCOPE_ENDPOINT"])
    if action == "put":
        api.create_repo(repo, "model", visibility="public")
        api.upload_folder(repo, "model", folder)
    else:
        api.download_repo(repo, "model", revision=revision, local_dir=folder)
