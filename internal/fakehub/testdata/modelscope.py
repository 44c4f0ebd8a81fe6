"""Drives modelscope_hub against the hub at the address given, with the token given."""

import filecmp
import os
import sys
import tempfile

from modelscope_hub.api import HubApi
from modelscope_hub.errors import AlreadyExistsError

endpoint, token = sys.argv[1:]
api = HubApi(token=token, endpoint=endpoint)
name = "org/made"
api.create_repo(name, "model")
try:
    api.create_repo(name, "model")
    raise AssertionError("a model was made twice")
except AlreadyExistsError:
    pass
api.upload_file(repo_id=name, repo_type="model", path_or_fileobj=b'{"x": 1}', path_in_repo="config.json")
with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as got:
    os.makedirs(os.path.join(folder, "sub"))
    for path, b in {"model.safetensors": os.urandom(3 << 20), "README.md": b"# made\n", "sub/notes.txt": b"notes\n"}.items():
        with open(os.path.join(folder, path), "wb") as f:
            f.write(b)
    api.upload_folder(repo_id=name, repo_type="model", folder_path=folder)
    api.download_repo(name, "model", local_dir=got)
    for path in ("model.safetensors", "README.md", "sub/notes.txt"):
        assert filecmp.cmp(os.path.join(folder, path), os.path.join(got, path), shallow=False), path
assert [f.path for f in api.list_repo_files(name, "model") if f.type != "tree"] == [
    ".gitattributes", "README.md", "config.json", "model.safetensors", "sub/notes.txt"]
