package arch

import "strconv"

// wholeFrames is how many frames the engine takes for 30 s, of an encoder that reads a clip as a whole.
const wholeFrames = 3000

// qwen2AudioEar describes the encoder of Qwen2-Audio, which is that of Whisper with a mean over pairs of states.
func qwen2AudioEar(c *Config, width int) *hearing {
	c.Inert("ignore_index", "vocab_size")
	c.Only("tie_word_embeddings", "false") // the library's class ties nothing
	pad := c.tokenID("audio_token_index", "audio_token_id", 151646)
	h := beginHearing(c, "qwen2_audio_encoder")
	if h == nil {
		return nil
	}
	e := h.e
	e.Frames, e.Pad = wholeFrames, pad
	e.Before, e.After = "Audio {n}: "+e.Start, e.End+"\n"
	h.Only("max_source_positions", strconv.Itoa(e.Frames/2))
	e.Positions = Weight{h.prefix + "embed_positions.weight", e.Frames / 2, e.Hidden}
	e.PostNorm = h.norm(h.prefix + "layer_norm")
	e.Out = linearOf("multi_modal_projector.linear", width, e.Hidden, true)
	return h.finish()
}
