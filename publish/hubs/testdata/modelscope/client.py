"""What modelscope_hub makes of a package: client.py get|put REPO DIR [REVISION]."""

import os
import sys

from modelscope_hub.api import HubApi

action, repo, folder = sys.argv[1:4]
api = HubApi(token=os.environ["MODELSCOPE_API_TOKEN"], endpoint=os.environ["MODELSCOPE_ENDPOINT"])
if action == "put":
    api.create_repo(repo, "model", visibility="public")
    api.upload_folder(repo, "model", folder)
else:
    api.download_repo(repo, "model", revision=sys.argv[4], local_dir=folder)
