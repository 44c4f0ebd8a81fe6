#!/bin/sh
# overlay.sh writes the overlay with which the go command finds the files of cmd/llmexport in this folder, too: a main package cannot
# be imported. Use: ./overlay.sh > FILE && go build -overlay FILE .
set -eu
cd "$(dirname "$0")"
here=$PWD there=$(cd ../llmexport && pwd)
printf '{"Replace": {'
separator=
for f in "$there"/*.go "$there"/completion.bash "$there"/completion.fish "$there"/completion.ps1 "$there"/completion.zsh; do
	case $f in *_test.go) continue ;; esac
	name=${f##*/}
	printf '%s\n"%s/%s": "%s"' "$separator" "$here" "$name" "$f"
	separator=,
done
printf '\n}}\n'
