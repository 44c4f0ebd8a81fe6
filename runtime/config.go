package runtime

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/llmexport/llmexport/internal/digest"
	"github.com/llmexport/llmexport/internal/disk"
	"github.com/llmexport/llmexport/internal/jsondoc"
	"github.com/llmexport/llmexport/runtime/mnn"
	"github.com/llmexport/llmexport/runtime/sound"
	"github.com/llmexport/llmexport/runtime/tensor"
)

// Config holds the keys that the engine reads from config.json and llm_config.json, the second merged over the first.
// Keys without effect on a CPU are not listed.
type Config struct {
	LLMModel      string `json:"llm_model"`
	LLMWeight     string `json:"llm_weight"`
	TokenizerFile string `json:"tokenizer_file"`
	EmbeddingFile string `json:"embedding_file"`
	// LLMConfig is the name of the second file.
	LLMConfig string `json:"-"`

	ModelType     string          `json:"model_type"`
	HiddenSize    int             `json:"hidden_size"`
	LayerNums     int             `json:"layer_nums"`
	AttentionMask string          `json:"attention_mask"`
	AttentionType string          `json:"attention_type"`
	SlidingWindow int             `json:"sliding_window"`
	AttnScale     float64         `json:"attn_scale"`
	MaxPositions  int             `json:"max_position_embeddings"`
	Tie           json.RawMessage `json:"tie_embeddings"`
	Jinja         struct {
		ChatTemplate string `json:"chat_template"`
		EOS          string `json:"eos"`
	} `json:"jinja"`

	// MRope: positions have three axes.
	MRope bool `json:"is_mrope"`
	// Visual: prompts may have pictures, which the part "visual" reads.
	Visual bool `json:"is_visual"`
	// ImageSize is the edge of the picture that every picture becomes, in pixels. For towers of tiles, ImageSizeUnit is the edge of a tile,
	// or for towers of slices that of a patch, and ImageMaxSize bounds the edges of a picture that is cut into tiles. ImageMean and ImageNorm
	// normalise its values v, from 0 to 255: (v - mean) * norm.
	ImageSize     int        `json:"image_size"`
	ImageSizeUnit int        `json:"image_size_unit"`
	ImageMaxSize  int        `json:"image_max_size"`
	ImageMean     [3]float32 `json:"image_mean"`
	ImageNorm     [3]float32 `json:"image_norm"`
	// ImageMinPixels and ImageMaxPixels, if not 0, are the areas between which the model's library keeps a picture of native size.
	ImageMinPixels int `json:"image_min_pixels"`
	ImageMaxPixels int `json:"image_max_pixels"`
	// ImagePad is the token in place of which the rows of pictures are put, VisionStart and VisionEnd are those around them; the last two
	// are left out if one is negative.
	ImagePad    int32 `json:"image_pad"`
	VisionStart int32 `json:"vision_start"`
	VisionEnd   int32 `json:"vision_end"`
	// GlobalImage is the token before the whole picture, after its tiles.
	GlobalImage int32 `json:"global_image"`
	// SliceStart and SliceEnd are those around a slice, for towers of slices, NumberStart and NumberEnd those around the number of a picture.
	SliceStart  int32 `json:"vision_slice_start_id"`
	SliceEnd    int32 `json:"vision_slice_end_id"`
	NumberStart int32 `json:"vision_id_start_id"`
	NumberEnd   int32 `json:"vision_id_end_id"`

	// Audio: prompts may have clips, which the part "audio" reads. AudioType names the features that it takes, and AudioPad is the token in
	// place of which its rows are put.
	Audio     bool   `json:"is_audio"`
	AudioType string `json:"audio_type"`
	AudioPad  int32  `json:"audio_pad"`

	ThreadNum     int    `json:"thread_num"`
	Precision     string `json:"precision"`
	Memory        string `json:"memory"`
	DynamicOption int    `json:"dynamic_option"`
	Chunk         int    `json:"chunk"`

	SamplerType   string   `json:"sampler_type"`
	MixedSamplers []string `json:"mixed_samplers"`
	Temperature   float64  `json:"temperature"`
	TopK          int      `json:"top_k"`
	TopP          float64  `json:"top_p"`
	MinP          float64  `json:"min_p"`

	RepetitionPenalty float64 `json:"repetition_penalty"`

	// LLMExport is this program's own key, which engines ignore.
	LLMExport struct {
		MinimumEngine string        `json:"minimum_engine"`
		Content       digest.Digest `json:"content"`
		// AbsolutePositions is the reason why logits depend on the absolute positions of tokens; empty if they do not.
		AbsolutePositions string `json:"absolute_positions"`
		// Parts names the parts of the package other than the text model.
		Parts []string `json:"parts"`
		// BeforePicture and AfterPicture are what the model's library writes before and after a picture in a conversation.
		BeforePicture string `json:"before_picture"`
		AfterPicture  string `json:"after_picture"`
		// BeforeClip and AfterClip are the same of a clip; {n} is its number in the conversation.
		BeforeClip string `json:"before_clip"`
		AfterClip  string `json:"after_clip"`
	} `json:"llmexport"`
}

