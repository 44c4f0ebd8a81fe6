# Completes llmexport in PowerShell. Use it with: llmexport completion powershell | Out-String | Invoke-Expression
Register-ArgumentCompleter -Native -CommandName llmexport -ScriptBlock {
	param($cur, $command, $cursor)
	$asked = @($command.CommandElements | Where-Object { $_.Extent.StartOffset -lt $cursor } | ForEach-Object { $_.Extent.Text })
	if ($cur -ne '' -and -not $cur.StartsWith('-')) {
		$asked = @($asked | Select-Object -SkipLast 1)
	}
	$rest = @($asked | Select-Object -Skip 1) + '--generate-bash-completion'
	& $asked[0] @rest 2>$null | Where-Object { $_.StartsWith($cur) } | ForEach-Object {
		[System.Management.Automation.CompletionResult]::new($_, $_, 'ParameterValue', $_)
	}
}
