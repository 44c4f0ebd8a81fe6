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
	compadd -- "${(@)found:#}" || _files
}
# As a file of fpath this is the body of the function.
if [[ "${funcstack[1]}" == _llmexport ]]; then
	_llmexport "$@"
else
	compdef _llmexport llmexport
fi
