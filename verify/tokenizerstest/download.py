"""Puts the tokenizers of testdata/reference.json into DIR/NAME/tokenizer.json.

    python download.py DIR

A source is a package of npm ("npm": "name@version"; needs npm) or a commit of a git repository ("git", "commit"; needs
git). A file that is there with the right SHA-256 is kept, one that arrives with another is an error.
"""
import hashlib
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).parent


def npm(source, tmp):
    subprocess.run(["npm", "pack", "--silent", "--ignore-scripts", source["npm"]], cwd=tmp, check=True, stdout=subprocess.DEVNULL)
    (archive,) = pathlib.Path(tmp).glob("*.tgz")
    with tarfile.open(archive) as t:
        return t.extractfile("package/" + source["file"]).read()


def git(source, tmp):
    run = lambda *args: subprocess.run(["git", "-C", tmp, *args], check=True, stdout=subprocess.PIPE).stdout
    run("init", "--quiet")
    run("remote", "add", "origin", source["git"])
    run("fetch", "--quiet", "--depth", "1", "--filter", "blob:none", "origin", source["commit"])  # files come when shown
    return run("show", source["commit"] + ":" + source["file"])


def main(folder):
    for source in json.loads((HERE / "testdata/reference.json").read_text())["tokenizers"]:
        target = pathlib.Path(folder) / source["name"] / "tokenizer.json"
        if target.exists() and hashlib.sha256(target.read_bytes()).hexdigest() == source["sha256"]:
            continue
        with tempfile.TemporaryDirectory() as tmp:
            try:
                data = (npm if "npm" in source else git)(source, tmp)
            except (OSError, KeyError, subprocess.CalledProcessError) as e:
                where = source.get("npm") or source["git"]
                sys.exit(f"{source['name']}: {where}: {e}; LLMEXPORT_TOKENIZERS can name a folder that has these files")
        if source["sha256"] and (have := hashlib.sha256(data).hexdigest()) != source["sha256"]:
            sys.exit(f"{source['name']}: SHA-256 {have}, want {source['sha256']}")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        print(target)


if __name__ == "__main__":
    main(sys.argv[1])
