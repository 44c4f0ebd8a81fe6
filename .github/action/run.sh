#!/usr/bin/env bash
# The step of action.yml that runs a recipe: RECIPE, ARGS with an argument a line, CACHE and TOKEN are its inputs. It leaves report
# and log in RUNNER_TEMP/llmexport-report, writes the step summary and the outputs, and does not fail if the run does.
set -euo pipefail

out=$RUNNER_TEMP/llmexport-report
mkdir -p "$out"
args=()
while IFS= read -r line; do
	[ -z "$line" ] || args+=("$line")
done <<<"${ARGS:-}"
[ -z "$CACHE" ] || args+=(--cache "$CACHE")
[ -z "$TOKEN" ] || export HF_TOKEN=$TOKEN

code=0
llmexport --progress none run "$RECIPE" --json "${args[@]}" >"$out/report.json" 2>"$out/log.txt" || code=$?
cat "$out/log.txt"
{
	echo "exit-code=$code"
	echo "report=$out/report.json"
} >>"$GITHUB_OUTPUT"

{
	echo "### llmexport: $RECIPE"
	echo
	case $code in
	0) echo "Exported and verified." ;;
	2) echo "The recipe or an argument is wrong." ;;
	3) echo "Verification failed; nothing was published." ;;
	4) echo "This model is not supported." ;;
	*) echo "The run failed with exit code $code." ;;
	esac
	if [ -s "$out/report.json" ]; then
		jq -r 'def short: if type == "number" then (if . > 0 and . < 0.0001 then "< 0.0001" else . * 10000 | round / 10000 end) else . end;
			.packages[] | "\n#### \(.name)\n",
			(if .report then "| check | result | value |", "| --- | --- | --- |",
				(.report.checks[]? | "| \(.name) | \(.outcome) | \(.value // .detail // "" | short) |") else empty end),
			(if .error then "\n\(.error)" else empty end),
			(.published[]? | "\nPublished: `\(.ref)`, \(.bytes) bytes, `\(.digest)`")' "$out/report.json"
	fi
	if [ "$code" != 0 ]; then
		echo
		echo '```'
		tail -n 10 "$out/log.txt"
		echo '```'
	fi
} >>"$GITHUB_STEP_SUMMARY"