// maxConfig bounds a configuration file, in bytes. Most of it is the chat template.
const maxConfig = 16 << 20

// readConfig assembles the configuration of the package in dir as the engine does, with the engine's defaults.
func readConfig(dir string) (*Config, error) {
	c := &Config{
		LLMModel: mnn.GraphFile(""), LLMWeight: mnn.WeightFile(""), TokenizerFile: "tokenizer.txt", EmbeddingFile: "embeddings_bf16.bin",
		HiddenSize: 4096, LayerNums: 32, AttentionMask: "int", AttentionType: "full",
		ThreadNum: 4, Precision: "low", Memory: "low",
		ImageSize: 448, ImageSizeUnit: 1, ImageMaxSize: 2048, GlobalImage: 49152, ImagePad: 151859, VisionStart: 151857, VisionEnd: 151858,
		SliceStart: 111, SliceEnd: 112, NumberStart: 113, NumberEnd: 114,
		ImageMean: [3]float32{122.7709383, 116.7460125, 104.09373615},
		ImageNorm: [3]float32{1 / (0.26862954 * 255), 1 / (0.26130258 * 255), 1 / (0.27577711 * 255)},
		AudioType: "whisper", AudioPad: 151646,
		SamplerType: "mixed", Temperature: 1, TopK: 40, TopP: 0.9, MinP: 0.1, RepetitionPenalty: 1,
	}
	files := struct {
		LLMConfig string `json:"llm_config"`
	}{"llm_config.json"}
	b, err := readFile(dir, "config.json", maxConfig)
	if err != nil {
		return nil, err
	}
	if err := decode("config.json", b, &files, c); err != nil {
		return nil, err
	}
	c.LLMConfig = files.LLMConfig
	if b, err = readFile(dir, files.LLMConfig, maxConfig); err != nil {
		return nil, err
	}
	if err := decode(files.LLMConfig, b, c); err != nil {
		return nil, err
	}
	return c, c.check()
}

func decode(name string, b []byte, into ...any) error {
	for _, v := range into {
		if err := jsondoc.Decode(b, v); err != nil {
			return fmt.Errorf("%s: %v: %w", name, err, tensor.ErrCorrupt)
		}
	}
	return nil
}

// check rejects settings with which the engine computes something other than this runtime.
func (c *Config) check() error {
	switch {
	case c.AttentionMask != "float":
		return fmt.Errorf("attention_mask %q, want \"float\": %w", c.AttentionMask, tensor.ErrUnsupported)
	case c.AttentionType != "full" && c.AttentionType != "mix":
		return fmt.Errorf("attention_type %q: %w", c.AttentionType, tensor.ErrUnsupported)
	case c.AttentionType == "mix" && c.SlidingWindow < 1:
		return fmt.Errorf("attention_type \"mix\" with sliding_window %d: %w", c.SlidingWindow, tensor.ErrUnsupported)
	case c.AttnScale != 0:
		return fmt.Errorf("attn_scale %g: %w", c.AttnScale, tensor.ErrUnsupported)
	case c.Visual && (max(c.ImageSize, c.ImageMaxSize) > 1<<14 || min(c.ImageSize, c.ImageSizeUnit, c.ImageMaxSize) < 1 || c.ImageSize%c.ImageSizeUnit != 0):
		return fmt.Errorf("image_size %d, image_size_unit %d, image_max_size %d: %w", c.ImageSize, c.ImageSizeUnit, c.ImageMaxSize, tensor.ErrUnsupported)
	case c.Audio && !sound.Known(c.AudioType):
		return fmt.Errorf("audio_type %q: %w", c.AudioType, tensor.ErrUnsupported)
	case c.HiddenSize <= 0 || c.HiddenSize > 1<<20:
		return fmt.Errorf("hidden_size %d: %w", c.HiddenSize, tensor.ErrCorrupt)
	}
	return nil
}

// window returns the sliding window of the engine's masks; 0 without one.
func (c *Config) window() int {
	if c.AttentionType == "mix" {
		return c.SlidingWindow
	}
	return 0
}

// readFile reads a file of the package whose name comes from its configuration.
func readFile(dir, name string, limit int64) ([]byte, error) {
	f, size, err := openFile(dir, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > limit {
		return nil, fmt.Errorf("%s: %d bytes are more than the limit of %d: %w", name, size, limit, tensor.ErrCorrupt)
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil && size > 0 {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return b, nil
}

func openFile(dir, name string) (*os.File, int64, error) {
	if !filepath.IsLocal(name) {
		return nil, 0, fmt.Errorf("file name %q leaves the package: %w", name, tensor.ErrCorrupt)
	}
	f, err := disk.Open(filepath.Join(dir, name))
	if kind := (*disk.KindError)(nil); errors.As(err, &kind) {
		return nil, 0, fmt.Errorf("%s is %s, not a file: %w", name, kind.Kind, tensor.ErrCorrupt)
	}
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, st.Size(), nil
}
