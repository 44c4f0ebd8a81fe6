#compdef llmexport
# Completes llmexport in zsh. Use it with: source <(llmexport completion zsh)
_llmexport() {
	local cur="${words[CURRENT]}"
	local -a asked found
	asked=("${(@)words[1,CURRENT-1]}")
	if [[ "$cur" == -* ]]; then
		asked+=("$cur")
	fi
	found=("${(@f)$("${asked[@]}" --generate-bash-completion 2>/dev/null)}")
	if [[ -n "${found[1]}" ]]; then
		_describe values found
	fi
	_files
}
compdef _llmexport llmexport
