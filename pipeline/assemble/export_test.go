package assemble

// EngineReply is the engine's own bound of a reply, in tokens.
const EngineReply = engineReply

// Configs are llm_config.json and config.json, before anything is measured.
func (p *Planned) Configs() (llm, run []byte, err error) {
	if llm, err = llmConfig(p); err != nil {
		return nil, nil, err
	}
	run, err = p.runConfig().json("")
	return llm, run, err
}
