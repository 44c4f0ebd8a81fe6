package arch

import "regexp"

// pieceFrames is how many frames of a clip the library of Qwen2.5-Omni reads, 300 s. The engine reads all.
const pieceFrames = 30000

// omniText is the text model of the part of Qwen2.5-Omni that thinks.
func omniText(c *Config) (*Decoder, error) {
	return finishQwen2(begin(c, "rms_norm_eps", 1e-6), ropeRules{theta: 1e6, mrope: true})
}

// thinker returns the part of the config of Qwen2.5-Omni that reads, hears, sees and writes; nil without one. The parts that speak are left out.
func (c *Config) thinker() *Config {
	c.Inert("talker_config", "token2wav_config", "enable_audio_output", "enable_talker")
	t := c.Object("thinker_config")
	if t == nil {
		c.missing("thinker_config")
		return nil
	}
	c.checkInert()
	c.note("answers are text: the parts that speak (talker, token2wav) are left out, because the engine runs such only in programs of its own in C++")
	t.class = transformers().types["qwen2_5_omni_thinker"]
	t.Inert("architectures")
	t.Only("model_type", `"qwen2_5_omni_thinker"`)
	return t
}

// omniInert are the keys of the thinker for videos and for training.
var omniInert = []string{
	"audio_start_token_id", "audio_end_token_id", "ignore_index", "init_std", "initializer_range", "position_id_per_seconds", "seconds_per_chunk",
	"user_token_id", "video_token_index",
}

// omniTower describes the tower of Qwen2.5-Omni, which is that of Qwen2.5-VL under other names.
func omniTower(c *Config, width int) *vision {
	v := qwen25Tower(c, width, []string{"qwen2_5_omni_vision_encoder"}, true)
	if v != nil {
		v.t.Start, v.t.End = "<|vision_bos|>", "<|vision_eos|>"
	}
	return v
}

// omniEar describes the encoder of sound of Qwen2.5-Omni: that of Qwen2-Audio for pieces of 2 n_window frames, which do not attend to each
// other, and whose positions are sinusoids.
func omniEar(c *Config, width int) *hearing {
	c.Inert(omniInert...)
	pad := c.tokenID("audio_token_index", "audio_token_id", 151646)
	h := beginHearing(c, "qwen2_5_omni_audio_encoder")
	if h == nil {
		return nil
	}
	h.provide("n_window", 100)
	h.provide("output_dim", 3584)
	e := h.e
	e.Frames, e.Pad, e.Piece = pieceFrames, pad, 2*h.Int("n_window", pieceFrames/2)
	if n := h.Int("max_source_positions", pieceFrames); n < e.Piece/2 && h.Good("n_window", "max_source_positions") {
		h.Wrong("max_source_positions", "%d are less than n_window %d", n, e.Piece/2)
	}
	if n := h.Int("output_dim", maxHidden); n != width && h.Good("output_dim") && c.Good("hidden_size") {
		h.Wrong("output_dim", "%d is not the %d of the text model", n, width)
	}
	if h.Good("d_model") && (e.Hidden%2 != 0 || e.Hidden < 4) {
		h.Wrong("d_model", "%d is not an even number from 4 on, as sinusoids need", e.Hidden)
	}
	e.PostNorm = h.norm(h.prefix + "ln_post")
	e.Out = linearOf(h.prefix+"proj", width, e.Hidden, true)
	h.skips = append(h.skips,
		Skip{Match: regexp.MustCompile(`^` + regexp.QuoteMeta(h.prefix) + `audio_bos_eos_token\.`), Reason: "not used by the encoder of sound"},
		Skip{Match: regexp.MustCompile(`^(talker|token2wav)\.`), Reason: "speech", Warn: true})
	return h.finish()
}
