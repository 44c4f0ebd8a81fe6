# Completes llmexport in fish. Use it with: llmexport completion fish | source
function __llmexport
	set -l asked (commandline -opc)
	set -l cur (commandline -ct)
	if string match -q -- '-*' $cur
		set -a asked $cur
	end
	set -l found ($asked --generate-bash-completion 2>/dev/null | string match -- "$cur*")
	if set -q found[1]
		printf '%s\n' $found
	else
		__fish_complete_path $cur
	end
end
complete -c llmexport -f -a '(__llmexport)'
